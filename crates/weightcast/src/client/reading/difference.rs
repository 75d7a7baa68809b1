//! How what a group registers differs from a version, for people.

use weightcast_plan::{Catalog, Tensor, hint};

/// Names shown of each kind.
const SHOWN: usize = 8;

/// What differs, at most eight names of each kind, and what to do about the likeliest mistake.
pub(in crate::client) fn difference(ours: &Catalog, theirs: &Catalog) -> String {
    let absent = without(theirs, ours);
    let unknown = without(ours, theirs);
    let other: Vec<(&Tensor, &Tensor)> = ours
        .values()
        .filter_map(|our| Some((our, theirs.get(our.name()).filter(|their| *their != our)?)))
        .collect();
    let said: Vec<String> =
        other.iter().map(|(our, their)| format!("{our} here and {their} there")).collect();
    let dtypes = other.iter().find(|(our, their)| our.dtype() != their.dtype());
    let dtypes = dtypes.map(|(our, their)| hint::of_dtypes(their.dtype(), our.dtype()));
    let parts = [
        list("the version has tensors that no shard here registers", &absent),
        list("registered here but not in the version", &unknown),
        list("different", &said),
        hint::of_names(ours, theirs, &unknown, &absent),
        dtypes,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn without<'a>(names: &'a Catalog, others: &Catalog) -> Vec<&'a str> {
    names.keys().filter(|name| !others.contains_key(*name)).map(String::as_str).collect()
}

/// The first names of a kind, and how many more there are. `None` if there is none.
fn list(title: &str, names: &[impl AsRef<str>]) -> Option<String> {
    let more = names.len().saturating_sub(SHOWN);
    let mut shown = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    if more > 0 {
        shown.push_str(&format!(" and {more} more"));
    }
    (!shown.is_empty()).then(|| format!("{title}: {shown}"))
}

#[cfg(test)]
mod tests {
    use weightcast_plan::DType;

    use super::*;

    fn catalog(of: &[(&str, DType, u64)]) -> Catalog {
        let tensor = |(name, dtype, size): &(&str, DType, u64)| {
            ((*name).to_owned(), Tensor::new(*name, *dtype, [*size]).expect("a tensor"))
        };
        of.iter().map(tensor).collect()
    }

    #[test]
    fn what_is_on_one_side_alone_is_told_of_that_side() {
        let here = catalog(&[("a", DType::U8, 4), ("mine", DType::U8, 4)]);
        let there = catalog(&[("a", DType::U8, 4), ("yours", DType::U8, 4)]);
        assert_eq!(
            difference(&here, &there),
            "the version has tensors that no shard here registers: yours; \
             registered here but not in the version: mine"
        );
    }

    #[test]
    fn shapes_and_types_are_told_as_they_are_here_and_there() {
        let of = |dtype, size| catalog(&[("a", dtype, size)]);
        let shown = |dtype, size| Tensor::new("a", dtype, [size]).expect("a tensor").to_string();
        let shapes = difference(&of(DType::U8, 4), &of(DType::U8, 5));
        let (ours, theirs) = (shown(DType::U8, 4), shown(DType::U8, 5));
        assert_eq!(shapes, format!("different: {ours} here and {theirs} there"));
        let types = difference(&of(DType::F32, 4), &of(DType::BF16, 4));
        let hint = hint::of_dtypes(DType::BF16, DType::F32);
        assert!(types.ends_with(&format!("; {hint}")), "{types}");
    }

    #[test]
    fn a_few_names_are_told_and_the_others_counted() {
        for (names, more) in [(1, None), (SHOWN, None), (SHOWN + 1, Some(1)), (SHOWN + 7, Some(7))]
        {
            let names: Vec<String> = (0..names).map(|number| format!("n{number:02}")).collect();
            let told = list("title", &names).expect("there are names");
            let shown = names[..names.len().min(SHOWN)].join(", ");
            let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
            assert_eq!(told, format!("title: {shown}{more}"));
        }
        assert_eq!(list("title", &Vec::<String>::new()), None);
    }
}
