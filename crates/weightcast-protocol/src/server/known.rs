//! What is known of versions: their content, so that none is ever given another (S7), as far as there
//! is room. The newest is never forgotten, and none that is older may be published anew, so what is
//! forgotten stays past.

use std::collections::BTreeSet;

use super::Server;
use super::model::Content;
use crate::Version;

impl Server {
    /// Notes what a version is. Beyond the bound the oldest are forgotten that no group holds: a copy
    /// that is out of sight may be shown again, and who has read it has yet to be judged.
    pub(super) fn remember(&mut self, name: &str, version: Version, content: Content) {
        let bound = self.config.limits.versions;
        let model = self.models.get_mut(name).expect("groups have a model");
        model.known.insert(version, content);
        if model.known.len() <= bound {
            return;
        }
        let groups = self.groups.values().filter(|group| group.model == name);
        let held = groups.filter_map(|group| Some(group.held.as_ref()?.version));
        let mut needed: BTreeSet<Version> = held.collect();
        needed.insert(version);
        needed.extend(model.newest_known());
        let excess = model.known.len() - bound;
        let unneeded = model.known.keys().filter(|known| !needed.contains(known));
        let forgotten: BTreeSet<Version> = unneeded.take(excess).copied().collect();
        model.known.retain(|known, _| !forgotten.contains(known));
    }
}
