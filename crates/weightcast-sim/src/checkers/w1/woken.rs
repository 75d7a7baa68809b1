//! W1: a `wait` is answered in the event in which its condition becomes true. The event may be the
//! end of a recovery window, and the `wait` may come from an earlier term.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Condition, Incarnation, OpSeq, Quorum, Time, Version};

use super::super::{Checker, Fact};
use super::counts;

#[derive(Default)]
pub(crate) struct Woken {
    /// The last `wait` of each group, and its condition.
    waits: BTreeMap<Incarnation, (OpSeq, Condition)>,
}

impl Checker for Woken {
    fn name(&self) -> &'static str {
        "W1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, call, .. }, .. } => {
                if let Call::Wait { until } = call {
                    self.waits.insert(who.incarnation?, (*seq, *until));
                }
                None
            }
            Fact::Books(books) => books.models.values().find_map(|model| self.left(books, model)),
            _ => None,
        }
    }
}

impl Woken {
    /// A group that still waits although its condition holds.
    fn left(&self, books: &Snapshot, model: &ModelSnapshot) -> Option<String> {
        let waits = |replica: &&ReplicaSnapshot| {
            let over = matches!(replica.state, ReplicaState::Closing | ReplicaState::Broken);
            let all = replica.pending.as_ref().filter(|p| p.arrived == replica.num_shards as usize);
            let asked = self.waits.get(&replica.incarnation);
            asked.zip(all).is_some_and(|((seq, until), pending)| {
                !over && pending.seq == *seq && holds(books, model, until)
            })
        };
        let left = model.replicas.iter().find(waits)?;
        let (_, until) = self.waits.get(&left.incarnation)?;
        Some(format!("{} still waits, though it is so: {until}", left.name))
    }
}

fn holds(books: &Snapshot, model: &ModelSnapshot, until: &Condition) -> bool {
    match until {
        Condition::Changed { after } => model.revision > *after,
        Condition::Available(selector) => {
            let available: Vec<Version> = model.versions.keys().copied().collect();
            selector.pick(&available).is_some()
        }
        // A wait for all rollouts is not answered in the recovery window: rollouts may still come
        // over.
        Condition::Held(held) if books.recovers && held.by == Quorum::All => false,
        Condition::Held(held) => {
            let rollouts = model.replicas.iter().filter(|replica| counts(replica));
            let listed = |replica: &ReplicaSnapshot| {
                let holders = model.versions.get(&replica.version?)?;
                holders.contains(&replica.name).then_some(replica.version?)
            };
            held.is_met(model.versions.keys().next_back().copied(), rollouts.map(listed))
        }
    }
}
