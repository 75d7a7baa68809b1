//! A3: an offload replica goes only when another copy of its version counts, or the version is no
//! longer retained.

use std::rc::Rc;

use weightcast_protocol::Time;
use weightcast_protocol::server::{ModelSnapshot, ReplicaState, Snapshot};

use super::{Checker, Fact};
use crate::books::retained::{
    countable, is_offload, lost_with_its_group, retained_beside, same_life,
};

#[derive(Default)]
pub(super) struct Needed {
    before: Option<Rc<Snapshot>>,
}

impl Checker for Needed {
    fn name(&self) -> &'static str {
        "A3"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(after) = fact else { return None };
        let before = self.before.replace((*after).clone())?;
        if after.counters.offloads_released == before.counters.offloads_released {
            return None;
        }
        before.models.iter().find_map(|(name, old)| released(old, after.models.get(name)?))
    }
}

fn released(old: &ModelSnapshot, new: &ModelSnapshot) -> Option<String> {
    let mut kept = countable(new);
    // Another group held the version until it broke in this event.
    let lost = lost_with_its_group(old, new);
    kept.extend(&lost);
    let going = |state| state == ReplicaState::Draining;
    new.replicas.iter().filter(|r| is_offload(r) && going(r.state)).find_map(|replica| {
        let version = replica.version?;
        let went = same_life(old, replica.incarnation).is_some_and(|old| going(old.state));
        (!went && !kept.contains(&version) && retained_beside(new, version, &lost))
            .then(|| format!("{} was released, and nobody else holds {version}", replica.name))
    })
}
