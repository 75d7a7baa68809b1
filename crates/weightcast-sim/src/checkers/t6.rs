//! T6: no claim about a past is believed. Terms grow by steps of servers, epochs by runs that a
//! server began; every listed version was published; and no group takes another group's place.

use std::collections::BTreeSet;
use std::rc::Rc;

use weightcast_protocol::Time;
use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, Snapshot};

use super::{Checker, Fact};
use crate::parts::pretender::ADDRESS;

#[derive(Default)]
pub(super) struct ProvedPast {
    /// The latest step of a term that a server has reached.
    step: u64,
    /// The newest epoch that a server has reached.
    epoch: u64,
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
        books.models.values().find_map(|model| self.model(model))
    }

    fn model(&mut self, model: &ModelSnapshot) -> Option<String> {
        let epoch = model.epoch.0;
        if epoch > self.epoch + 1 {
            return Some(format!("epoch {epoch} comes after {}", self.epoch));
        }
        self.epoch = self.epoch.max(epoch);
        let unheard = |version: &&weightcast_protocol::Version| {
            version.epoch.0 > self.epoch || !self.published.contains(&version.number)
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
