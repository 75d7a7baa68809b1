//! What rooms have returned for a room above them.

use crate::message::Answer;
use crate::server::Server;
use crate::server::transfers::Onward;
use crate::{Incarnation, Time};

impl Server {
    /// Moves a group's transfer on.
    pub(super) fn advance_transfer(&mut self, now: Time, incarnation: Incarnation) {
        let onward = self.transfers().advance(now, incarnation);
        self.go_on(incarnation, onward);
    }

    /// Does what a step of a group's transfer has left to the rooms above.
    pub(in crate::server) fn go_on(&mut self, incarnation: Incarnation, onward: Onward) {
        match onward {
            Onward::Done => {}
            Onward::LeftToSeed(before) => {
                before.into_iter().for_each(|seed| self.let_seed_go(seed));
                let held = self.groups.of(&incarnation).held.as_ref().map(|held| held.version);
                self.calls().finish(incarnation, Ok(Answer::Unchanged { held }));
            }
            Onward::Accused(source, version) => {
                let detail = "two replicas have read other bytes from it";
                self.versions().fence(source, version, detail);
            }
        }
    }

    /// Something has changed in a model: seeds that nobody needs go.
    pub(in crate::server) fn review_seeds(&mut self, name: &str) {
        for seed in self.durability().review_asks(name) {
            if !self.books().is_seed_needed(seed) {
                self.let_seed_go(seed);
            }
        }
    }

    pub(in crate::server) fn let_seed_go(&mut self, seed: Incarnation) {
        if let Some(error) = self.durability().let_seed_go(seed) {
            self.membership().break_group(seed, error);
        }
    }
}
