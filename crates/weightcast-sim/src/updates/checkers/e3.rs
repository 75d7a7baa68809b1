//! E3: no token is computed from a cache of other weights. Where sequences of several versions are declared, a cache may be
//! of those versions that the sequence's own tokens are of.

use crate::updates::checkers::{TokenPart, UpdateChecker, UpdateFact};

pub(super) struct OwnCache;

impl UpdateChecker for OwnCache {
    fn name(&self) -> &'static str {
        "E3"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let UpdateFact::Token { engine, parts, own, mixed, .. } = fact else { return None };
        let foreign = |part: &&TokenPart| {
            let right = |version: &u64| match mixed {
                true => own.contains(version),
                false => part.weights == Some(*version),
            };
            part.weights.is_some() && !part.cache.iter().all(right)
        };
        let TokenPart { weights, cache, .. } = parts.iter().find(foreign)?;
        Some(format!("engine {engine} has weights of {weights:?}, and a cache of {cache:?}"))
    }
}
