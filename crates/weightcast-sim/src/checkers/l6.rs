//! L6: at the end of a world nothing of the past is left: no group of a process that is gone, no
//! reader, no copy that is not needed, no memory that is served but not held.

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
