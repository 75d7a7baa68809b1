//! The book of who reads from whom.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Incarnation, Version};

/// Edges from readers to sources. A reader has one source, or several that hold what it reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    sources: BTreeMap<Incarnation, Reads>,
    readers: BTreeMap<Incarnation, BTreeSet<Incarnation>>,
    /// Groups that are being filled with a version of a model: it will have another source soon.
    coming: BTreeMap<String, BTreeMap<Version, BTreeSet<Incarnation>>>,
    /// Readers whose source is in another datacentre: few, and asked for at every choice.
    crossing: BTreeSet<Incarnation>,
}

/// What a group reads, and from whom: one source at least.
#[derive(Clone, Debug)]
struct Reads {
    version: Version,
    from: Vec<Incarnation>,
}

impl Edges {
    /// The reader reads `version` of `model` from these sources from now on, near or across.
    pub(super) fn add(
        &mut self,
        model: &str,
        version: Version,
        reader: Incarnation,
        from: Vec<Incarnation>,
        crosses: bool,
    ) {
        for source in &from {
            self.readers.entry(*source).or_default().insert(reader);
        }
        self.sources.insert(reader, Reads { version, from });
        self.coming.entry(model.to_owned()).or_default().entry(version).or_default().insert(reader);
        if crosses {
            self.crossing.insert(reader);
        }
    }

    /// The reader lets go of its sources, which are returned.
    pub(super) fn remove(&mut self, model: &str, reader: Incarnation) -> Vec<Incarnation> {
        let Some(Reads { version, from }) = self.sources.remove(&reader) else { return Vec::new() };
        for source in &from {
            remove_from(&mut self.readers, source, reader);
        }
        if let Some(versions) = self.coming.get_mut(model) {
            remove_from(versions, &version, reader);
            if versions.is_empty() {
                self.coming.remove(model);
            }
        }
        self.crossing.remove(&reader);
        from
    }

    /// The reader goes on with its first source alone; returns those that are free now.
    pub(super) fn keep_first(&mut self, reader: Incarnation) -> Vec<Incarnation> {
        let Some(reads) = self.sources.get_mut(&reader) else { return Vec::new() };
        let others = reads.from.split_off(1);
        for source in &others {
            remove_from(&mut self.readers, source, reader);
        }
        others
    }

    /// Whom a group reads from, first of all.
    pub(super) fn source_of(&self, reader: Incarnation) -> Option<Incarnation> {
        self.sources_of(reader).first().copied()
    }

    /// Everybody whom a group reads from.
    pub(super) fn sources_of(&self, reader: Incarnation) -> &[Incarnation] {
        self.sources.get(&reader).map_or(&[], |reads| &reads.from)
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
        let versions = self.coming.get(model);
        versions.and_then(|versions| versions.get(&version)).into_iter().flatten().copied()
    }

    /// Whether a group reads from another datacentre.
    pub(super) fn crosses(&self, reader: Incarnation) -> bool {
        self.crossing.contains(&reader)
    }

    /// Groups that read from another datacentre, and what.
    pub(super) fn crossing(&self) -> impl Iterator<Item = (Version, Incarnation)> + '_ {
        self.crossing.iter().map(|reader| (self.sources[reader].version, *reader))
    }

    /// All edges: reader, source, version.
    pub(super) fn all(&self) -> impl Iterator<Item = (Incarnation, Incarnation, Version)> + '_ {
        let edges = |(reader, reads): (&Incarnation, &'_ Reads)| {
            let (reader, version) = (*reader, reads.version);
            reads.from.clone().into_iter().map(move |source| (reader, source, version))
        };
        self.sources.iter().flat_map(edges)
    }

    /// Whether a group reads from another, directly or through others (D2).
    pub(super) fn leads_to(&self, from: Incarnation, to: Incarnation) -> bool {
        let mut at = from;
        // Nearly everybody has one source. No longer than there are edges: it ends even where a
        // mutant made a cycle.
        for _ in 0..=self.sources.len() {
            match self.sources_of(at) {
                _ if at == to => return true,
                [] => return false,
                [one] => at = *one,
                _ => return self.branch_leads_to(at, to),
            }
        }
        false
    }

    /// The same from a group that has several sources.
    fn branch_leads_to(&self, from: Incarnation, to: Incarnation) -> bool {
        let (mut next, mut seen) = (vec![from], BTreeSet::from([from]));
        while let Some(group) = next.pop() {
            if group == to {
                return true;
            }
            // Each once: it ends even where a mutant made a cycle.
            next.extend(self.sources_of(group).iter().filter(|source| seen.insert(**source)));
        }
        false
    }

    /// The sources that the version comes through that a group reads, nearest first. Where there are
    /// several, all hold it: the first stands for them.
    pub(super) fn chain(&self, group: Incarnation) -> impl Iterator<Item = Incarnation> + '_ {
        let version = self.sources.get(&group).map(|reads| reads.version);
        let above = move |group: &Incarnation| {
            let reads = self.sources.get(group)?;
            (Some(reads.version) == version).then_some(reads.from[0])
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
        let of = |reader: &Incarnation| self.sources.get(reader).map(|reads| reads.version);
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
