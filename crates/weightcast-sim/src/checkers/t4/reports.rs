//! T4 for late reports: a report on an assignment that was replaced costs nobody anything. And a
//! reader that continued at a second source accuses neither.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, Assignment, Call, ClientMessage, ServerMessage};
use weightcast_protocol::{Attempt, CallError, ExportId, Generation, Incarnation, OpSeq, Time};

use crate::checkers::{Checker, Fact, Who};

/// The server answers a late report with no message, to any shard.
#[derive(Default)]
pub(in crate::checkers) struct VoidReports {
    /// The last assignment of each group.
    assigned: BTreeMap<Incarnation, (OpSeq, Attempt)>,
    /// The group whose late report is the cause of this event, and the assignment that it reports
    /// on.
    late: Option<(Incarnation, (OpSeq, Attempt))>,
}

impl Checker for VoidReports {
    fn name(&self) -> &'static str {
        "T4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                self.late = None;
                let (ClientMessage::Prepared { seq, attempt, .. }
                | ClientMessage::Installed { seq, attempt, .. }
                | ClientMessage::ReadFailed { seq, attempt, .. }
                | ClientMessage::Slow { seq, attempt, .. }) = message
                else {
                    return None;
                };
                let (group, of) = (who.incarnation?, (*seq, *attempt));
                let late = self.assigned.get(&group).is_some_and(|last| of < *last);
                self.late = late.then_some((group, of));
                None
            }
            Fact::Said { who, message, .. } => {
                let late = self.late;
                if let ServerMessage::Assigned { seq, attempt, .. } = message {
                    self.assigned.insert(who.incarnation?, (*seq, *attempt));
                }
                let (group, (seq, attempt)) = late?;
                Some(format!(
                    "{group} reports on attempt {attempt} of call {seq}, which is over: {message:?}"
                ))
            }
            Fact::Books(_) => {
                self.late = None;
                None
            }
            _ => None,
        }
    }
}

/// A shard's export, and the generation.
type ServedCopy = (ExportId, Generation);

/// A copy is fenced on the word of two replicas only if two replicas have read a whole attempt from
/// it alone.
#[derive(Default)]
pub(in crate::checkers) struct Accusers {
    names: BTreeMap<usize, String>,
    /// The name of each group, from the `Open` of one of its shards. The `Open` that made the
    /// server act came before the term, so this checker of one term has not seen it.
    groups: BTreeMap<Incarnation, String>,
    exports: BTreeMap<(Incarnation, u32), ExportId>,
    reads: BTreeMap<Incarnation, Attempted>,
    /// Which replicas may accuse a copy: those that have read all of it, by life, call and attempt.
    may: BTreeMap<ServedCopy, BTreeSet<(String, Incarnation, OpSeq, Attempt)>>,
}

/// The last assignment of a group.
struct Attempted {
    place: (OpSeq, Attempt),
    /// The one copy that all bytes of the attempt come from, if there is just one.
    from: Option<ServedCopy>,
    unread: BTreeSet<u32>,
}

impl Attempted {
    fn new(num_shards: u32, place: (OpSeq, Attempt), since: Attempt, told: &Assignment) -> Self {
        let alone = since == place.1 && told.helpers.is_empty();
        let first = told.shards.first().filter(|_| alone);
        let from = first.map(|shard| (shard.export, shard.generation));
        Self { place, from, unread: (0..num_shards).collect() }
    }
}

impl Accusers {
    fn heard(&mut self, who: &Who, message: &ClientMessage) -> Option<()> {
        if let (Some(group), Some(name)) = (who.incarnation, self.names.get(&who.process)) {
            self.groups.entry(group).or_insert_with(|| name.clone());
        }
        match message {
            ClientMessage::Open(open) => {
                self.names.insert(who.process, open.replica.clone());
            }
            ClientMessage::Announce(announcement) => {
                let export = announcement.registration?.export;
                self.exports.insert((who.incarnation?, who.shard), export);
            }
            ClientMessage::Call { call: Call::Register { export, .. }, .. } => {
                self.exports.insert((who.incarnation?, who.shard), *export);
            }
            ClientMessage::Prepared { seq, attempt, .. } => {
                let read = self.reads.get_mut(&who.incarnation?)?;
                if read.place != (*seq, *attempt) || !read.unread.remove(&who.shard) {
                    return None;
                }
                let from = read.from.filter(|_| read.unread.is_empty())?;
                let group = who.incarnation?;
                let entry = (self.name(group), group, *seq, *attempt);
                self.may.entry(from).or_default().insert(entry);
            }
            _ => {}
        }
        None
    }

    /// The name of a group's replica; where no name is known, the group's own number.
    fn name(&self, group: Incarnation) -> String {
        self.groups.get(&group).cloned().unwrap_or_else(|| group.to_string())
    }

    fn said(&mut self, who: &Who, message: &ServerMessage) -> Option<String> {
        let group = who.incarnation?;
        match message {
            ServerMessage::Assigned { seq, attempt, since, assignment } => {
                let place = (*seq, *attempt);
                if self.reads.get(&group).is_none_or(|read| read.place < place) {
                    let read = Attempted::new(who.num_shards, place, *since, assignment);
                    self.reads.insert(group, read);
                }
                None
            }
            // The commit shows that the bytes were right, so this reader accuses nobody.
            ServerMessage::Answered { seq, result: Ok(Answer::Committed { .. }) } => {
                let read = self.reads.get(&group).filter(|read| read.place.0 == *seq)?;
                let entry = (self.name(group), group, *seq, read.place.1);
                self.may.get_mut(&read.from?)?.remove(&entry);
                None
            }
            ServerMessage::Fenced { generation, error, .. } if who.shard == 0 => {
                let CallError::ContentMismatch { detail, .. } = error else { return None };
                let accusers = self.accusers(group, *generation);
                (detail.starts_with("two replicas") && accusers < 2).then(|| {
                    format!("{group} was fenced, and {accusers} have read all of it from there")
                })
            }
            _ => None,
        }
    }

    /// How many replicas may have accused the copy that a group's first shard serves now.
    fn accusers(&self, group: Incarnation, generation: Generation) -> usize {
        let copy = self.exports.get(&(group, 0)).map(|export| (*export, generation));
        let may = copy.and_then(|copy| self.may.get(&copy));
        let names: BTreeSet<&str> = may.into_iter().flatten().map(|(name, ..)| &name[..]).collect();
        names.len()
    }
}

impl Checker for Accusers {
    fn name(&self) -> &'static str {
        "T4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                self.heard(who, message);
                None
            }
            Fact::Said { who, message, .. } => self.said(who, message),
            // A sibling may have changed it on the way.
            Fact::Taken { who, seq, .. } => {
                let read = self.reads.get_mut(&who.incarnation?)?;
                read.from = read.from.filter(|_| read.place.0 != *seq);
                None
            }
            _ => None,
        }
    }
}
