//! W1: the condition of a `wait` held at the revision of its answer, and no `wait` outlasts its
//! condition becoming true.

mod woken;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use weightcast_protocol::message::{Answer, Call, ClientMessage, Listing, Role, ServerMessage};
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{
    Condition, Freshness, Incarnation, Oldest, OpSeq, Quorum, Revision, Time, Version,
};

pub(super) use woken::Woken;

use super::{Checker, Fact};

/// The model between two events: its revision, and the rollouts that count, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    revision: Revision,
    rollouts: BTreeSet<String>,
}

#[derive(Default)]
pub(super) struct Conditions {
    waits: BTreeMap<(Incarnation, OpSeq), Condition>,
    before: Option<Rc<Snapshot>>,
    /// The model before and after each event with a running `wait`; repetitions are left out.
    events: Vec<[Moment; 2]>,
    /// Answers of the current event; its books come after them.
    said: Vec<(Freshness, Arc<Listing>)>,
}

impl Checker for Conditions {
    fn name(&self) -> &'static str {
        "W1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, call, .. }, .. } => {
                let incarnation = who.incarnation?;
                // A shard makes its next call only after the answer, so its earlier `wait` is over.
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
                // The listing says which replicas hold the version; the books of this event say
                // which had to.
                self.said.push((held, Arc::clone(listing)));
                true
            }
        };
        (!holds).then(|| format!("wait({until}) was answered at revision {}", listing.revision))
    }

    fn books(&mut self, books: &Rc<Snapshot>) -> Option<String> {
        let before = self.before.replace(Rc::clone(books));
        if self.waits.is_empty() {
            return None;
        }
        let after = moment(books)?;
        let before = before.as_deref().and_then(moment).unwrap_or_else(|| after.clone());
        let known = self.events.last().is_some_and(|[_, now]| *now == before && *now == after);
        if !known {
            self.events.push([before, after]);
        }
        let wrong = std::mem::take(&mut self.said).into_iter().find(|(held, listing)| {
            let revisions = |[a, b]: &&[Moment; 2]| {
                a.revision <= listing.revision && listing.revision <= b.revision
            };
            !self.events.iter().filter(revisions).any(|event| held_within(event, held, listing))
        });
        wrong.map(|(held, listing)| {
            format!("wait({held}) was answered at revision {}", listing.revision)
        })
    }
}

fn moment(books: &Snapshot) -> Option<Moment> {
    let model = books.models.values().next()?;
    let counted = model.replicas.iter().filter(|replica| counts(replica));
    let rollouts = counted.map(|replica| replica.name.clone()).collect();
    Some(Moment { revision: model.revision, rollouts })
}

fn counts(replica: &ReplicaSnapshot) -> bool {
    let over = matches!(replica.state, ReplicaState::Closing | ReplicaState::Broken);
    let registered = replica.shards.iter().filter(|shard| shard.bytes.is_some()).count();
    replica.role == Role::Rollout && !over && registered == replica.num_shards as usize
}

/// Whether a condition can have held at some point of an event. The order within the event is not
/// seen: a rollout that counted before and after it counted throughout, a rollout that counted at
/// one end may have counted. A server that was suspended may evict half of the rollouts in one
/// event, and answer between two of them.
fn held_within([before, after]: &[Moment; 2], held: &Freshness, listing: &Listing) -> bool {
    let Some(latest) = listing.versions.keys().next_back() else { return false };
    let oldest = match held.oldest {
        Oldest::Number(number) => number,
        Oldest::Behind(behind) => latest.number.saturating_sub(behind),
    };
    let new =
        listing.versions.iter().filter(|(v, _)| v.epoch == latest.epoch && v.number >= oldest);
    let holders: BTreeSet<&String> = new.flat_map(|(_, replicas)| replicas).collect();
    let mut counted = before.rollouts.union(&after.rollouts);
    let mut throughout = before.rollouts.intersection(&after.rollouts);
    match held.by {
        Quorum::All => {
            throughout.all(|rollout| holders.contains(rollout))
                && counted.any(|rollout| holders.contains(rollout))
        }
        Quorum::AtLeast(least) => {
            counted.filter(|rollout| holders.contains(rollout)).count() >= least as usize
        }
    }
}
