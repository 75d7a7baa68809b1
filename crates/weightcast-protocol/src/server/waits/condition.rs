//! `wait`: rollouts that do not hold what the condition asks for.

use super::{WaitCause, WaitGraph};
use crate::{Condition, Incarnation};

impl WaitGraph<'_> {
    pub(super) fn condition_cause(self, incarnation: Incarnation, until: Condition) -> WaitCause {
        let waiter = self.of(incarnation);
        let cause = WaitCause::new(waiter.wait_waits_for(until));
        let Condition::Held(held) = until else { return cause };
        match waiter.model.latest() {
            None => self.nothing_published(incarnation, cause),
            Some(latest) => {
                let lagging = waiter.lagging(held.oldest(latest));
                WaitCause { groups: lagging.map(|group| group.incarnation).collect(), ..cause }
            }
        }
    }

    /// No rollout can hold anything, so the trainers hold the waiter up: all but the waiter itself.
    fn nothing_published(self, incarnation: Incarnation, cause: WaitCause) -> WaitCause {
        let mut groups = self.version_cause(incarnation).groups;
        groups.retain(|group| *group != incarnation);
        WaitCause { groups, ..cause }
    }
}
