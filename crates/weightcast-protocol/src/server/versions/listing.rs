//! `list` and `describe`: what there is, the same for all shards (S10, G1).

use crate::message::Answer;
use crate::server::Server;
use crate::server::stores::model::Resolution;
use crate::{
    CallError, Condition, Incarnation, Revision, Safeguard, Selector, Term, Time, Version,
};

impl Server {
    pub(in crate::server) fn start_list(
        &mut self,
        incarnation: Incarnation,
    ) -> Result<(), CallError> {
        self.finish_listed(incarnation);
        Ok(())
    }

    /// Gives the group's call its place among those that wait for the model to change.
    pub(in crate::server) fn start_waiting(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let is_transfer = group.transfer().is_some();
        let place =
            group.place.take_if(|_| is_transfer).unwrap_or_else(|| self.numbers.next_place());
        group.pending_mut().place = Some(place);
        let model = self.models.of_mut(&group.model);
        model.waiting.insert(place, incarnation);
    }

    /// Something has changed in a model: those that wait look again, first come first served.
    pub(in crate::server) fn serve_waiting(&mut self, now: Time, model: &str) {
        let Some(model) = self.models.get(model) else { return };
        let waiting: Vec<Incarnation> = model.waiting.values().copied().collect();
        // Once one has found no free source, those behind it that are like it need not look.
        let mut exhausted: Vec<(Version, Incarnation)> = Vec::new();
        // And a condition that does not hold for one holds for none.
        let mut unmet: Vec<Condition> = Vec::new();
        for group in waiting {
            let until = self.waits_until(group);
            let wants = self.waits_for_source(group);
            if until.is_some_and(|until| unmet.contains(&until))
                || exhausted.iter().any(|(version, other)| {
                    wants == Some(*version) && self.have_same_sources(*other, group)
                })
            {
                continue;
            }
            self.advance(now, group);
            unmet.extend(self.waits_until(group));
            exhausted.extend(self.waits_for_source(group).map(|version| (version, group)));
        }
    }

    /// Whether two groups can read a version from the same sources only: none serves the one but not
    /// the other.
    fn have_same_sources(&self, a: Incarnation, b: Incarnation) -> bool {
        // One that was looked at before may have gone since.
        let (Some(a), Some(b)) = (self.groups.get(&a), self.groups.get(&b)) else { return false };
        a.datacentre() == b.datacentre() && a.same_layouts(b)
    }

    /// The version that a group could read from any source, if it waits for nothing but a source.
    fn waits_for_source(&self, incarnation: Incarnation) -> Option<Version> {
        let group = self.groups.get(&incarnation)?;
        let transaction = &group.transactions[&group.active?];
        let transfer = transaction.transfer.as_ref()?;
        // One that is staged can't read from its own readers, which others may.
        let waits = transfer.failures.is_empty() && !transfer.staged;
        transaction.wants(group.num_shards).filter(|_| waits)
    }

    /// Revisions of this term come after those of earlier ones, so that whoever watches from one
    /// of those is woken.
    pub(in crate::server) fn first_revision(&self) -> Revision {
        let goes_on = self.config.safeguards.on(Safeguard::RevisionsGoOn);
        Revision { term: if goes_on { self.terms.own.term } else { Term::default() }, number: 0 }
    }

    /// Answers with what there is now.
    pub(super) fn finish_listed(&mut self, incarnation: Incarnation) {
        let model = &self.groups.of(&incarnation).model;
        let listing = self.models.of_mut(model).listing();
        self.finish(incarnation, Ok(Answer::Listed(listing)));
    }

    pub(in crate::server) fn advance_describe(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
    ) {
        let model = self.models.of(&self.groups.of(&incarnation).model);
        match model.resolve(selector) {
            Resolution::NotYet => {}
            Resolution::Gone => {
                let error = self.unavailable(incarnation, selector);
                self.finish(incarnation, Err(error));
            }
            Resolution::Available(version) => {
                let holder = model.visible[&version].values().next().expect("never left empty");
                let layouts = self.groups.of(holder).layouts();
                self.finish(incarnation, Ok(Answer::Described { version, layouts }));
            }
        }
    }

    /// The error for a version that is not there.
    pub(in crate::server) fn unavailable(
        &self,
        incarnation: Incarnation,
        selector: Selector,
    ) -> CallError {
        let model = &self.groups.of(&incarnation).model;
        let latest = self.models.of(model).latest();
        CallError::VersionUnavailable { model: model.clone(), selector, latest }
    }

