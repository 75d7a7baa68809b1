//! What is known of versions: their content, so that no version is ever given other content (S7).
//! Bounded. The newest version is never forgotten, and no version that is older than it may be
//! published for the first time, so a forgotten version stays past.

use std::collections::BTreeSet;

use crate::Version;
use crate::server::rooms::CopyHandler;
use crate::server::stores::group::Group;
use crate::server::stores::model::Content;

impl CopyHandler<'_> {
    /// Notes the content of a version. Beyond the bound forgets the oldest versions, except those
    /// that a group holds or reads: an unlisted copy may be listed again, and a version that was
    /// read has yet to be judged and listed.
    pub(in crate::server) fn remember(&mut self, name: &str, version: Version, content: Content) {
        let bound = self.config.limits.versions;
        let model = self.models.of_mut(name);
        model.known.insert(version, content);
        if model.known.len() <= bound {
            return;
        }
        let groups = self.groups.values().filter(|group| group.model == name);
        let mut needed: BTreeSet<Version> = groups.flat_map(Group::versions).collect();
        needed.insert(version);
        needed.extend(model.newest_known());
        let excess = model.known.len() - bound;
        let unneeded = model.known.keys().filter(|known| !needed.contains(known));
        let forgotten: BTreeSet<Version> = unneeded.take(excess).copied().collect();
        model.known.retain(|known, _| !forgotten.contains(known));
    }
}
