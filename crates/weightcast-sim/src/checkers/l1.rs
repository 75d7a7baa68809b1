//! L1: every call ends by its deadline, or within the second after it that the session waits.

use weightcast_protocol::Time;

use super::{Checker, Fact};

pub(super) struct InTime;

impl Checker for InTime {
    fn name(&self) -> &'static str {
        "L1"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Done { who, seq, due: Some(due), .. } = fact else { return None };
        (now > *due).then(|| {
            let late = (now - *due).0 / 1_000_000;
            format!("call {seq} of shard {} ended {late} ms late", who.shard)
        })
    }
}
