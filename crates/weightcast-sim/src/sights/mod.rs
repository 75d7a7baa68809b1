//! Finds the coverage points that show in messages and in the server's books.

pub(crate) mod coverage;
pub(crate) mod failover;
pub(crate) mod seeds;
pub(crate) mod staging;
pub(crate) mod striping;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weightcast_protocol::message::{Answer, Call, ClientMessage, ReadFailure, Role, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{
    Attempt, CallError, Condition, Epoch, Freshness, Incarnation, Oldest, OpSeq, Quorum, Revision,
    Term, Version,
};

use crate::checkers::{Fact, Who};
use crate::sights::coverage::{Point, Points};
use crate::sights::staging::StagingSights;
use crate::sights::striping::StripingSights;

/// What must be remembered to recognise a point.
#[derive(Debug, Default)]
pub(crate) struct Sights {
    books: Option<Rc<Snapshot>>,
    calls: BTreeMap<(Incarnation, OpSeq), Called>,
    attempts: BTreeMap<(Incarnation, OpSeq), Attempt>,
    staging: StagingSights,
    striping: StripingSights,
    /// The source that a reader has just accused.
    accused: Option<String>,
    held: BTreeMap<(Incarnation, u32), Version>,
    released: BTreeMap<(Incarnation, u32), Version>,
}

/// A group's call.
#[derive(Debug)]
struct Called {
    call: Call,
    shards: BTreeSet<u32>,
    /// The server's count of publishes when the first shard called.
    publishes: u64,
    /// The model's revision when the first shard called.
    revision: Option<Revision>,
}

impl Sights {
    pub(crate) fn observe(&mut self, fact: &Fact<'_>, points: &mut Points) {
        self.staging.observe(fact, points);
        self.striping.observe(fact, points);
        match fact {
            Fact::Heard { who, message, .. } => self.heard(who, message, points),
            Fact::Said { who, message, .. } => self.said(who, message, points),
            Fact::Books(after) => self.books(after, points),
            Fact::Done { who, seq, result: Ok(answer), .. } => {
                self.ended(who, *seq, answer, points)
            }
            Fact::Done { who, seq, result: Err(error), .. } => {
                self.failed(who, *seq, error, points)
            }
            Fact::ReadEnded { who, failure: None } if self.is_gone(who) => {
                points.insert(Point::ZombieFinishedReading);
            }
            Fact::ReadEnded { failure: Some(failure), .. } if failure.contains("not served") => {
                points.insert(Point::RefusedBySourceFence);
            }
            _ => {}
        }
    }

    fn replica(&self, who: &Who) -> Option<(&ModelSnapshot, &ReplicaSnapshot)> {
        let incarnation = who.incarnation?;
        self.books.as_ref()?.models.values().find_map(|model| {
            let own = model.replicas.iter().find(|r| r.incarnation == incarnation)?;
            Some((model, own))
        })
    }

    /// Whether versions of earlier runs are listed.
    fn lists_before(&self, run: Epoch) -> bool {
        let models = self.books.iter().flat_map(|books| books.models.values());
        models.flat_map(|model| model.versions.keys()).any(|version| version.epoch < run)
    }

    /// Whether the server has given up the shard's group.
    fn is_gone(&self, who: &Who) -> bool {
        let state = self.replica(who).map(|(_, replica)| replica.state);
        state.is_none_or(|state| state == ReplicaState::Broken)
    }

    fn heard(&mut self, who: &Who, message: &ClientMessage, points: &mut Points) {
        let Some(incarnation) = who.incarnation else { return };
        match message {
            ClientMessage::Call { seq, call, .. } => {
                let publishes = self.books.as_ref().map_or(0, |books| books.counters.publishes);
                let revision = self.replica(who).map(|(model, _)| model.revision);
                let new =
                    || Called { call: call.clone(), shards: BTreeSet::new(), publishes, revision };
                let called = self.calls.entry((incarnation, *seq)).or_insert_with(new);
                if !called.shards.insert(who.shard) {
                    points.insert(Point::CallRepeated);
                }
            }
            ClientMessage::Prepared { seq, attempt, .. } => {
                let newest = self.attempts.get(&(incarnation, *seq));
                if newest.is_some_and(|newest| newest > attempt) {
                    points.insert(Point::ReportOfOldAttempt);
                }
                let Some((model, own)) = self.replica(who) else { return };
                let waits = own.pending.as_ref().is_some_and(|pending| pending.seq == *seq);
                if waits && model.edges.iter().all(|edge| edge.reader != own.name) {
                    points.insert(Point::RefusedByCommitFence);
                }
            }
            ClientMessage::ReadFailed { failure: ReadFailure::Source { .. }, .. } => {
                self.accused = self.replica(who).and_then(|(model, own)| {
                    let edge = model.edges.iter().find(|edge| edge.reader == own.name)?;
                    Some(edge.source.clone())
                });
            }
            _ => {}
        }
    }

