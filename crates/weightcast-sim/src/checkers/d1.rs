//! D1: no source has more readers than it may.

use std::collections::BTreeMap;

use weightcast_protocol::Time;

use super::{Checker, Fact};

pub(super) struct Fanout(pub(super) u32);

impl Checker for Fanout {
    fn name(&self) -> &'static str {
        "D1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        snapshot.models.values().find_map(|model| {
            let mut readers = BTreeMap::<(&str, _, _), u32>::new();
            for edge in &model.edges {
                *readers.entry((&edge.source, edge.source_life, edge.version)).or_default() += 1;
            }
            let crowded = readers.into_iter().find(|(_, count)| *count > self.0);
            crowded.map(|((source, ..), count)| format!("{source} has {count} readers"))
        })
    }
}
