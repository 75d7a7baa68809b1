//! What two lists of tensors that do not fit together have in common with mistakes that are often
//! made, and what mends each.

use crate::dtype::DType;
use crate::tensor::{Catalog, Tensor};

/// Parts of the names that PEFT gives to what it wraps, and to what it adds.
const PEFT: [&str; 3] = [".base_layer.", ".lora_", "base_model.model."];
/// Parts of the names of output heads, and of the embeddings that are tied to them.
const HEADS: [&str; 4] = ["lm_head.", "embed_out.", "output_layer.", "output.weight"];
const EMBEDDINGS: [&str; 3] = ["embed", "wte.", "word_embeddings"];

/// What to do where one side has a tensor in another type than the other.
pub fn of_dtypes(published: DType, local: DType) -> String {
    let float = |dtype| matches!(dtype, DType::F32 | DType::BF16 | DType::F16);
    match float(published) && float(local) {
        true => format!(
            "have the trainer publish {local} with its layout's cast(\"*\", \"{local}\"), or hold it \
             as {published} here"
        ),
        false => format!("hold it as {published} here, or publish it as {local}"),
    }
}

/// What to do about names that one side has and the other has not: `unknown` ones are here and not
/// published, `absent` ones are published and not here.
pub fn of_names(
    here: &Catalog,
    published: &Catalog,
    unknown: &[&str],
    absent: &[&str],
) -> Option<String> {
    let peft = unknown.iter().chain(absent).find(|name| PEFT.iter().any(|p| name.contains(p)));
    if let Some(name) = peft {
        return Some(format!(
            "{name} is a name of PEFT's: merge the adapter, and give the checkpoint's names with \
             rename= of weightcast.torch.layout (None leaves a tensor out)"
        ));
    }
    let mine = absent.iter().find_map(|head| Some((head, embedding_of(head, published, here)?)));
    if let Some((head, embedding)) = mine {
        return Some(format!(
            "if {head} is {embedding} here (tied weights), say so after adding that: \
             also(weightcast.part(\"{head}\"))"
        ));
    }
    let theirs = unknown.iter().find_map(|head| Some((head, embedding_of(head, here, published)?)));
    theirs.map(|(head, embedding)| {
        format!(
            "if {head} is {embedding} at the trainer (tied weights), its layout says so after adding \
             that: also(weightcast.part(\"{head}\")); if they are tied here, leave {head} out"
        )
    })
}

/// The embedding of the side that lacks an output head, if they may be the same.
fn embedding_of<'a>(head: &str, lists: &Catalog, lacks: &'a Catalog) -> Option<&'a str> {
    let is_any = |name: &str, parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let shape = lists.get(head).map(|tensor| tensor.shape());
    let embedding = lacks.values().find(|tensor| {
        is_any(tensor.name(), &EMBEDDINGS) && shape.is_none_or(|shape| shape == tensor.shape())
    });
    embedding.filter(|_| is_any(head, &HEADS)).map(Tensor::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(names: &[&str]) -> Catalog {
        let tensor = |name: &&str| Tensor::new(*name, DType::BF16, [8, 4]).unwrap();
        names.iter().map(|name| ((*name).to_owned(), tensor(name))).collect()
    }

    #[test]
    fn a_cast_is_named_where_there_is_one() {
        let cast = of_dtypes(DType::F32, DType::BF16);
        assert!(cast.contains("cast(\"*\", \"BF16\")") && cast.contains("F32"), "{cast}");
        for (published, local) in [(DType::I64, DType::BF16), (DType::BF16, DType::I64)] {
            let plain = of_dtypes(published, local);
            assert!(!plain.contains("cast("), "{plain}");
            assert!(plain.contains(published.name()) && plain.contains(local.name()), "{plain}");
        }
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            assert!(of_dtypes(dtype, DType::F16).contains("cast("), "{dtype}");
        }
    }

    #[test]
    fn a_head_that_one_side_ties_is_named_with_its_embedding() {
        let both = catalog(&["model.embed_tokens.weight", "lm_head.weight"]);
        let tied = catalog(&["model.embed_tokens.weight"]);
        let head = ["lm_head.weight"];
        for (here, published, unknown, absent) in
            [(&tied, &both, &[][..], &head[..]), (&both, &tied, &head[..], &[][..])]
        {
            let hint = of_names(here, published, unknown, absent).unwrap();
            for part in ["model.embed_tokens.weight", "also(weightcast.part(\"lm_head.weight\"))"] {
                assert!(hint.contains(part), "{part} in {hint}");
            }
        }
        // A head of another shape than the embedding is not tied to it.
        let large = Tensor::new("lm_head.weight", DType::BF16, [9, 4]).unwrap();
        let apart: Catalog = [("lm_head.weight".to_owned(), large)].into();
        assert_eq!(of_names(&tied, &apart, &[], &head), None);
        assert_eq!(of_names(&apart, &tied, &head, &[]), None);
        let other = catalog(&["model.norm.weight"]);
        assert_eq!(of_names(&other, &both, &[], &["lm_head.weight"]), None);
        assert_eq!(of_names(&tied, &both, &["model.embed_tokens.weight"], &[]), None);
    }

    #[test]
    fn names_of_adapters_are_known() {
        let none = Catalog::new();
        let adapted = "base_model.model.model.layers.0.mlp.up_proj.base_layer.weight";
        for (unknown, absent) in [(&[adapted][..], &[][..]), (&[][..], &[adapted][..])] {
            let hint = of_names(&none, &none, unknown, absent).unwrap();
            assert!(hint.contains("rename=") && hint.contains(adapted), "{hint}");
        }
    }
}
