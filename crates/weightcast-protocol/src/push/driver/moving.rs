//! Which sender writes what, and how that changes: for the target whose sender is lost or slow, and for no other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::push::driver::PushDriver;
use crate::push::names::{SenderId, TargetId};
use crate::push::outcome::TargetEnd;
use crate::push::routes::TargetRoutes;
use crate::{Safeguard, Time};

impl PushDriver {
    /// Gives parcels a sender each: first what one sender alone may write, then the largest, so that the bytes of senders are
    /// about equal. Ends the push at the target
    /// if nobody who lives holds one.
    pub(super) fn assign(
        &mut self,
        now: Time,
        target: TargetId,
        parcels: Vec<u32>,
        from: Option<SenderId>,
    ) {
        let Some(of) = self.targets.get_mut(&target).filter(|of| of.is_open()) else { return };
        let mut order = parcels;
        let candidates = |of: &TargetRoutes, parcel| of.candidates(parcel, &self.lost, from);
        let shared = |parcel| candidates(of, parcel).len() > 1;
        order.sort_by_cached_key(|parcel| (shared(*parcel), Reverse(of.bytes(*parcel))));
        let mut stranded = false;
        for parcel in order {
            let candidates = candidates(of, parcel);
            let Some(sender) = self.loads.least(&candidates, of.turn) else {
                stranded = true;
                continue;
            };
            let bytes = of.bytes(parcel);
            if let Some(before) = of.routes.insert(parcel, sender) {
                self.loads.take(before, bytes);
                of.moved += u32::from(before != sender);
            }
            self.loads.add(sender, bytes);
        }
        of.revision += 1;
        match stranded {
            true => self.end(now, target, TargetEnd::NoHolder),
            false => self.tell(now, target),
        }
    }

    /// A sender is gone: everything that it has not written moves.
    pub(super) fn lose_sender(&mut self, now: Time, sender: SenderId) {
        if !self.config.safeguards.on(Safeguard::LostMoved) {
            return;
        }
        self.lost.insert(sender);
        let open: Vec<TargetId> = self.open().collect();
        for target in open {
            let owed = self.targets[&target].owed(sender);
            if !owed.is_empty() {
                self.assign(now, target, owed, Some(sender));
            }
        }
    }

    /// A sender that lives brings this target nothing: what it has not written moves, as often as the configuration lets it, and
    /// if another holder lives.
    pub(super) fn yield_parcels(&mut self, now: Time, target: TargetId, from: SenderId) {
        let Some(of) = self.targets.get_mut(&target) else { return };
        let may_move = |parcel: &u32| {
            let moves = of.moves.get(parcel).copied().unwrap_or_default();
            moves < self.config.moves && !of.candidates(*parcel, &self.lost, Some(from)).is_empty()
        };
        let parcels: Vec<u32> = of.owed(from).into_iter().filter(may_move).collect();
        of.since.insert(from, now);
        if !parcels.is_empty() {
            self.leave(target, from, &parcels);
            self.assign(now, target, parcels, Some(from));
        }
    }

    /// Somebody else writes these parcels, if anybody else holds them: what this sender wrote was not the version.
    pub(super) fn replace(
        &mut self,
        now: Time,
        target: TargetId,
        from: SenderId,
        parcels: Vec<u32>,
    ) {
        let Some(of) = self.targets.get(&target) else { return };
        let others = |parcel: &u32| !of.candidates(*parcel, &self.lost, Some(from)).is_empty();
        let (elsewhere, again): (Vec<u32>, Vec<u32>) = parcels.into_iter().partition(others);
        self.leave(target, from, &elsewhere);
        self.leave(target, from, &again);
        for (parcels, but) in [(elsewhere, Some(from)), (again, None)] {
            if !parcels.is_empty() {
                self.assign(now, target, parcels, but);
            }
        }
    }

    /// Notes that parcels leave a sender.
    fn leave(&mut self, target: TargetId, from: SenderId, parcels: &[u32]) {
        let Some(of) = self.targets.get_mut(&target) else { return };
        for parcel in parcels {
            of.left.entry(*parcel).or_default().insert(from);
            *of.moves.entry(*parcel).or_default() += 1;
        }
    }

    /// A further holder. Parcels move to it only when they have to move.
    pub(super) fn hold(&mut self, sender: SenderId, parcels: &BTreeMap<TargetId, BTreeSet<u32>>) {
        for (target, held) in parcels {
            let Some(of) = self.targets.get_mut(target) else { continue };
            for (number, parcel) in of.parcels.iter_mut().enumerate() {
                if held.contains(&(number as u32)) {
                    parcel.holders.insert(sender);
                }
            }
        }
        self.lost.remove(&sender);
    }

    /// Nothing changes for other targets when one joins or leaves; a test rig may have all routes chosen anew.
    pub(super) fn others_undisturbed(&mut self, now: Time, target: TargetId) {
        if self.config.safeguards.on(Safeguard::RoutesKept) {
            return;
        }
        let others: Vec<TargetId> = self.open().filter(|other| *other != target).collect();
        for other in others {
            let all = self.targets[&other].unwritten().map(|(parcel, _)| parcel).collect();
            self.assign(now, other, all, None);
        }
    }
}