    /// That error, if the group's call waits for a version that has not come.
    pub(in crate::server) fn version_missing(&self, incarnation: Incarnation) -> Option<CallError> {
        let group = self.groups.of(&incarnation);
        let transaction = &group.transactions[&group.active?];
        let resolved = transaction.transfer.as_ref().is_some_and(|t| t.version.is_some());
        let selector = transaction.selector().filter(|_| !resolved)?;
        Some(self.unavailable(incarnation, selector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Call;
    use crate::server::props::{SEQ, server, version};

    #[test]
    fn each_call_has_the_next_place_and_a_transfer_the_one_that_was_left_to_it() {
        let mut server = server();
        let [first, second] = ["first", "second"].map(|name| server.prop(name, 1));
        let wait = Call::Describe { selector: Selector::Latest };
        let place = |server: &mut Server, group, transfers: bool| {
            let call = server.calls(group, wait.clone());
            call.transfer = transfers.then(Default::default);
            server.start_waiting(group);
            server.groups[&group].transactions[&SEQ].place
        };
        assert_eq!(place(&mut server, first, false), Some(1));
        assert_eq!(place(&mut server, second, true), Some(2));
        assert!(server.models["policy"].waiting.iter().eq([(&1, &first), (&2, &second)]));
        server.at(first).place = Some(1);
        assert_eq!(place(&mut server, first, false), Some(3), "only a transfer takes it");
        assert_eq!(server.groups[&first].place, Some(1));
        assert_eq!(place(&mut server, first, true), Some(1));
        assert_eq!(server.groups[&first].place, None, "once");
        assert_eq!(place(&mut server, first, true), Some(4));
    }

    #[test]
    fn groups_read_from_the_same_sources_if_they_are_in_one_place_and_of_one_layout() {
        let mut server = server();
        let [a, b, wide] = [("a", 1), ("b", 1), ("wide", 2)].map(|(n, s)| server.prop(n, s));
        assert!(server.have_same_sources(a, b) && !server.have_same_sources(a, wide));
        server.at(b).members.get_mut(&0).unwrap().location.datacentre = "far".to_owned();
        assert!(!server.have_same_sources(a, b));
        server.groups.remove(&b);
        assert!(!server.have_same_sources(a, b) && !server.have_same_sources(b, a));
    }

    #[test]
    fn a_group_waits_for_nothing_but_a_source_if_all_others_are_as_good_for_it() {
        let mut server = server();
        let group = server.prop("g", 1);
        assert_eq!(server.waits_for_source(group), None);
        let wait = Call::Replicate { selector: Selector::Latest };
        server.calls(group, wait.clone());
        assert_eq!(server.waits_for_source(group), None, "it is no transfer yet");
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived.insert(0, wait);
        call.transfer = Some(crate::server::stores::transaction::Transfer {
            version: Some(version(1)),
            ..Default::default()
        });
        assert_eq!(server.waits_for_source(group), Some(version(1)));
        server.transfer(group).unwrap().failures.insert(group, 0);
        assert_eq!(server.waits_for_source(group), None, "one that it has lost is not for it");
        server.transfer(group).unwrap().failures.clear();
        server.transfer(group).unwrap().staged = true;
        assert_eq!(server.waits_for_source(group), None);
        server.transfer(group).unwrap().staged = false;
        server.at(group).transactions.get_mut(&SEQ).unwrap().arrived.clear();
        assert_eq!(server.waits_for_source(group), None, "a shard is missing");
    }

    #[test]
    fn a_call_lacks_its_version_until_that_is_known() {
        let mut server = server();
        let group = server.prop("g", 1);
        let selector = Selector::Exact(3);
        let missing = |server: &Server| server.version_missing(group).is_some();
        assert!(!missing(&server));
        for (call, lacks) in [
            (Call::List, false),
            (Call::Describe { selector }, true),
            (Call::Wait { until: Condition::Available(selector) }, true),
            (Call::Wait { until: Condition::Changed { after: Revision::default() } }, false),
            (Call::Replicate { selector }, true),
        ] {
            server.calls(group, call.clone());
            assert_eq!(missing(&server), lacks, "{call:?}");
        }
        server.at(group).transactions.get_mut(&SEQ).unwrap().transfer = Some(Default::default());
        assert!(missing(&server));
        server.transfer(group).unwrap().version = Some(version(3));
        assert!(!missing(&server));
        let latest = None;
        let expected = CallError::VersionUnavailable { model: "policy".into(), selector, latest };
        assert_eq!(server.unavailable(group, selector), expected);
    }
}
