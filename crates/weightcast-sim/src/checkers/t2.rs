//! T2: a message of an earlier term has no effect on a session that knows a later term.

use std::collections::BTreeMap;

use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::{Term, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct NoEffect {
    /// The latest term that each session was open in, by process and life.
    known: BTreeMap<(usize, u32), Term>,
}

impl Checker for NoEffect {
    fn name(&self) -> &'static str {
        "T2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Took { life, sent_in, message, before, after, .. } = fact else { return None };
        let known = self.known.entry(*life).or_default();
        // A server that has stepped down sends `Superseded` without a term; that is no message of
        // an earlier term.
        let stale = *sent_in < *known && **message != ServerMessage::Superseded;
        let effect = stale && before != after;
        let detail = effect.then(|| {
            format!("a session of term {known} became {after:?} by a word of term {sent_in}")
        });
        *known = (*known).max(after.term.unwrap_or_default());
        detail
    }
}
