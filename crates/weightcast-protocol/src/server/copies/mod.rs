//! Copies that groups hold: added, listed, taken off the list again (S8).
//!
//! The rooms above decide who may read a copy, and when it may be given up.

pub(super) mod known;

use crate::server::rooms::CopyHandler;
use crate::server::stores::group::Held;
use crate::server::stores::trust::Trust;
use crate::{ContentDigest, Generation, Incarnation, Proved, Safeguard, Version};

impl CopyHandler<'_> {
    /// The group holds a copy from now on, which is listed at once.
    pub(in crate::server) fn add(
        &mut self,
        incarnation: Incarnation,
        version: Version,
        catalog: ContentDigest,
        generations: Vec<Generation>,
    ) {
        let group = self.groups.of_mut(&incarnation);
        group.kept = None;
        group.held = Some(Held {
            version,
            catalog,
            generations,
            sums: Default::default(),
            sealed: false,
            authored: false,
            trust: Trust::Claimed,
            accusers: Default::default(),
            fenced: None,
            offload_failed: None,
            visible: false,
        });
        for member in group.members.values_mut() {
            member.proved = Some(Proved { version, catalog, sum: None });
        }
        self.show(incarnation);
    }

    /// The group's copy is listed and read from now on.
    pub(in crate::server) fn show(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let held = group.copy_mut();
        held.visible = true;
        held.offload_failed = None;
        let version = held.version;
        let model = self.models.of_mut(&group.model);
        model.show(version, &group.replica, incarnation);
        self.agenda.note_change(&group.model);
    }

    /// The group's copy is not listed and takes no new readers from now on.
    pub(in crate::server) fn hide(&mut self, incarnation: Incarnation) {
        let group = self.groups.of_mut(&incarnation);
        let Some(held) = group.held.as_mut().filter(|held| held.visible) else { return };
        held.visible = false;
        let model = self.models.of_mut(&group.model);
        let revision = model.revision;
        model.hide(held.version, &group.replica);
        if !self.config.safeguards.on(Safeguard::RetractionRevision) {
            (model.revision, model.listed) = (revision, None);
        }
        self.agenda.note_change(&group.model);
    }
}
