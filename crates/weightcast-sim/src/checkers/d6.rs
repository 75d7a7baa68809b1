//! D6: no chain of replicas that are being filled is longer than the depth limit.

use weightcast_protocol::Time;
use weightcast_protocol::server::{ModelSnapshot, ReadEdge};

use super::{Checker, Fact};

pub(super) struct Depth(pub(super) u32);

impl Checker for Depth {
    fn name(&self) -> &'static str {
        "D6"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        snapshot.models.values().find_map(|model| {
            let deep = model.edges.iter().find(|edge| depth(model, edge) > self.0 as usize);
            deep.map(|edge| format!("{} is {} sources deep", edge.reader, depth(model, edge)))
        })
    }
}

/// How many sources are above a reader in the chain of one version.
fn depth(model: &ModelSnapshot, edge: &ReadEdge) -> usize {
    let above = |edge: &&ReadEdge| {
        let mut edges = model.edges.iter();
        edges.find(|e| e.reader_life == edge.source_life && e.version == edge.version)
    };
    std::iter::successors(Some(edge), above).take(model.edges.len()).count()
}
