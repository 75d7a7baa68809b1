//! A5: for two leases after a server took over, what it does not know may exist: it lets nobody give
//! up the only copy of a version that it knows.

use std::collections::BTreeSet;
use std::rc::Rc;

use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact};
use crate::books::retained::same_life;

pub(super) struct RecoveryWindow {
    lease: Span,
    /// Since when it may know less than there is; set by what comes from an earlier term.
    since: Option<Time>,
    /// As it was before the event.
    before: Option<Rc<Snapshot>>,
    /// Groups that are told in this event that their content is not the version's.
    fenced: BTreeSet<Incarnation>,
}

impl RecoveryWindow {
    pub(super) fn new(lease: Span) -> Self {
        Self { lease, since: None, before: None, fenced: BTreeSet::new() }
    }
}

impl Checker for RecoveryWindow {
    fn name(&self) -> &'static str {
        "A5"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Books(after) => {
                let before = self.before.replace(Rc::clone(after));
                let fenced = std::mem::take(&mut self.fenced);
                let since = self.since.filter(|since| now < *since + self.lease.scaled(2, 1));
                if after.recovers {
                    self.since.get_or_insert(now);
                }
                let (before, late) = (before?, (now - since?).0 / 1_000_000);
                let lost = after
                    .models
                    .iter()
                    .find_map(|(name, model)| given_up(before.models.get(name)?, model, &fenced));
                lost.map(|lost| format!("{lost}, {late} ms after the server took over"))
            }
            // A digest that comes in may say in the same event that it was no copy of the version.
            Fact::Said { who, message: ServerMessage::Fenced { .. }, .. } => {
                self.fenced.extend(who.incarnation);
                None
            }
            _ => None,
        }
    }
}

/// Who has given up a copy in the event between these books that nobody else has.
fn given_up(
    before: &ModelSnapshot,
    after: &ModelSnapshot,
    fenced: &BTreeSet<Incarnation>,
) -> Option<String> {
    before.replicas.iter().filter(|old| !fenced.contains(&old.incarnation)).find_map(|old| {
        let version = copy(old)?;
        let now = same_life(after, old.incarnation)?;
        let gone = matches!(now.state, ReplicaState::Closing | ReplicaState::Broken);
        let gave_up = !gone && now.version != Some(version);
        // Within the event, the order is not seen: the other copy may have gone after this one. And
        // it may have been hidden after it, when its holder began to give it up as well: that one
        // keeps it now.
        let listed =
            before.versions.get(&version).is_some_and(|n| n.iter().any(|n| *n != old.name));
        let kept = after
            .replicas
            .iter()
            .any(|other| other.incarnation != old.incarnation && copy(other) == Some(version));
        // And it may have been shown again when its source was lost, before its own group was: a
        // server that wakes ends many leases in one event (seed 37583).
        let ended = |other: &ReplicaSnapshot| {
            let now = same_life(after, other.incarnation).map(|now| now.state);
            now.is_none_or(|now| now == ReplicaState::Broken)
        };
        let mut others = before.replicas.iter().filter(|o| o.incarnation != old.incarnation);
        let lost = others.any(|other| copy(other) == Some(version) && ended(other));
        let others = listed || kept || lost;
        (gave_up && !others).then(|| format!("{} gave up {version}", old.name))
    })
}

/// The version of which a replica has a copy, as far as anybody knows.
fn copy(replica: &ReplicaSnapshot) -> Option<Version> {
    let none = [ReplicaState::Fenced, ReplicaState::Closing, ReplicaState::Broken];
    replica.version.filter(|_| !none.contains(&replica.state))
}
