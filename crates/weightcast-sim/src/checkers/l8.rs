//! L8: while a group is at rest, its shards and their server's books agree.

use weightcast_protocol::Time;

use super::{Checker, Fact};

pub(super) struct Agreement;

impl Checker for Agreement {
    fn name(&self) -> &'static str {
        "L8"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let (Fact::Looked { disagreements, .. } | Fact::Over { disagreements, .. }) = fact else {
            return None;
        };
        disagreements.first().cloned()
    }
}
