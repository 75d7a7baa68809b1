//! S9, from outside: once `unpublish` has been answered, no group reads from the group that
//! unpublished, no group is told to, and its shards give nothing of what they had.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{
    Announcement, Answer, Assignment, Call, ClientMessage, Role, ServerMessage,
};
use weightcast_protocol::{Attempt, ExportId, Generation, Incarnation, OpSeq, Span, Time};

use crate::checkers::{Checker, Fact, Who};

type GroupShard = (Incarnation, u32);

/// Uses messages alone. A reader that its server has let go of is not always told: it waits for the
/// next source. So a reader counts only while its server must believe that it reads. A reader does
/// not count if
///
/// - it has read everything or has failed, was answered, or was told of its end;
/// - its call's deadline has passed, or it has not renewed its lease for half of the lease;
/// - its source may have been cut off: the source has drained, or updated, for as long as it may,
///   was refused, is at its end, or is silent;
/// - its stream is broken, or was, for a tenth of the lease: a source that gives its copy up does not wait for such a
///   reader;
/// - it drew from several sources and its stream is broken: the server may have given one of the
///   sources to a waiting reader, and the reader has not heard of that;
/// - it is a seed: a seed that is not needed any more is ended, and may not be told.
pub(in crate::checkers) struct NobodyLeft {
    lease: Span,
    drain_deadline: Span,
    exports: BTreeMap<ExportId, GroupShard>,
    /// The generation at which each shard serves, or will serve.
    generations: BTreeMap<GroupShard, Generation>,
    /// When each shard last renewed its lease. Calls do not renew it: a process whose clock stands
    /// still may call without a heartbeat.
    renewed: BTreeMap<GroupShard, Time>,
    /// When the server may cut off the readers of a group that gives its copy up.
    drained: BTreeMap<Incarnation, Time>,
    /// When the server may move the readers of the old copy of a group that updates.
    updating: BTreeMap<Incarnation, Time>,
    /// Shards whose streams are broken, and since when.
    unlinked: BTreeMap<GroupShard, Time>,
    /// Groups that close. The server soon moves their readers, whatever else these read from.
    closing: BTreeSet<Incarnation>,
    /// Copies that were given up: no reader may be told to read them.
    gone: BTreeMap<ExportId, Generation>,
    reads: BTreeMap<Incarnation, ToldToRead>,
    /// Processes of seeds. A server ends a seed that is not needed any more, and a broken stream
    /// hides that.
    seeds: BTreeSet<usize>,
    /// The last `unpublish` of each group that was answered. A shard that missed the answer gets it
    /// again later.
    unpublished: BTreeMap<Incarnation, OpSeq>,
    called: BTreeMap<GroupShard, OpSeq>,
    /// A shard that has made a call again in this event. The server repeats everything that the
    /// shard may have missed.
    again: Option<GroupShard>,
    deadlines: BTreeMap<(Incarnation, OpSeq), Time>,
}

/// The last assignment of a group.
struct ToldToRead {
    place: (OpSeq, Attempt),
    sources: BTreeSet<Incarnation>,
    copies: Vec<(ExportId, Generation)>,
    unread: BTreeSet<u32>,
}

impl NobodyLeft {
    pub(in crate::checkers) fn new(lease: Span, drain_deadline: Span) -> Self {
        Self {
            lease,
            drain_deadline,
            exports: BTreeMap::new(),
            generations: BTreeMap::new(),
            renewed: BTreeMap::new(),
            drained: BTreeMap::new(),
            updating: BTreeMap::new(),
            unlinked: BTreeMap::new(),
            closing: BTreeSet::new(),
            gone: BTreeMap::new(),
            reads: BTreeMap::new(),
            seeds: BTreeSet::new(),
            unpublished: BTreeMap::new(),
            called: BTreeMap::new(),
            again: None,
            deadlines: BTreeMap::new(),
        }
    }

    fn heard(&mut self, now: Time, who: &Who, message: &ClientMessage) {
        self.again = None;
        if let ClientMessage::Open(open) = message {
            match open.role {
                Role::Seed(_) => self.seeds.insert(who.process),
                Role::Trainer | Role::Rollout | Role::Offload(_) => self.seeds.remove(&who.process),
            };
        }
        let Some(group) = who.incarnation else { return };
        let shard = (group, who.shard);
        if self.is_unheard(now, group) {
            self.reads.remove(&group);
        }
        self.unlinked.remove(&shard);
        match message {
            ClientMessage::Heartbeat { .. } | ClientMessage::Progress { .. } => {
                self.renewed.insert(shard, now);
            }
            ClientMessage::Announce(announcement) => self.announced(shard, announcement),
            ClientMessage::Call { seq, deadline, call } => {
                self.called(now, shard, *seq, *deadline, call);
            }
            ClientMessage::Filling { generation, .. }
            | ClientMessage::Installed { generation, .. } => {
                self.generations.insert(shard, *generation);
            }
            ClientMessage::Prepared { seq, attempt, generation, .. } => {
                self.generations.insert(shard, *generation);
                if let Some(reading) = self.reading(group, (*seq, *attempt)) {
                    reading.unread.remove(&who.shard);
                }
                self.reads.retain(|_, reading| !reading.unread.is_empty());
            }
            ClientMessage::ReadFailed { seq, attempt, .. } => {
                let failed = self.reading(group, (*seq, *attempt)).map(|read| read.sources.clone());
                // One of the sources is cut off: its own reads and all reads from it are over.
                failed.into_iter().flatten().for_each(|source| self.ended(source));
                if self.reading(group, (*seq, *attempt)).is_some() {
                    self.reads.remove(&group);
                }
            }
            ClientMessage::Close { .. } => {
                self.closing.insert(group);
                self.ended(group);
            }
            _ => {}
        }
    }

