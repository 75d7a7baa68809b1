//! `retain` and `let_go`: any group may have versions kept by name, beside the newest ones that the trainer wants.

use crate::limits::{Limits, RETAINED};
use crate::message::Answer;
use crate::server::rooms::VersionHandler;
use crate::server::stores::model::Resolution;
use crate::{CallError, Incarnation, Safeguard, Selector, Version};

impl VersionHandler<'_> {
    /// Keeps a version for a group once the version is there, and all shards have asked.
    pub(in crate::server) fn advance_retain(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
    ) {
        let asker = self.books().group(incarnation);
        let result = match asker.model.resolve(selector) {
            Resolution::NotYet => return,
            Resolution::Gone => Err(asker.unavailable(selector)),
            // A shard may still fail to come: then nothing is kept.
            Resolution::Available(_) if !self.is_asked_by_all(incarnation) => return,
            Resolution::Available(version) => self.keep(incarnation, version),
        };
        self.calls().finish(incarnation, result);
    }

    fn keep(&mut self, incarnation: Incarnation, version: Version) -> Result<Answer, CallError> {
        let name = &self.groups.of(&incarnation).model;
        let retention = &mut self.models.of_mut(name).retention;
        let others = retention.kept_for(incarnation).filter(|kept| *kept != version).count();
        Limits::check("number of retained versions", others as u64 + 1, RETAINED as u64)?;
        retention.keep(incarnation, version);
        self.agenda.note_change(name);
        Ok(Answer::Retained { version })
    }

    /// Lets go of a version once all shards have asked. No error if it is not kept.
    pub(in crate::server) fn advance_let_go(&mut self, incarnation: Incarnation, number: u64) {
        if self.is_asked_by_all(incarnation) {
            self.drop_kept(incarnation, |version| version.number == number);
            self.calls().finish(incarnation, Ok(Answer::LetGo));
        }
    }

    /// The group is at its end: nothing is kept for it any more.
    pub(in crate::server) fn drop_all_kept(&mut self, incarnation: Incarnation) {
        if self.config.safeguards.on(Safeguard::KeptUntilEnd) {
            self.drop_kept(incarnation, |_| true);
        }
    }

    fn is_asked_by_all(&self, incarnation: Incarnation) -> bool {
        let group = self.groups.of(&incarnation);
        group.pending().is_whole(group.num_shards)
    }

    fn drop_kept(&mut self, incarnation: Incarnation, these: impl Fn(Version) -> bool) {
        let name = &self.groups.of(&incarnation).model;
        if self.models.of_mut(name).retention.drop_kept(incarnation, these) {
            self.agenda.note_change(name);
        }
    }
}
