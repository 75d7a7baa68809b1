//! `list` and `describe`: what there is, the same for all shards (S10, G1).

use super::Server;
use super::model::Resolution;
use crate::message::Answer;
use crate::{CallError, Condition, Incarnation, Revision, Selector, Term, Time, Version};

impl Server {
    pub(super) fn start_list(&mut self, incarnation: Incarnation) -> Result<(), CallError> {
        self.finish_listed(incarnation);
        Ok(())
    }

    /// Gives the group's call its place among those that wait for the model to change.
    pub(super) fn start_waiting(&mut self, incarnation: Incarnation) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let is_transfer = group.transfer().is_some();
        let place = group.place.take_if(|_| is_transfer).unwrap_or_else(|| {
            self.last_place += 1;
            self.last_place
        });
        group.active_transaction().expect("checked").place = Some(place);
        let model = self.models.get_mut(&group.model).expect("groups have a model");
        model.waiting.insert(place, incarnation);
    }

    /// Something has changed in a model: those that wait look again, first come first served.
    pub(super) fn serve_waiting(&mut self, now: Time, model: &str) {
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
    pub(super) fn first_revision(&self) -> Revision {
        let restarts = self.config.mutants.revisions_restart;
        Revision { term: if restarts { Term::default() } else { self.own.term }, number: 0 }
    }

    /// Answers with what there is now.
    pub(super) fn finish_listed(&mut self, incarnation: Incarnation) {
        let model = &self.groups[&incarnation].model;
        let listing = self.models.get_mut(model).expect("groups have a model").listing();
        self.finish(incarnation, Ok(Answer::Listed(listing)));
    }

    pub(super) fn advance_describe(&mut self, incarnation: Incarnation, selector: Selector) {
        let model = &self.models[&self.groups[&incarnation].model];
        match model.resolve(selector) {
            Resolution::NotYet => {}
            Resolution::Gone => {
                let error = self.unavailable(incarnation, selector);
                self.finish(incarnation, Err(error));
            }
            Resolution::Available(version) => {
                let holder = model.visible[&version].values().next().expect("never left empty");
                let layouts = self.groups[holder].layouts();
                self.finish(incarnation, Ok(Answer::Described { version, layouts }));
            }
        }
    }

    /// The error for a version that is not there.
    pub(super) fn unavailable(&self, incarnation: Incarnation, selector: Selector) -> CallError {
        let model = &self.groups[&incarnation].model;
        let latest = self.models[model].latest();
        CallError::VersionUnavailable { model: model.clone(), selector, latest }
    }

    /// That error, if the group's call waits for a version that has not come.
    pub(super) fn version_missing(&self, incarnation: Incarnation) -> Option<CallError> {
        let group = &self.groups[&incarnation];
        let transaction = &group.transactions[&group.active?];
        let resolved = transaction.transfer.as_ref().is_some_and(|t| t.version.is_some());
        let selector = transaction.selector().filter(|_| !resolved)?;
        Some(self.unavailable(incarnation, selector))
    }
}
