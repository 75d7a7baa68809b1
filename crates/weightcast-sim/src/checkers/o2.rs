//! O2: a datacentre has one seed replica at a time.

use std::collections::BTreeSet;

use weightcast_protocol::Time;
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState};

use super::d3::datacentre;
use super::{Checker, Fact};
use crate::books::retained::is_seed;

pub(super) struct OneSeed;

impl Checker for OneSeed {
    fn name(&self) -> &'static str {
        "O2"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        if snapshot.recovers {
            return None; // nothing is let go of before all could have come over
        }
        snapshot.models.values().find_map(|model| {
            let mut places = BTreeSet::new();
            let mut seeds = model.replicas.iter().filter(|replica| lives(replica));
            let twice = seeds.find(|seed| {
                let place = datacentre(model, seed.incarnation);
                place.is_some_and(|place| !places.insert(place))
            })?;
            Some(format!("{} is one of two seeds of its datacentre", twice.name))
        })
    }
}

fn lives(replica: &ReplicaSnapshot) -> bool {
    let going = [
        ReplicaState::Broken,
        ReplicaState::Closing,
        ReplicaState::Draining,
        ReplicaState::Recovering,
    ];
    is_seed(replica) && !going.contains(&replica.state)
}
