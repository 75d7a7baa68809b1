//! A5: for two leases after a takeover, copies may exist that the new server does not know yet. In
//! this recovery window the server lets no group give up the only copy that it knows.

use std::collections::BTreeSet;
use std::rc::Rc;

use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact};
use crate::books::retained::same_life;

pub(super) struct RecoveryWindow {
    lease: Span,
    /// When the recovery window was first seen open: clients may still come over from an earlier
    /// term.
    since: Option<Time>,
    /// The books before the event.
    before: Option<Rc<Snapshot>>,
    /// Groups whose copy is refused in this event.
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
            // A copy that its digests refuse in the same event never was one of the version.
            Fact::Said { who, message: ServerMessage::Fenced { .. }, .. } => {
                self.fenced.extend(who.incarnation);
                None
            }
            _ => None,
        }
    }
}

/// A group that gave up a copy between these books although the books show no other copy.
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
        // The order within the event is not seen. Another listed copy may have gone after this one
        // (`listed`). Another copy may have been unlisted after this one, when its holder began to
        // give it up too; that holder keeps the copy now (`kept`).
        let listed =
            before.versions.get(&version).is_some_and(|n| n.iter().any(|n| *n != old.name));
        let kept = after
            .replicas
            .iter()
            .any(|other| other.incarnation != old.incarnation && copy(other) == Some(version));
        // Another copy may have been listed again when its holder lost its source, just before the
        // holder's own group broke: a server that wakes ends many leases in one event (seed 37583).
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

/// The version of a replica's copy, as far as the books show one.
fn copy(replica: &ReplicaSnapshot) -> Option<Version> {
    let none = [ReplicaState::Fenced, ReplicaState::Closing, ReplicaState::Broken];
    replica.version.filter(|_| !none.contains(&replica.state))
}
