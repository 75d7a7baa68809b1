//! What is known of versions: their content, so that none is ever given another (S7), as far as there
//! is room. The newest is never forgotten, and none that is older may be published anew, so what is
//! forgotten stays past.

use std::collections::BTreeSet;

use crate::Version;
use crate::server::rooms::CopyHandler;
use crate::server::stores::group::Group;
use crate::server::stores::model::Content;

impl CopyHandler<'_> {
    /// Notes what a version is. Beyond the bound the oldest are forgotten that no group holds or reads: a
    /// copy that is out of sight may be shown again, and what was read has yet to be judged and shown.
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
