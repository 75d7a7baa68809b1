//! After each event, does everything that the event has made possible, in a deterministic order.
//! The number of steps is bounded: a bug that never ends leaves its rest to the next event, and
//! shows (T5).

use std::collections::BTreeSet;

use crate::Time;
use crate::limits::{SETTLING_ROUNDS, SETTLING_ROUNDS_PER_GROUP};
use crate::server::Server;
use crate::server::stores::violation::{Violation, ensure};

impl Server {
    pub(in crate::server) fn settle(&mut self, now: Time) {
        let bound = SETTLING_ROUNDS + SETTLING_ROUNDS_PER_GROUP * self.groups.len();
        let mut settled = BTreeSet::new();
        self.unsettled = (0..bound).all(|_| self.settle_one(now, &mut settled));
        self.agenda.models.append(&mut settled);
        self.membership().free_models();
        self.blobs.schedule_grace(now, &mut self.timers);
        if self.config.paranoid
            && let Err(violation) = self.validate()
        {
            panic!("invariant broken: {violation}");
        }
    }

    /// Does the next thing on the agenda. False if there is none.
    fn settle_one(&mut self, now: Time, settled: &mut BTreeSet<String>) -> bool {
        if let Some(group) = self.agenda.groups.pop_first() {
            self.advance(now, group);
        } else if let Some(model) = self.agenda.models.pop_first() {
            self.durability().review_claims(now, &model);
            self.review_seeds(&model);
            self.serve_waiting(now, &model);
            settled.insert(model);
        } else if let Some(model) = settled.pop_first() {
            // Offloads come last: a group that has just listed a copy again may give it up for
            // another source (A3).
            self.durability().review_offloads(&model);
        } else {
            return false;
        }
        true
    }

    pub(in crate::server) fn validate_settled(&self) -> Result<(), Violation> {
        ensure(!self.unsettled, "T5", || {
            let (groups, models) = (&self.agenda.groups, &self.agenda.models);
            format!("an event had no end: still to do are groups {groups:?}, models {models:?}")
        })
    }
}
