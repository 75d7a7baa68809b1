//! A4: a version has at most one offload replica, once one of them has shown the bytes. Until then
//! the server may release neither.

use weightcast_protocol::Time;
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState};

use super::{Checker, Fact};
use crate::books::retained::is_offload;

pub(super) struct OneOffload;

impl Checker for OneOffload {
    fn name(&self) -> &'static str {
        "A4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        if snapshot.recovers {
            return None; // nothing is released before all could have come over
        }
        snapshot.models.values().find_map(|model| {
            let sealed = |state| state == ReplicaState::Sealed;
            let offloads = || model.replicas.iter().filter(|r| is_offload(r) && sealed(r.state));
            let twice = |one: &&ReplicaSnapshot| {
                offloads().any(|r| r.version == one.version && r.incarnation != one.incarnation)
            };
            let one = offloads().filter(|replica| replica.proved).find(twice)?;
            let version = one.version?;
            Some(format!("{} is one of two offload replicas of {version}", one.name))
        })
    }
}
