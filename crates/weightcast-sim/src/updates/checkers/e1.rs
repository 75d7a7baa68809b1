//! E1: every token comes from weights that are of one version, on all workers.

use crate::updates::checkers::{UpdateChecker, UpdateFact};

pub(super) struct WholeWeights;

impl UpdateChecker for WholeWeights {
    fn name(&self) -> &'static str {
        "E1"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let UpdateFact::Token { engine, parts, .. } = fact else { return None };
        let first = parts[0].weights;
        let whole = first.is_some() && parts.iter().all(|part| part.weights == first);
        let weights: Vec<_> = parts.iter().map(|part| part.weights).collect();
        (!whole).then(|| format!("engine {engine} generates from weights of versions {weights:?}"))
    }
}
