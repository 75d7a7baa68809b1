//! P7: once a target has heard an order, no earlier order has an effect; and none that is meant for another target.

use crate::pushes::checkers::{PushChecker, PushFact};

pub(super) struct NewestPushOnly;

impl PushChecker for NewestPushOnly {
    fn name(&self) -> &'static str {
        "P7"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        let PushFact::Ordered { target, meant, newer, changed: true } = fact else { return None };
        if meant != target {
            return Some(format!("{target} obeys an order that is meant for {meant}"));
        }
        newer.then(|| format!("{target} obeys an order that is older than one it has heard"))
    }
}
