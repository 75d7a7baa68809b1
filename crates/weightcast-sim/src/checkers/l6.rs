//! L6: when nothing has happened for long, there is nothing left of what has: no group of a process
//! that is gone, no reader, no copy that nobody needs, no memory that is served and not held.

use weightcast_protocol::Time;

use super::{Checker, Fact};

pub(super) struct Baseline;

impl Checker for Baseline {
    fn name(&self) -> &'static str {
        "L6"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Over { leftovers, .. } = fact else { return None };
        leftovers.first().cloned()
    }
}