    fn announced(&mut self, shard: GroupShard, announcement: &Announcement) {
        self.generations.insert(shard, announcement.generation);
        let export = announcement.registration.map(|registration| registration.export);
        self.exports.extend(export.map(|export| (export, shard)));
    }

    fn called(&mut self, now: Time, shard: GroupShard, seq: OpSeq, allowed: Span, call: &Call) {
        let group = shard.0;
        let again = self.called.insert(shard, seq) == Some(seq);
        self.again = again.then_some(shard);
        let until = at_least(now, allowed);
        let deadline = self.deadlines.entry((group, seq)).or_insert(until);
        *deadline = (*deadline).min(until);
        let deadline = *deadline;
        let drained = at_least(now, self.drain_deadline);
        match call {
            Call::Register { export, .. } => {
                self.exports.insert(*export, shard);
            }
            Call::Publish { generation, .. } => {
                self.generations.insert(shard, *generation);
                self.drained.remove(&group);
            }
            Call::Unpublish => {
                let cut = deadline.min(drained);
                let drained = self.drained.entry(group).or_insert(cut);
                *drained = (*drained).min(cut);
            }
            Call::Replicate { .. } => {
                self.drained.remove(&group);
            }
            Call::Update { .. } => {
                self.updating.entry(group).or_insert(drained);
            }
            _ => {}
        }
        if self.reads.get(&group).is_some_and(|reading| reading.place.0 < seq) {
            self.reads.remove(&group);
        }
    }

    fn reading(&mut self, reader: Incarnation, place: (OpSeq, Attempt)) -> Option<&mut ToldToRead> {
        self.reads.get_mut(&reader).filter(|reading| reading.place == place)
    }

    /// A group is at its end, or its copy was refused: the group reads nothing any more, and its
    /// readers were moved.
    fn ended(&mut self, group: Incarnation) {
        self.reads.remove(&group);
        self.reads.retain(|_, reading| !reading.sources.contains(&group));
    }

    fn said(&mut self, now: Time, who: &Who, message: &ServerMessage) -> Option<String> {
        let group = who.incarnation?;
        match message {
            ServerMessage::Assigned { seq, attempt, assignment, .. } => {
                return self.assigned(who, (*seq, *attempt), assignment);
            }
            ServerMessage::Answered { seq, result } => {
                if self.reads.get(&group).is_some_and(|reading| reading.place.0 <= *seq) {
                    self.reads.remove(&group);
                }
                self.updating.remove(&group);
                match result {
                    Ok(Answer::Unpublished) => return self.unpublished(now, group, *seq),
                    Ok(Answer::Committed { .. }) => self.drained.remove(&group),
                    _ => None,
                };
            }
            ServerMessage::Install { .. } => {
                self.reads.remove(&group);
            }
            ServerMessage::Fenced { .. }
            | ServerMessage::Broken { .. }
            | ServerMessage::Refused { retry: false, .. }
            | ServerMessage::Closed => self.ended(group),
            _ => {}
        }
        None
    }

    fn assigned(
        &mut self,
        who: &Who,
        place: (OpSeq, Attempt),
        assignment: &Assignment,
    ) -> Option<String> {
        let reader = who.incarnation?;
        let repeats = self.again == Some((reader, who.shard));
        let known = self.reads.get(&reader).map(|reading| reading.place);
        if repeats || known >= Some(place) {
            return None;
        }
        let owner = |export: &ExportId| self.exports.get(export).map(|(group, _)| *group);
        let sources = assignment.shards.iter().filter_map(|shard| owner(&shard.export)).collect();
        let unread = (0..who.num_shards).collect();
        let gone = assignment.shards.iter().find(|shard| {
            self.gone.get(&shard.export).is_some_and(|gone| *gone >= shard.generation)
        });
        let copies = assignment.shards.iter().map(|shard| (shard.export, shard.generation));
        let copies = copies.collect();
        if !self.seeds.contains(&who.process) {
            self.reads.insert(reader, ToldToRead { place, sources, copies, unread });
        }
        let source = &assignment.replica;
        gone.map(|_| format!("{reader} is told to read from {source}, which has unpublished"))
    }

