//! D1: a source has at most `fanout` readers of its own datacentre, and at most `fanout` readers
//! that cross, which may read for long.

use std::collections::BTreeMap;

use weightcast_protocol::Time;

use super::d3::datacentre;
use super::{Checker, Fact};

pub(super) struct Fanout(pub(super) u32);

impl Checker for Fanout {
    fn name(&self) -> &'static str {
        "D1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        snapshot.models.values().find_map(|model| {
            let mut readers = BTreeMap::<_, u32>::new();
            for edge in &model.edges {
                let crosses =
                    datacentre(model, edge.reader_life) != datacentre(model, edge.source_life);
                *readers.entry((edge.source_life, &edge.source, crosses)).or_default() += 1;
            }
            let crowded = readers.into_iter().find(|(_, count)| *count > self.0);
            crowded.map(|((_, source, _), count)| format!("{source} has {count} readers"))
        })
    }
}