    fn said(&mut self, who: &Who, message: &ServerMessage, points: &mut Points) {
        let Some(incarnation) = who.incarnation else { return };
        match message {
            ServerMessage::Refused { error: CallError::GroupBroken { .. }, .. } => {
                points.insert(Point::RefusedAfterEviction);
            }
            ServerMessage::Opened { ticket, .. } if self.lists_before(ticket.epoch) => {
                points.insert(Point::EpochRaised);
            }
            ServerMessage::Assigned { seq, attempt, .. } => {
                self.attempts.insert((incarnation, *seq), *attempt);
                if attempt.0 > 1 {
                    points.insert(Point::SourceReplaced);
                }
            }
            ServerMessage::Answered { seq, result: Ok(answer) } => {
                self.answered((incarnation, *seq), answer, points);
            }
            _ => {}
        }
    }

    fn answered(&self, place: (Incarnation, OpSeq), answer: &Answer, points: &mut Points) {
        let Some(called) = self.calls.get(&place) else { return };
        let publishes = self.books.as_ref().map_or(0, |books| books.counters.publishes);
        match (answer, &called.call) {
            (Answer::Listed(listing), Call::Wait { until }) => match until {
                Condition::Changed { after } if listing.revision > *after => {
                    points.insert(Point::WaitWoken);
                }
                // The call had to wait: the revision has changed since it was made.
                _ if Some(listing.revision) > called.revision => {
                    points.extend(waited_for(until));
                }
                _ => {}
            },
            (Answer::Listed(_), Call::List) | (Answer::Unchanged { .. }, _)
                if publishes > called.publishes =>
            {
                points.insert(Point::AnswerFromRecord);
            }
            (Answer::Committed { source, .. }, _) => {
                if source.contains("~offload") {
                    points.insert(Point::ReadFromOffload);
                } else if source.starts_with("rollout") {
                    points.insert(Point::CommittedFromRollout);
                }
                if self.attempts.get(&place).is_some_and(|attempt| attempt.0 > 1) {
                    points.insert(Point::CommittedAfterSourceLoss);
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, who: &Who, seq: OpSeq, answer: &Answer, points: &mut Points) {
        let Some(incarnation) = who.incarnation else { return };
        let shard = (incarnation, who.shard);
        match answer {
            Answer::Published { version } => {
                if self.released.get(&shard) == Some(version) {
                    points.insert(Point::RepublishedSameVersion);
                }
                self.held.insert(shard, *version);
            }
            Answer::Committed { version, .. } => {
                let before = self.held.insert(shard, *version);
                let before = before.filter(|_| self.is_update((incarnation, seq)));
                if before.is_some_and(|b| version.epoch > b.epoch && version.number < b.number) {
                    points.insert(Point::NumberRegressed);
                }
                if before.is_some_and(|before| *version < before) {
                    points.insert(Point::RolledBack);
                }
            }
            Answer::Unpublished => {
                let held = self.held.remove(&shard);
                held.map(|version| self.released.insert(shard, version));
            }
            _ => {}
        }
    }

    fn is_update(&self, place: (Incarnation, OpSeq)) -> bool {
        matches!(self.calls.get(&place), Some(Called { call: Call::Update { .. }, .. }))
    }

    fn failed(&self, who: &Who, seq: OpSeq, error: &CallError, points: &mut Points) {
        let called = who.incarnation.and_then(|group| self.calls.get(&(group, seq)));
        let publishes = called.is_some_and(|called| matches!(called.call, Call::Publish { .. }));
        match error {
            CallError::Timeout { waiting_for, .. } if waiting_for.ends_with("to call") => {
                points.insert(Point::ShardMissing);
            }
            CallError::GroupBroken { reason, .. } if reason.contains("calls ahead") => {
                points.insert(Point::TooFarAhead);
            }
            CallError::GroupBroken { .. } if publishes => {
                points.insert(Point::PublishBroken);
            }
            _ => {}
        }
    }

    fn books(&mut self, after: &Rc<Snapshot>, points: &mut Points) {
        // Servers of earlier terms are left to the points of failover.
        if after.term < self.books.as_ref().map_or(Term(1), |books| books.term) {
            return;
        }
        let counters = &after.counters;
        let counted = [
            (counters.drains_cut, Point::DrainDeadlineCut),
            (counters.left_behind, Point::ReaderLeftBehind),
            (counters.fenced, Point::ContentFenced),
            (counters.digest_mismatches, Point::RefusedByDigest),
            (counters.relays, Point::ReadInFlight),
            (counters.resumes, Point::ReadResumed),
            (counters.unstriped, Point::Unstriped),
            (counters.joined, Point::HelperJoined),
            (counters.crossings, Point::VersionCrossed),
            (counters.skips, Point::UpdateSkipped),
            (counters.offloads, Point::OffloadMade),
            (counters.offloads_released, Point::OffloadReleased),
            (counters.retention_lost, Point::RetentionLost),
        ];
        points.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(_, point)| *point));
        let before = self.books.replace(after.clone()).filter(|b| b.term == after.term);
        let accused = self.accused.take();
        for (name, model) in &after.models {
            let old = before.as_ref().and_then(|before| before.models.get(name));
            model_points(old, model, points);
            if let Some(accused) = &accused
                && model.versions.values().any(|holders| holders.contains(accused))
            {
                points.insert(Point::AccusationIgnored);
            }
        }
    }
}

fn model_points(before: Option<&ModelSnapshot>, model: &ModelSnapshot, points: &mut Points) {
    retention_points(model, points);
    for edge in &model.edges {
        let source = model.replicas.iter().rfind(|replica| replica.name == edge.source);
        match source.map(|source| source.state) {
            Some(ReplicaState::Draining) => points.insert(Point::DrainWaited),
            Some(ReplicaState::Published) => points.insert(Point::ReadBeforeSeal),
            Some(ReplicaState::Closing) => points.insert(Point::ClosedWhileRead),
            _ => false,
        };
    }
    let sealed = model.replicas.iter().filter(|r| r.state == ReplicaState::Sealed);
    let mut trainers = sealed.filter(|replica| replica.role == Role::Trainer);
    let first = trainers.next().and_then(|replica| replica.version);
    if first.is_some() && trainers.any(|replica| replica.version == first) {
        points.insert(Point::VersionJoined);
    }
    for replica in &model.replicas {
        let same = |old: &&ReplicaSnapshot| old.incarnation == replica.incarnation;
        let old = before.and_then(|before| before.replicas.iter().find(same));
        match (old.map(|old| old.state), replica.state) {
            (Some(ReplicaState::Reading), ReplicaState::Broken) => {
                points.insert(Point::LostWhileReading);
            }
            (Some(ReplicaState::Draining), ReplicaState::Sealed | ReplicaState::Published) => {
                points.insert(Point::CopyShownAgain);
            }
            _ => {}
        }
    }
}

fn retention_points(model: &ModelSnapshot, points: &mut Points) {
    let retained = model.versions.iter().rev().take(model.retain as usize);
    for (_, holders) in retained {
        let spot = |replica: &ReplicaSnapshot| replica.shards.iter().any(|s| s.location.spot);
        let held = model.replicas.iter().filter(|replica| holders.contains(&replica.name));
        if held.clone().count() > 0 && held.into_iter().all(spot) {
            points.insert(Point::OnlySpotLeft);
        }
    }
    let draining = model.replicas.iter().filter(|r| r.state == ReplicaState::Draining);
    let mut going: Vec<Version> = draining.filter_map(|replica| replica.version).collect();
    going.sort();
    let newest = model.versions.keys().max();
    let last = |v: &Version| !model.versions.contains_key(v) && newest.is_none_or(|n| v > n);
    if model.retain > 0 && going.windows(2).any(|pair| pair[0] == pair[1] && last(&pair[0])) {
        points.insert(Point::LastCopiesRaced);
    }
}

/// The point of a `wait` whose condition came true while the call waited.
fn waited_for(until: &Condition) -> Option<Point> {
    match until {
        Condition::Changed { .. } => None,
        Condition::Available(_) => Some(Point::WaitedForVersion),
        Condition::Held(Freshness { by: Quorum::AtLeast(_), .. }) => Some(Point::WaitedForSome),
        Condition::Held(Freshness { oldest: Oldest::Number(_), .. }) => {
            Some(Point::WaitedForLaggards)
        }
        Condition::Held(Freshness { oldest: Oldest::Behind(_), .. }) => Some(Point::WaitedForFresh),
    }
}
