//! D4: a version has one crossing into a datacentre at a time.

use std::collections::BTreeSet;

use weightcast_protocol::Time;

use super::d3::datacentre;
use super::{Checker, Fact};

pub(super) struct OneCrossing;

impl Checker for OneCrossing {
    fn name(&self) -> &'static str {
        "D4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        snapshot.models.values().find_map(|model| {
            let mut crossings = BTreeSet::new();
            model.edges.iter().find_map(|edge| {
                let here = datacentre(model, edge.reader_life)?;
                let crosses = datacentre(model, edge.source_life)? != here;
                (crosses && !crossings.insert((here, edge.version)))
                    .then(|| format!("{} crosses to {here} twice", edge.version))
            })
        })
    }
}
