//! T6: no claim about a past is believed. Terms grow by steps of servers, epochs by runs that a
//! server began in its term; every listed version was published; and no group takes another group's place.

use std::collections::BTreeSet;
use std::rc::Rc;

use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, Snapshot};
use weightcast_protocol::{Epoch, Time, Version};

use super::{Checker, Fact};
use crate::parts::pretender::ADDRESS;

#[derive(Default)]
pub(super) struct ProvedPast {
    /// The latest step of a term that a server has reached.
    step: u64,
    /// The newest epoch that a server has reached.
    epoch: Epoch,
    /// Version numbers of all `publish` calls.
    published: BTreeSet<u64>,
}

impl Checker for ProvedPast {
    fn name(&self) -> &'static str {
        "T6"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { message: ClientMessage::Call { call, .. }, .. } => {
                if let Call::Publish { version, .. } = call {
                    self.published.insert(*version);
                }
                None
            }
            Fact::Books(books) => self.books(books),
            _ => None,
        }
    }
}

impl ProvedPast {
    fn books(&mut self, books: &Rc<Snapshot>) -> Option<String> {
        let step = books.term.step();
        if step > self.step + 1 {
            return Some(format!("a server acts in a term of step {step} after {}", self.step));
        }
        self.step = self.step.max(step);
        books.models.values().find_map(|model| self.model(step, model))
    }

    /// `step` is that of the server's term: in each, runs begin anew.
    fn model(&mut self, step: u64, model: &ModelSnapshot) -> Option<String> {
        let epoch = model.epoch;
        if epoch > self.epoch.next() && epoch.step() != step {
            return Some(format!("epoch {epoch} comes after {} at step {step}", self.epoch));
        }
        self.epoch = self.epoch.max(epoch);
        let unheard = |version: &&Version| {
            version.epoch > self.epoch || !self.published.contains(&version.number)
        };
        if let Some(version) = model.versions.keys().find(unheard) {
            return Some(format!("version {version} is listed, and nobody published it"));
        }
        let taken = model.replicas.iter().find(|replica| is_taken(replica))?;
        Some(format!("a shard of {} is not its own", taken.name))
    }
}

fn is_taken(replica: &ReplicaSnapshot) -> bool {
    let pretends = replica.shards.iter().any(|shard| shard.data_address == ADDRESS);
    pretends && !replica.name.starts_with(ADDRESS)
}