    fn unpublished(&mut self, now: Time, group: Incarnation, seq: OpSeq) -> Option<String> {
        if self.unpublished.insert(group, seq) >= Some(seq) {
            return None;
        }
        let own = self.exports.iter().filter(|(_, (of, _))| *of == group);
        let gone = own.filter_map(|(export, shard)| Some((*export, *self.generations.get(shard)?)));
        let gone: Vec<_> = gone.collect();
        self.gone.extend(gone);
        let cut = self.drained.remove(&group)?; // it was told before
        let reads = |(reader, reading): &(&Incarnation, &ToldToRead)| {
            self.reads_copy(reading, group) && self.must_read(now, **reader, reading, group)
        };
        let left = self.reads.iter().filter(|_| now < cut).find(reads);
        let left = left.map(|(reader, _)| *reader);
        self.reads.retain(|_, reading| !reading.sources.contains(&group));
        left.map(|reader| format!("{group} has unpublished, and {reader} reads from it"))
    }

    /// Whether the assignment names the group's current copy. The server has already let go of the
    /// readers of an older copy.
    fn reads_copy(&self, reading: &ToldToRead, group: Incarnation) -> bool {
        reading.copies.iter().any(|(export, generation)| {
            let shard = self.exports.get(export).filter(|shard| shard.0 == group);
            shard.is_some_and(|shard| self.generations.get(shard) <= Some(generation))
        })
    }

    /// Whether the server must believe that `reader` reads its assignment: `reader` is in time and
    /// not silent, and none of its sources besides `source` may have been cut off.
    fn must_read(
        &self,
        now: Time,
        reader: Incarnation,
        reading: &ToldToRead,
        source: Incarnation,
    ) -> bool {
        let in_time = self.deadlines.get(&(reader, reading.place.0)).is_some_and(|at| now < *at);
        let cut = |source: &Incarnation| {
            let until = [self.drained.get(source), self.updating.get(source)];
            let drained = until.into_iter().flatten().any(|cut| *cut <= now);
            drained || self.closing.contains(source) || self.is_silent(now, *source)
        };
        let mut others = reading.sources.iter().filter(|other| **other != source);
        let moved = reading.sources.len() > 1 && self.is_unlinked(reader);
        let heard = !self.is_silent(now, reader) && !self.is_unheard(now, reader);
        in_time && heard && !moved && !others.any(cut)
    }

    /// Whether the server may have heard nothing of a group's shard for so long that no source waits for the group.
    fn is_unheard(&self, now: Time, group: Incarnation) -> bool {
        let patience = Span(self.lease.0 / 10);
        let mut shards = self.unlinked.range((group, 0)..=(group, u32::MAX));
        shards.any(|(_, since)| at_least(*since, patience) <= now)
    }

    fn is_unlinked(&self, group: Incarnation) -> bool {
        self.unlinked.range((group, 0)..=(group, u32::MAX)).next().is_some()
    }

    fn is_silent(&self, now: Time, group: Incarnation) -> bool {
        let shards = self.renewed.range((group, 0)..=(group, u32::MAX));
        shards.into_iter().any(|(_, renewed)| *renewed + Span(self.lease.0 / 2) < now)
    }
}

/// The earliest end of a span, by a clock that runs fast.
fn at_least(now: Time, span: Span) -> Time {
    now + Span(span.0 / 10 * 9)
}

impl Checker for NobodyLeft {
    fn name(&self) -> &'static str {
        "S9"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                self.heard(now, who, message);
                None
            }
            Fact::Said { who, message, .. } => self.said(now, who, message),
            Fact::Unlinked { who, .. } => {
                if let Some(group) = who.incarnation {
                    self.unlinked.entry((group, who.shard)).or_insert(now);
                }
                None
            }
            _ => None,
        }
    }
}

/// A shard gives nothing of what it had, once its `unpublish` has returned.
#[derive(Default)]
pub(in crate::checkers) struct NoLateReads {
    /// The last generation at which each shard was served.
    given: BTreeMap<(usize, Incarnation), Generation>,
    /// The last generation that each shard has unpublished.
    gone: BTreeMap<(usize, Incarnation), Generation>,
}

impl Checker for NoLateReads {
    fn name(&self) -> &'static str {
        "S9"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Exposed { who, generation } => {
                self.given.insert((who.process, who.incarnation?), *generation);
            }
            Fact::Done { who, result: Ok(Answer::Unpublished), .. } => {
                let shard = (who.process, who.incarnation?);
                self.gone.extend(self.given.get(&shard).map(|generation| (shard, *generation)));
            }
            Fact::Gave { who, generation } => {
                let shard = (who.process, who.incarnation?);
                let given = self.given.entry(shard).or_insert(*generation);
                *given = (*given).max(*generation);
                let gone = self.gone.get(&shard).is_some_and(|gone| generation <= gone);
                return gone.then(|| {
                    let (group, shard) = (shard.1, who.shard);
                    format!("shard {shard} of {group} gives generation {generation}, unpublished")
                });
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
#[path = "left_tests.rs"]
mod tests;
