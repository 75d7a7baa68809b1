//! D1: a source has at most `fanout` readers in its datacentre, as many that cross, which may read for long, and at most
//! `host_fanout` on its own host. Those whose stream broke while they read do not count: most have died.

use std::collections::BTreeMap;

use weightcast_protocol::Time;

use super::d3::datacentre;
use super::d7::is_beside;
use super::{Checker, Fact};
use crate::books::retained::same_life;

pub(super) struct Fanout {
    pub(super) fanout: u32,
    pub(super) host_fanout: u32,
}

impl Checker for Fanout {
    fn name(&self) -> &'static str {
        "D1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        snapshot.models.values().find_map(|model| {
            let mut readers = BTreeMap::<_, u32>::new();
            for edge in model.placed_edges() {
                let crosses =
                    datacentre(model, edge.reader_life) != datacentre(model, edge.source_life);
                let [reader, source] =
                    [edge.reader_life, edge.source_life].map(|life| same_life(model, life));
                let beside = reader.zip(source).is_some_and(|(one, other)| is_beside(one, other));
                let way = (edge.source_life, &edge.source, crosses, beside);
                *readers.entry(way).or_default() += 1;
            }
            let crowded = readers.into_iter().find(|((.., beside), count)| {
                let host_fanout = if *beside { self.host_fanout } else { 0 };
                *count > self.fanout.max(host_fanout)
            });
            crowded.map(|((_, source, ..), count)| format!("{source} has {count} readers"))
        })
    }
}
