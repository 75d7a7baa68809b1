//! W1: what a `wait` waited for held at the revision with which it was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weightcast_protocol::message::{Answer, Call, ClientMessage, Listing, Role, ServerMessage};
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{
    Condition, Held, Incarnation, Oldest, OpSeq, Quorum, Revision, Time, Version,
};

use super::{Checker, Fact};

/// Names of the rollouts that count.
type Rollouts = BTreeSet<String>;

#[derive(Default)]
pub(super) struct Conditions {
    waits: BTreeMap<(Incarnation, OpSeq), Condition>,
    /// The rollouts that counted while a revision was the newest, in order.
    rollouts: BTreeMap<Revision, Vec<Rollouts>>,
    /// Said by the event whose books are still to be seen.
    said: Vec<(Held, Arc<Listing>)>,
}

impl Checker for Conditions {
    fn name(&self) -> &'static str {
        "W1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, call, .. }, .. } => {
                let incarnation = who.incarnation?;
                // A shard goes on only after its answer.
                self.waits.remove(&(incarnation, OpSeq(seq.0.saturating_sub(1))));
                let Call::Wait { until } = call else { return None };
                self.waits.insert((incarnation, *seq), *until);
                None
            }
            Fact::Said { who, message: ServerMessage::Answered { seq, result }, .. } => {
                let until = self.waits.get(&(who.incarnation?, *seq))?;
                let Ok(Answer::Listed(listing)) = result else { return None };
                self.answered(*until, listing)
            }
            Fact::Books(books) => self.books(books),
            _ => None,
        }
    }
}

impl Conditions {
    fn answered(&mut self, until: Condition, listing: &Arc<Listing>) -> Option<String> {
        let holds = match until {
            Condition::Changed { after } => listing.revision > after,
            Condition::Available(selector) => {
                let available: Vec<Version> = listing.versions.keys().copied().collect();
                selector.pick(&available).is_some()
            }
            Condition::Held(held) => {
                // The listing says what is held; the books will say by whom it had to be.
                self.said.push((held, Arc::clone(listing)));
                true
            }
        };
        (!holds).then(|| format!("wait({until}) was answered at revision {}", listing.revision))
    }

    fn books(&mut self, books: &Snapshot) -> Option<String> {
        if self.waits.is_empty() {
            return None;
        }
        let model = books.models.values().next()?;
        let counted = model.replicas.iter().filter(|replica| counts(replica));
        let counted: Rollouts = counted.map(|replica| replica.name.clone()).collect();
        let moments = self.rollouts.entry(model.revision).or_default();
        if moments.last() != Some(&counted) {
            moments.push(counted);
        }
        let wrong = std::mem::take(&mut self.said).into_iter().find(|(held, listing)| {
            !self.around(listing.revision).any(|r| holds(held, listing, r))
        });
        wrong.map(|(held, listing)| {
            format!("wait({held}) was answered at revision {}", listing.revision)
        })
    }

    /// The rollouts that counted at some moment of a revision, or just before or after it: an
    /// event may pass through a revision.
    fn around(&self, revision: Revision) -> impl Iterator<Item = &Rollouts> {
        let before = self.rollouts.range(..revision).next_back();
        let since = self.rollouts.range(revision..).take(2);
        before.into_iter().chain(since).flat_map(|(_, moments)| moments)
    }
}

fn counts(replica: &ReplicaSnapshot) -> bool {
    let over = matches!(replica.state, ReplicaState::Closing | ReplicaState::Broken);
    let registered = replica.shards.iter().filter(|shard| shard.bytes.is_some()).count();
    replica.role == Role::Rollout && !over && registered == replica.num_shards as usize
}

fn holds(held: &Held, listing: &Listing, rollouts: &Rollouts) -> bool {
    let Some(latest) = listing.versions.keys().next_back() else { return false };
    let oldest = match held.oldest {
        Oldest::Number(number) => number,
        Oldest::Behind(behind) => latest.number.saturating_sub(behind),
    };
    let new =
        listing.versions.iter().filter(|(v, _)| v.epoch == latest.epoch && v.number >= oldest);
    let holders: BTreeSet<&String> = new.flat_map(|(_, replicas)| replicas).collect();
    let count = rollouts.iter().filter(|rollout| holders.contains(rollout)).count();
    match held.by {
        Quorum::All => count > 0 && count == rollouts.len(),
        Quorum::AtLeast(least) => count >= least as usize,
    }
}
