//! E3: no token is computed from a cache of other weights, unless sequences of several versions are declared.

use crate::updates::checkers::{TokenPart, UpdateChecker, UpdateFact};

pub(super) struct OwnCache;

impl UpdateChecker for OwnCache {
    fn name(&self) -> &'static str {
        "E3"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let UpdateFact::Token { engine, parts, mixed: false, .. } = fact else { return None };
        let foreign = |part: &&TokenPart| {
            part.weights.is_some_and(|own| part.cache.iter().any(|version| *version != own))
        };
        let TokenPart { weights, cache, .. } = parts.iter().find(foreign)?;
        Some(format!("engine {engine} has weights of {weights:?}, and a cache of {cache:?}"))
    }
}
