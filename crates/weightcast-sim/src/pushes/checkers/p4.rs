//! P4: a target that stays is not disturbed by others: its routes change for its own reasons, or for a sender of its own.

use crate::pushes::checkers::{PushChecker, PushFact, RouteCause};

pub(super) struct Undisturbed;

impl PushChecker for Undisturbed {
    fn name(&self) -> &'static str {
        "P4"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        let PushFact::Moved { cause, target, moved } = fact else { return None };
        let right = match cause {
            RouteCause::Target(of) => of == target,
            RouteCause::Sender(sender) => moved.iter().all(|(_, before)| before == sender),
            RouteCause::Joined | RouteCause::None => false,
        };
        (!right).then(|| format!("routes of {target} change for {cause:?}: {moved:?}"))
    }
}
