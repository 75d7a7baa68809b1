//! Models that nobody is in any more are forgotten, so that names can come and go for ever.
//!
//! What a forgotten name had given out is never given out again: its runs and revisions are below
//! the *high water* of this term, and a model that is new here begins above it, whatever its name.
//! So a trainer that comes back publishes into another run, and whoever still has a version in mind
//! can't take one of the same number for it (S7), though its content is not known any more. Two
//! numbers for all names are enough: remembering each name would only move the bound. While clients
//! of an earlier term may come over, nothing is forgotten: what looks unused may not be.

use super::Server;
use super::invariants::{Violation, ensure};
use super::model::Model;
use crate::{Epoch, Revision};

/// The newest that models which are forgotten had given out in this term.
#[derive(Clone, Copy, Debug)]
pub(super) struct HighWater {
    epoch: Epoch,
    revision: Revision,
}

impl Server {
    /// A model of a name that is not known.
    pub(super) fn new_model(&self) -> Model {
        let first = self.first_revision();
        let (epoch, revision) = match self.high_water {
            Some(mark) => (mark.epoch.next(), mark.revision.next().max(first)),
            None => (Epoch(0), first),
        };
        Model { recovers: self.recovers(), epoch, revision, ..Model::default() }
    }

    /// Forgets the models that the last group has left since this was last called.
    pub(super) fn free_models(&mut self) {
        if self.vacant.is_empty() || self.recovers() || self.config.mutants.models_kept {
            return;
        }
        for name in std::mem::take(&mut self.vacant) {
            let Some(model) = self.models.get(&name).filter(|model| model.groups == 0) else {
                continue;
            };
            let (epoch, revision) = (model.epoch, model.revision);
            let mark = self.high_water.get_or_insert(HighWater { epoch, revision });
            mark.epoch = mark.epoch.max(epoch);
            mark.revision = mark.revision.max(revision);
            self.models.remove(&name);
        }
    }

    /// T5: the count of groups is right, and who has none is forgotten, or will be.
    pub(super) fn validate_vacancy(&self, name: &str, model: &Model) -> Result<(), Violation> {
        let groups = self.groups.values().filter(|group| group.model == name).count();
        ensure(groups == model.groups, "T5", || {
            format!("{name} has {groups} groups, and counts {}", model.groups)
        })?;
        let kept = model.groups > 0 || self.vacant.contains(name);
        ensure(kept, "T5", || format!("{name} is kept, though nobody is in it"))
    }
}
