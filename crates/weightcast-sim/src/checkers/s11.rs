//! S11: what a shard takes from a sibling is of the version that it reads.

use weightcast_protocol::Time;
use weightcast_testkit::tag;

use super::{Checker, Fact};

pub(super) struct TakenAsRead;

impl Checker for TakenAsRead {
    fn name(&self) -> &'static str {
        "S11"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Taken { who, version, chunk, tag: found, pure: true, .. } = fact else {
            return None;
        };
        let shard = who.shard;
        (*found != tag(*version, *chunk)).then(|| {
            format!("shard {shard} took chunk {chunk} of {version}, which is not of that version")
        })
    }
}
