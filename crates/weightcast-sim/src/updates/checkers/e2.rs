//! E2: the version that a token is stamped with is the version of the weights.

use crate::updates::checkers::{TokenPart, UpdateChecker, UpdateFact};

pub(super) struct TrueStamp;

impl UpdateChecker for TrueStamp {
    fn name(&self) -> &'static str {
        "E2"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let UpdateFact::Token { engine, parts, .. } = fact else { return None };
        let wrong = |part: &&TokenPart| part.weights.is_some() && part.stamp != part.weights;
        let TokenPart { weights, stamp, .. } = parts.iter().find(wrong)?;
        Some(format!("engine {engine} stamps {stamp:?} on a token of version {weights:?}"))
    }
}
