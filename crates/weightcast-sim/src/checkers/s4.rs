//! S4: a reader takes a chunk only if its source has the chunk at the generation that was named.

use weightcast_protocol::Time;

use super::{Checker, Fact};

pub(super) struct TaggedProgress;

impl Checker for TaggedProgress {
    fn name(&self) -> &'static str {
        "S4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Served { version, chunk, there: false, .. } => {
                Some(format!("chunk {chunk} of {version} is read before it is there"))
            }
            _ => None,
        }
    }
}
