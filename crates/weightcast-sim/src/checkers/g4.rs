//! G4: a shard returns Ok from a transfer only if all shards of its group have read the last
//! assignment completely, and, in a staged update, have installed it. Reports on earlier
//! assignments do not count. An error takes nothing away: a shard that reads over its memory gave
//! its version up before, and a shard whose update is staged still holds its version.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, Call, ClientMessage, ServerMessage};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{Attempt, CallError, Incarnation, OpSeq, Term, Time};

use super::{Checker, Fact};

/// Group, call, term, attempt and shard of a report that a server has heard.
type ShardReport = (Incarnation, OpSeq, Term, Attempt, u32);

#[derive(Default)]
pub(super) struct AllOrNone {
    /// Shards that have reported an attempt as read.
    prepared: BTreeSet<ShardReport>,
    installed: BTreeSet<ShardReport>,
    /// The last attempt of each call in a term. Reports of earlier attempts do not count.
    attempts: BTreeMap<(Incarnation, OpSeq, Term), Attempt>,
    /// Calls that are staged in this term. When such a call is made again in another term, the
    /// group may hold nothing any more, and reads into its memory.
    staged: BTreeSet<(Incarnation, OpSeq, Term)>,
    /// Calls of `unpublish`, by the session's life.
    unpublishes: BTreeSet<((usize, u32), OpSeq)>,
}

impl Checker for AllOrNone {
    fn name(&self) -> &'static str {
        "G4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, term, message: ClientMessage::Prepared { seq, attempt, .. } } => {
                self.prepared.insert((who.incarnation?, *seq, *term, *attempt, who.shard));
                None
            }
            Fact::Heard { who, term, message: ClientMessage::Installed { seq, attempt, .. } } => {
                self.installed.insert((who.incarnation?, *seq, *term, *attempt, who.shard));
                None
            }
            Fact::Sent { life, message: ClientMessage::Call { seq, call, .. }, .. } => {
                if *call == Call::Unpublish {
                    self.unpublishes.insert((*life, *seq));
                }
                None
            }
            Fact::Said {
                who,
                term,
                message: ServerMessage::Assigned { seq, attempt, assignment, .. },
            } => {
                let last = self.attempts.entry((who.incarnation?, *seq, *term)).or_default();
                *last = (*last).max(*attempt);
                if assignment.staged {
                    self.staged.insert((who.incarnation?, *seq, *term));
                }
                None
            }
            Fact::Done { who, seq, result: Ok(Answer::Committed { .. }), term, .. } => {
                let (incarnation, term) = (who.incarnation?, (*term)?);
                let attempt = self.attempts.get(&(incarnation, *seq, term)).copied();
                let attempt = attempt.unwrap_or_default();
                let report = |shard| (incarnation, *seq, term, attempt, shard);
                let lacks = |book: &BTreeSet<ShardReport>| {
                    (0..who.num_shards).find(|shard| !book.contains(&report(*shard)))
                };
                let staged = self.staged.contains(&(incarnation, *seq, term));
                let unread = lacks(&self.prepared).map(|shard| (shard, "read"));
                let absent = || lacks(&self.installed).filter(|_| staged);
                let (shard, what) = unread.or_else(|| Some((absent()?, "put it in place")))?;
                Some(format!("shard {} returned Ok, shard {shard} has not {what}", who.shard))
            }
            Fact::Took {
                life,
                message: ServerMessage::Answered { seq, result: Err(error) },
                before,
                after,
                ..
            } if before.version != after.version && after.state != SessionState::Ended => {
                // `unpublish` of a refused copy gives the copy up, and reports the refusal as its
                // error.
                let gives_up = self.unpublishes.contains(&(*life, *seq))
                    && matches!(error, CallError::ContentMismatch { .. });
                (!gives_up).then(|| {
                    format!("{:?} became {:?} by an error: {error}", before.version, after.version)
                })
            }
            _ => None,
        }
    }
}
