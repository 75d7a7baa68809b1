//! S1: what a shard accepts, and what a source that holds its version serves, is what was
//! published.

use weightcast_protocol::Time;
use weightcast_testkit::tag;

use super::{Checker, Fact};

pub(super) struct NoTornAccept;

impl Checker for NoTornAccept {
    fn name(&self) -> &'static str {
        "S1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Done { who, foreign: Some((version, chunk)), .. } => Some(format!(
                "shard {} of group {:?} holds {version} with foreign chunk {chunk}",
                who.shard, who.incarnation
            )),
            // A source that is still being filled is not checked here: its readers compare digests
            // before they commit.
            Fact::Served { version, held: Some(_), chunk, tag: served, .. }
                if *served != tag(*version, *chunk) =>
            {
                Some(format!("chunk {chunk} served as {version} is foreign"))
            }
            _ => None,
        }
    }
}
