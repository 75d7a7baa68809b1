//! How what a group registers differs from a version, for people.

use weightcast_plan::{Catalog, Tensor, hint};

/// Names shown of each kind.
const SHOWN: usize = 8;

/// What differs, at most eight names of each kind, and what to do about the likeliest mistake.
pub(super) fn difference(ours: &Catalog, theirs: &Catalog) -> String {
    let absent = without(theirs, ours);
    let unknown = without(ours, theirs);
    let other: Vec<(&Tensor, &Tensor)> = ours
        .values()
        .filter_map(|our| Some((our, theirs.get(our.name()).filter(|their| *their != our)?)))
        .collect();
    let said = other.iter().map(|(our, their)| format!("{our} here and {their} there")).collect();
    let dtypes = other.iter().find(|(our, their)| our.dtype() != their.dtype());
    let dtypes = dtypes.map(|(our, their)| hint::of_dtypes(their.dtype(), our.dtype()));
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let parts = [
        list("the version has tensors that no shard here registers", owned(&absent)),
        list("registered here but not in the version", owned(&unknown)),
        list("different", said),
        hint::of_names(ours, theirs, &unknown, &absent),
        dtypes,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn without<'a>(names: &'a Catalog, others: &Catalog) -> Vec<&'a str> {
    names.keys().filter(|name| !others.contains_key(*name)).map(String::as_str).collect()
}

fn list(title: &str, names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(SHOWN);
    let mut shown = names.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        shown.push_str(&format!(" and {more} more"));
    }
    (!shown.is_empty()).then(|| format!("{title}: {shown}"))
}
