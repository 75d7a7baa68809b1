//! G4: a shard returns Ok from a transfer only if all shards of its group had read everything, and,
//! of a staged update, had it in place. An error takes nothing away from a shard: one that was told
//! to read over what it held had given that up before, one whose update is staged has not.

use std::collections::BTreeSet;

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{Incarnation, OpSeq, Term, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct AllOrNone {
    prepared: BTreeSet<(Incarnation, OpSeq, u32)>,
    installed: BTreeSet<(Incarnation, OpSeq, u32)>,
    /// Calls whose shards read beside their memory. In another term, where the call is made again, the
    /// group may hold nothing any more, and read into it.
    staged: BTreeSet<(Incarnation, OpSeq, Term)>,
}

impl Checker for AllOrNone {
    fn name(&self) -> &'static str {
        "G4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Prepared { seq, .. }, .. } => {
                self.prepared.insert((who.incarnation?, *seq, who.shard));
                None
            }
            Fact::Heard { who, message: ClientMessage::Installed { seq, .. }, .. } => {
                self.installed.insert((who.incarnation?, *seq, who.shard));
                None
            }
            Fact::Said { who, term, message: ServerMessage::Assigned { seq, assignment, .. } } => {
                if assignment.staged {
                    self.staged.insert((who.incarnation?, *seq, *term));
                }
                None
            }
            Fact::Done { who, seq, result: Ok(Answer::Committed { .. }), term, .. } => {
                let incarnation = who.incarnation?;
                let lacks = |book: &BTreeSet<_>| {
                    (0..who.num_shards).find(|shard| !book.contains(&(incarnation, *seq, *shard)))
                };
                let staged = self.staged.contains(&(incarnation, *seq, (*term)?));
                let unread = lacks(&self.prepared).map(|shard| (shard, "read"));
                let absent = || lacks(&self.installed).filter(|_| staged);
                let (shard, what) = unread.or_else(|| Some((absent()?, "put it in place")))?;
                Some(format!("shard {} returned Ok, shard {shard} has not {what}", who.shard))
            }
            Fact::Took {
                message: ServerMessage::Answered { result: Err(error), .. },
                before,
                after,
                ..
            } if before.version != after.version
                && after.state != SessionState::Ended
                // `unpublish` of what was refused, which says so.
                && before.state != SessionState::Fenced =>
            {
                Some(format!(
                    "{:?} became {:?} by an error: {error}",
                    before.version, after.version
                ))
            }
            _ => None,
        }
    }
}
