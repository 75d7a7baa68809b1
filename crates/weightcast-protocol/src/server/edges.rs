//! The book of who reads from whom.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Epoch, Incarnation, Version};

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

    /// Groups of a model that are being filled, and with what.
    pub(super) fn filling_any<'a>(
        &'a self,
        model: &'a str,
    ) -> impl Iterator<Item = (Version, Incarnation)> + 'a {
        let first = (model.to_owned(), Version { epoch: Epoch(0), number: 0 });
        self.coming
            .range(first..)
            .take_while(move |((of, _), _)| of == model)
            .flat_map(|((_, version), groups)| groups.iter().map(|group| (*version, *group)))
    }

    /// All edges: reader, source, version.
    pub(super) fn all(&self) -> impl Iterator<Item = (Incarnation, Incarnation, Version)> + '_ {
        self.sources.iter().map(|(reader, (source, version))| (*reader, *source, *version))
    }

    /// Whether a group reads from another, directly or through others (D2).
    pub(super) fn leads_to(&self, from: Incarnation, to: Incarnation) -> bool {
        let above = |group: &Incarnation| self.source_of(*group);
        // No longer than there are edges: it ends even where a mutant made a cycle.
        std::iter::successors(Some(from), above).take(self.sources.len() + 1).any(|g| g == to)
    }

    /// The sources that the version comes through that a group reads, nearest first.
    pub(super) fn chain(&self, group: Incarnation) -> impl Iterator<Item = Incarnation> + '_ {
        let version = self.sources.get(&group).map(|(_, version)| *version);
        let above = move |group: &Incarnation| {
            let (source, of) = self.sources.get(group)?;
            (Some(*of) == version).then_some(*source)
        };
        std::iter::successors(above(&group), above).take(self.sources.len())
    }

    /// How many sources the version comes through (D6).
    pub(super) fn depth(&self, group: Incarnation) -> usize {
        self.chain(group).count()
    }

    /// The longest chain of readers of a version that hangs on a group.
    pub(super) fn height(&self, group: Incarnation, version: Version) -> usize {
        self.height_within(group, version, self.sources.len())
    }

    fn height_within(&self, group: Incarnation, version: Version, left: usize) -> usize {
        let Some(left) = left.checked_sub(1) else { return 0 };
        // A reader that keeps an old copy meanwhile may have readers of that.
        let of = |reader: &Incarnation| self.sources.get(reader).map(|(_, of)| *of);
        let readers = self.readers_of(group).filter(|reader| of(reader) == Some(version));
        let below = readers.map(|reader| 1 + self.height_within(reader, version, left));
        below.max().unwrap_or(0)
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
