//! The book of who reads from whom, and the choice of a source (§4.3.1 of the paper; D1, D2).

use std::collections::{BTreeMap, BTreeSet};

use super::Server;
use super::group::Group;
use super::transaction::Transfer;
use crate::{Incarnation, Version};

/// How often one source may fail one transfer before it is not tried again.
pub(super) const ATTEMPTS_PER_SOURCE: u32 = 3;

/// Edges from readers to sources. A reader has one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    sources: BTreeMap<Incarnation, (Incarnation, Version)>,
    readers: BTreeMap<Incarnation, BTreeSet<Incarnation>>,
    /// Groups that are being filled with a version: it will have another source soon.
    coming: BTreeMap<(String, Version), BTreeSet<Incarnation>>,
}

impl Edges {
    /// The reader reads `version` of `model` from the source from now on.
    pub(super) fn add(
        &mut self,
        model: &str,
        version: Version,
        reader: Incarnation,
        source: Incarnation,
    ) {
        self.sources.insert(reader, (source, version));
        self.readers.entry(source).or_default().insert(reader);
        self.coming.entry((model.to_owned(), version)).or_default().insert(reader);
    }

    /// The reader lets go of its source, which is returned.
    pub(super) fn remove(&mut self, model: &str, reader: Incarnation) -> Option<Incarnation> {
        let (source, version) = self.sources.remove(&reader)?;
        remove_from(&mut self.readers, &source, reader);
        remove_from(&mut self.coming, &(model.to_owned(), version), reader);
        Some(source)
    }

    /// Whom a group reads from.
    pub(super) fn source_of(&self, reader: Incarnation) -> Option<Incarnation> {
        self.sources.get(&reader).map(|(source, _)| *source)
    }

    /// Who reads from a group, in order.
    pub(super) fn readers_of(&self, source: Incarnation) -> impl Iterator<Item = Incarnation> + '_ {
        self.readers.get(&source).into_iter().flatten().copied()
    }

    /// How many read from a group.
    pub(super) fn load(&self, source: Incarnation) -> usize {
        self.readers.get(&source).map_or(0, BTreeSet::len)
    }

    /// Groups that are being filled with a version.
    pub(super) fn filling(
        &self,
        model: &str,
        version: Version,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        self.coming.get(&(model.to_owned(), version)).into_iter().flatten().copied()
    }

    /// All edges: reader, source, version.
    pub(super) fn all(&self) -> impl Iterator<Item = (Incarnation, Incarnation, Version)> + '_ {
        self.sources.iter().map(|(reader, (source, version))| (*reader, *source, *version))
    }
}

fn remove_from<K: Ord>(
    map: &mut BTreeMap<K, BTreeSet<Incarnation>>,
    entry: &K,
    value: Incarnation,
) {
    if let Some(set) = map.get_mut(entry) {
        set.remove(&value);
        if set.is_empty() {
            map.remove(entry);
        }
    }
}

/// What the choice of a source came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Read from this group.
    Granted(Incarnation),
    /// Every source is busy, or the next one is still being filled: wait.
    Busy,
    /// Nobody holds the version, or everybody has failed this transfer.
    Nobody,
}

impl Server {
    /// Chooses a source of `version` for `reader`: sources that have not failed it first, then the
    /// same datacentre, the least loaded, the same host; ties go by name.
    ///
    /// Only complete replicas are sources, so the graph has no cycles (D2): a reader holds nothing.
    pub(super) fn choose_source(
        &self,
        reader: &Group,
        transfer: &Transfer,
        version: Version,
    ) -> Choice {
        let model = &self.models[&reader.model];
        let here = reader.location();
        let holders = model.visible.get(&version).into_iter().flatten();
        let usable = holders
            .filter(|(_, source)| **source != reader.incarnation)
            .map(|(name, source)| {
                (transfer.failures.get(source).copied().unwrap_or(0), name, source)
            })
            .filter(|(failures, _, _)| *failures < ATTEMPTS_PER_SOURCE);
        let mut busy = false;
        let best = usable
            .filter_map(|(failures, name, source)| {
                let load = self.edges.load(*source);
                if load >= self.config.fanout.max(1) as usize {
                    busy = true;
                    return None;
                }
                let there = self.groups[source].location();
                let far = here.map(|l| &l.datacentre) != there.map(|l| &l.datacentre);
                let other_host = here.map(|l| &l.host) != there.map(|l| &l.host);
                Some((failures, far, load, other_host, name, *source))
            })
            .min();
        let coming = || self.edges.filling(&reader.model, version).any(|g| g != reader.incarnation);
        match best {
            // One that failed is tried again only if no other source is just busy.
            Some((failures, .., source)) if failures == 0 || !busy => Choice::Granted(source),
            Some(_) => Choice::Busy,
            None if busy || coming() => Choice::Busy,
            None => Choice::Nobody,
        }
    }
}
