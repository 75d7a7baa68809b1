//! After each event everything that it has made possible happens, in a deterministic order. That is
//! bounded: a bug that would have it go on for ever leaves the rest to the next event, and shows (T5).

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

    /// The next thing that can happen. False if there is none.
    fn settle_one(&mut self, now: Time, settled: &mut BTreeSet<String>) -> bool {
        if let Some(group) = self.agenda.groups.pop_first() {
            self.advance(now, group);
        } else if let Some(model) = self.agenda.models.pop_first() {
            self.durability().review_claims(now, &model);
            self.review_seeds(&model);
            self.serve_waiting(now, &model);
            settled.insert(model);
        } else if let Some(model) = settled.pop_first() {
            // Last: whoever has just shown a copy again may give it up for another source (A3).
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
