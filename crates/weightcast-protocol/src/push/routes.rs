//! What the driver knows of one target: its routes, and what of them is done.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::push::grant::PushGrant;
use crate::push::names::SenderId;
use crate::push::outcome::TargetOutcome;
use crate::push::parcel::{PushParcel, TargetNeeds};
use crate::{Generation, Time};

/// The routes of one target, which change for this target's reasons alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TargetRoutes {
    pub(super) parcels: Vec<PushParcel>,
    /// The count of joins when the target joined: where its choice of senders begins.
    pub(super) turn: u64,
    /// Who is to write each parcel.
    pub(super) routes: BTreeMap<u32, SenderId>,
    /// Senders that a parcel has left.
    pub(super) left: BTreeMap<u32, BTreeSet<SenderId>>,
    /// How often a parcel has left a sender that lives.
    pub(super) moves: BTreeMap<u32, u32>,
    /// Moves of all parcels, for whatever reason.
    pub(super) moved: u32,
    pub(super) revision: u64,
    pub(super) written: BTreeSet<u32>,
    /// Open grants, as the target has said.
    pub(super) grants: Vec<PushGrant>,
    /// The largest number of a grant whose sender was told.
    pub(super) sent: u64,
    /// The last generation whose differences were dealt with.
    pub(super) judged: Option<Generation>,
    /// The sequence of the newest report.
    pub(super) heard: u64,
    pub(super) heard_at: Time,
    pub(super) joined: Time,
    /// When the target is told again.
    pub(super) again: Time,
    /// Since when each sender with an open grant has brought nothing.
    pub(super) since: BTreeMap<SenderId, Time>,
    pub(super) end: Option<TargetOutcome>,
}

impl TargetRoutes {
    pub(super) fn new(needs: TargetNeeds, turn: u64, now: Time) -> Self {
        Self {
            parcels: needs.parcels,
            turn,
            routes: BTreeMap::new(),
            left: BTreeMap::new(),
            moves: BTreeMap::new(),
            moved: 0,
            revision: 0,
            written: BTreeSet::new(),
            grants: Vec::new(),
            sent: 0,
            judged: None,
            heard: 0,
            heard_at: now,
            joined: now,
            again: now,
            since: BTreeMap::new(),
            end: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    pub(super) fn bytes(&self, parcel: u32) -> u64 {
        self.parcels[parcel as usize].bytes
    }

    /// Parcels that are not written, and who is to write them.
    pub(super) fn unwritten(&self) -> impl Iterator<Item = (u32, SenderId)> {
        let routes = self.routes.iter().map(|(parcel, sender)| (*parcel, *sender));
        routes.filter(|(parcel, _)| !self.written.contains(parcel))
    }

    /// Parcels that this sender has still to write.
    pub(super) fn owed(&self, by: SenderId) -> Vec<u32> {
        self.unwritten().filter(|(_, sender)| *sender == by).map(|(parcel, _)| parcel).collect()
    }

    /// Parcels that are not written, by sender.
    pub(super) fn missing(&self) -> BTreeMap<SenderId, BTreeSet<u32>> {
        let mut missing: BTreeMap<SenderId, BTreeSet<u32>> = BTreeMap::new();
        self.unwritten().for_each(|(parcel, sender)| {
            missing.entry(sender).or_default().insert(parcel);
        });
        missing
    }

    /// Parcels that are not written, and that nobody holds who is not lost.
    pub(super) fn unheld(&self, lost: &BTreeSet<SenderId>) -> BTreeSet<u32> {
        let numbered = (0..).zip(&self.parcels);
        let unheld = numbered.filter(|(_, parcel)| parcel.holders.is_subset(lost));
        unheld.map(|(number, _)| number).filter(|number| !self.written.contains(number)).collect()
    }

    /// Who may write a parcel of those that are not lost: those that it has not left yet; once it has left all of them, any
    /// but `from`.
    pub(super) fn candidates(
        &self,
        parcel: u32,
        lost: &BTreeSet<SenderId>,
        from: Option<SenderId>,
    ) -> Vec<SenderId> {
        let left = self.left.get(&parcel);
        let holders = || {
            let alive = self.parcels[parcel as usize].holders.difference(lost);
            alive.copied().filter(|sender| Some(*sender) != from)
        };
        let new: Vec<_> =
            holders().filter(|sender| left.is_none_or(|left| !left.contains(sender))).collect();
        if new.is_empty() { holders().collect() } else { new }
    }
}
