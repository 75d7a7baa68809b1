//! Forgets models without groups, so that names can come and go for ever.
//!
//! Numbers of a forgotten model are never given out again. Its runs and revisions lie below the
//! *high water* of this term, and every model that is new here begins above the high water,
//! whatever its name. So a trainer that comes back publishes into another run. A client that
//! remembers an old version can't mistake a new version of the same number for it (S7), although
//! the old content is no longer known. Two numbers serve all names; remembering each name would
//! only move the bound. Nothing is forgotten while clients of an earlier term may come over,
//! because a model that looks unused may not be.

use crate::server::rooms::{Books, MembershipHandler};
use crate::server::stores::model::Model;
use crate::server::stores::models::HighWater;
use crate::server::stores::violation::{Violation, ensure};
use crate::{Epoch, Revision, Safeguard, Term};

impl MembershipHandler<'_> {
    /// Revisions of this term come after those of earlier terms, so that a `wait` that names a
    /// revision of an earlier term is woken.
    fn first_revision(&self) -> Revision {
        let goes_on = self.config.safeguards.on(Safeguard::RevisionsGoOn);
        Revision { term: if goes_on { self.terms.own.term } else { Term::default() }, number: 0 }
    }

    /// The first run that begins in this term.
    pub(super) fn first_run(&self) -> Epoch {
        match self.config.safeguards.on(Safeguard::RunsApart) {
            true => Epoch::first(self.terms.own.term, self.config.life),
            false => Epoch(1),
        }
    }

    /// A model for a name that is not in the books. Its run and revision lie above the high water.
    pub(super) fn new_model(&self) -> Model {
        let first = self.first_revision();
        let (epoch, revision) = match self.models.high_water {
            Some(mark) => (mark.epoch.next(), mark.revision.next().max(first)),
            None => (Epoch(0), first),
        };
        Model { recovers: self.books().recovers(), epoch, revision, ..Model::default() }
    }

    /// Forgets vacant models, unless a group has joined them meanwhile.
    pub(in crate::server) fn free_models(&mut self) {
        if self.models.vacant.is_empty()
            || self.books().recovers()
            || !self.config.safeguards.on(Safeguard::ModelsForgotten)
        {
            return;
        }
        for name in std::mem::take(&mut self.models.vacant) {
            let Some(model) = self.models.get(&name).filter(|model| model.groups == 0) else {
                continue;
            };
            let (epoch, revision) = (model.epoch, model.revision);
            let mark = self.models.high_water.get_or_insert(HighWater { epoch, revision });
            mark.epoch = mark.epoch.max(epoch);
            mark.revision = mark.revision.max(revision);
            self.models.remove(&name);
        }
    }
}

impl Books<'_> {
    /// T5: the count of groups is right, and a model without groups is due to be forgotten.
    pub(in crate::server) fn validate_vacancy(
        &self,
        name: &str,
        model: &Model,
    ) -> Result<(), Violation> {
        let groups = self.groups.values().filter(|group| group.model == name).count();
        ensure(groups == model.groups, "T5", || {
            format!("{name} has {groups} groups, and counts {}", model.groups)
        })?;
        let kept = model.groups > 0 || self.models.vacant.contains(name);
        ensure(kept, "T5", || format!("{name} is kept, though nobody is in it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Incarnation;
    use crate::server::Server;
    use crate::server::props::{opening, server};

    fn revision(number: u64) -> Revision {
        Revision { term: Term(0), number }
    }

    /// A model that the last group has left, which had given this out.
    fn left(server: &mut Server, name: &str, epoch: u64, number: u64) {
        let model = Model { epoch: Epoch(epoch), revision: revision(number), ..Model::default() };
        server.models.insert(name.to_owned(), model);
        server.models.vacant.insert(name.to_owned());
    }

    #[test]
    fn a_new_model_begins_above_all_that_were_forgotten_in_whatever_order() {
        for numbers in
            [[(3, 20), (5, 10)], [(5, 10), (3, 20)], [(3, 10), (5, 20)], [(5, 20), (3, 10)]]
        {
            for at_once in [false, true] {
                let mut server = server();
                assert_eq!(server.membership().new_model().epoch, Epoch(0));
                assert_eq!(server.membership().new_model().revision, revision(0));
                for (name, (epoch, number)) in ["a", "b"].iter().zip(numbers) {
                    left(&mut server, name, epoch, number);
                    if !at_once {
                        server.membership().free_models();
                    }
                }
                server.membership().free_models();
                assert!(server.models.is_empty() && server.models.vacant.is_empty());
                let new = server.membership().new_model();
                assert_eq!((new.epoch, new.revision), (Epoch(6), revision(21)), "{numbers:?}");
            }
        }
    }

    #[test]
    fn revisions_of_a_new_term_are_above_the_mark_of_an_earlier_one() {
        let mut server = server();
        left(&mut server, "a", 0, 10);
        server.membership().free_models();
        server.terms.own.term = Term(4);
        let new = server.membership().new_model();
        assert_eq!(new.revision, Revision { term: Term(4), number: 0 });
        left(&mut server, "b", 0, 3);
        server.models.get_mut("b").expect("just put there").revision.term = Term(4);
        server.membership().free_models();
        assert_eq!(server.membership().new_model().revision, Revision { term: Term(4), number: 4 });
    }

    #[test]
    fn a_model_that_somebody_has_come_to_meanwhile_is_kept() {
        let mut server = server();
        left(&mut server, "a", 2, 9);
        left(&mut server, "b", 1, 1);
        let group = Incarnation { term: Term(0), number: 1 };
        server.membership().found_group(&opening("a", "rollout", 1), group).expect("there is room");
        server.membership().free_models();
        assert_eq!(server.models.ids().collect::<Vec<_>>(), ["a"]);
        assert_eq!(server.membership().new_model().epoch, Epoch(2), "above that of b alone");
        assert_eq!(server.models["a"].epoch, Epoch(2));
    }

    #[test]
    fn a_miscounted_or_forgotten_model_is_noticed() {
        let mut server = server();
        left(&mut server, "a", 0, 0);
        let checked = |server: &Server| server.books().validate_vacancy("a", &server.models["a"]);
        assert_eq!(checked(&server), Ok(()));
        server.models.vacant.clear();
        assert!(checked(&server).is_err(), "nobody will forget it");
        server.models.get_mut("a").expect("just put there").groups = 1;
        assert!(checked(&server).is_err(), "it has none");
    }
}
