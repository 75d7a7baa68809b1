//! Does what rooms return for a room above them.

use crate::Incarnation;
use crate::message::Answer;
use crate::server::Server;
use crate::server::transfers::Onward;

impl Server {
    /// Does what a step of a group's transfer returned for the rooms above.
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

    /// Something has changed in a model: lets seeds go that are not needed any more.
    pub(in crate::server) fn review_seeds(&mut self, name: &str) {
        for seed in self.durability().review_asks(name) {
            if !self.books().group(seed).is_seed_needed() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Call, Role};
    use crate::server::props::{SEQ, server, version};
    use crate::{CallError, Selector};

    #[test]
    fn what_is_left_to_a_seed_is_answered_and_the_seeds_before_go() {
        let mut server = server();
        let [reader, seed] = ["reader", "seed"].map(|name| server.prop(name, 1));
        server.holds(reader, version(1));
        server.at(seed).role = Role::Seed(version(2));
        let call =
            Call::Update { selector: Selector::Latest, allow_rollback: false, staged: false };
        server.has_called(reader, call.clone()).arrived.insert(0, call);
        server.go_on(reader, Onward::LeftToSeed(vec![seed]));
        let unchanged = Ok(Answer::Unchanged { held: Some(version(1)) });
        assert_eq!(server.at(reader).transactions[&SEQ].result, Some(unchanged));
        let over = server.at(seed).over.as_ref().map(|over| &over.error);
        assert!(matches!(over, Some(CallError::GroupBroken { .. })), "{over:?}");
    }
}
