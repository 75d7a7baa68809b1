//! The read edges: which group reads from which sources.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Version};

/// Edges from readers to sources. A reader has one source, or several that all hold the version.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Edges {
    sources: BTreeMap<Incarnation, Reads>,
    readers: BTreeMap<Incarnation, BTreeSet<Incarnation>>,
    /// Groups that are being filled, by model and version: future sources of the version.
    coming: BTreeMap<String, BTreeMap<Version, BTreeSet<Incarnation>>>,
    /// Readers whose source is in another datacentre. Kept apart because they are few, and each
    /// choice looks at them.
    crossing: BTreeSet<Incarnation>,
    /// Readers that may have died: their stream broke after they began to read.
    out_of_sight: BTreeSet<Incarnation>,
}

/// What a group reads, and its sources: at least one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reads {
    version: Version,
    from: Vec<Incarnation>,
}

impl Edges {
    /// The reader reads `version` of `model` from these sources from now on. `crosses`: from
    /// another datacentre.
    pub(in crate::server) fn add(
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
    pub(in crate::server) fn remove(
        &mut self,
        model: &str,
        reader: Incarnation,
    ) -> Vec<Incarnation> {
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
        self.out_of_sight.remove(&reader);
        from
    }

    /// The stream of a group broke. Whether the group reads: then it takes no place at its sources any more, also if
    /// it comes back.
    pub(in crate::server) fn lose_sight(&mut self, reader: Incarnation) -> bool {
        self.sources.contains_key(&reader) && self.out_of_sight.insert(reader)
    }

    /// Whether a reader takes a place at its sources.
    pub(in crate::server) fn takes_place(&self, reader: Incarnation) -> bool {
        !self.out_of_sight.contains(&reader)
    }

    /// The reader goes on with its first source alone; returns the sources that it left.
    pub(in crate::server) fn keep_first(&mut self, reader: Incarnation) -> Vec<Incarnation> {
        let Some(reads) = self.sources.get_mut(&reader) else { return Vec::new() };
        let others = reads.from.split_off(1);
        for source in &others {
            remove_from(&mut self.readers, source, reader);
        }
        others
    }

    /// The reader goes on with these sources too.
    pub(in crate::server) fn join(&mut self, reader: Incarnation, further: &[Incarnation]) {
        let Some(reads) = self.sources.get_mut(&reader) else { return };
        reads.from.extend(further);
        for source in further {
            self.readers.entry(*source).or_default().insert(reader);
        }
    }

    /// The first source of a group.
    pub(in crate::server) fn source_of(&self, reader: Incarnation) -> Option<Incarnation> {
        self.sources_of(reader).first().copied()
    }

    /// All sources of a group.
    pub(in crate::server) fn sources_of(&self, reader: Incarnation) -> &[Incarnation] {
        self.sources.get(&reader).map_or(&[], |reads| &reads.from)
    }

    /// The readers of a group, in order.
    pub(in crate::server) fn readers_of(
        &self,
        source: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        self.readers.get(&source).into_iter().flatten().copied()
    }

    /// Readers that take no place, in order.
    pub(in crate::server) fn out_of_sight(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.out_of_sight.iter().copied()
    }

    /// Readers of a group that take a place there, in order.
    pub(in crate::server) fn placed_at(
        &self,
        source: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        self.readers_of(source).filter(|reader| self.takes_place(*reader))
    }

    /// How many readers a group has.
    pub(in crate::server) fn load(&self, source: Incarnation) -> usize {
        self.readers.get(&source).map_or(0, BTreeSet::len)
    }

    /// Groups that are being filled with a version.
    pub(in crate::server) fn filling(
        &self,
        model: &str,
        version: Version,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        let versions = self.coming.get(model);
        versions.and_then(|versions| versions.get(&version)).into_iter().flatten().copied()
    }

    /// Whether a group is being filled with a version.
    pub(in crate::server) fn fills(&self, reader: Incarnation, version: Version) -> bool {
        self.sources.get(&reader).is_some_and(|reads| reads.version == version)
    }

    /// Whether a group reads from another datacentre.
    pub(in crate::server) fn crosses(&self, reader: Incarnation) -> bool {
        self.crossing.contains(&reader)
    }

    /// Groups that read from another datacentre, and what.
    pub(in crate::server) fn crossing(&self) -> impl Iterator<Item = (Version, Incarnation)> + '_ {
        self.crossing.iter().map(|reader| (self.sources[reader].version, *reader))
    }

    /// All edges: reader, source, version.
    pub(in crate::server) fn all(
        &self,
    ) -> impl Iterator<Item = (Incarnation, Incarnation, Version)> + '_ {
        let edges = |(reader, reads): (&Incarnation, &'_ Reads)| {
            let (reader, version) = (*reader, reads.version);
            reads.from.clone().into_iter().map(move |source| (reader, source, version))
        };
        self.sources.iter().flat_map(edges)
    }

    /// Whether a group reads from another, directly or through others (D2).
    pub(in crate::server) fn leads_to(&self, from: Incarnation, to: Incarnation) -> bool {
        let mut at = from;
        // Most readers have one source. The bound on steps ends the walk even where a mutant made a
        // cycle.
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

    /// The same, from a group with several sources.
    fn branch_leads_to(&self, from: Incarnation, to: Incarnation) -> bool {
        let (mut next, mut seen) = (vec![from], BTreeSet::from([from]));
        while let Some(group) = next.pop() {
            if group == to {
                return true;
            }
            // Visit each group once: the walk ends even where a mutant made a cycle.
            next.extend(self.sources_of(group).iter().filter(|source| seen.insert(**source)));
        }
        false
    }

    /// The chain of sources through which a group gets its version, nearest first. Several sources
    /// of one reader all hold the version, so the first stands for them.
    pub(in crate::server) fn chain(
        &self,
        group: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        let version = self.version_read(group);
        let above = move |group: &Incarnation| {
            let reads = self.sources.get(group)?;
            (Some(reads.version) == version).then_some(reads.from[0])
        };
        std::iter::successors(above(&group), above).take(self.sources.len())
    }

    /// How many sources are above a group: the length of its chain (D6).
    pub(in crate::server) fn depth(&self, group: Incarnation) -> usize {
        self.chain(group).count()
    }

    /// Length of the longest chain of readers of a version below a group.
    pub(in crate::server) fn height(&self, group: Incarnation, version: Version) -> usize {
        self.height_within(group, version, self.sources.len())
    }

    fn height_within(&self, group: Incarnation, version: Version, left: usize) -> usize {
        let Some(left) = left.checked_sub(1) else { return 0 };
        // A reader that still holds an old copy may have readers of that copy, which do not count.
        let readers = self.readers_of(group).filter(|of| self.version_read(*of) == Some(version));
        let below = readers.map(|reader| 1 + self.height_within(reader, version, left));
        below.max().unwrap_or(0)
    }

    /// The version that a group reads.
    fn version_read(&self, reader: Incarnation) -> Option<Version> {
        self.sources.get(&reader).map(|reads| reads.version)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Term};

    fn group(number: u64) -> Incarnation {
        Incarnation { term: Term(1), number }
    }

    fn version(number: u64) -> Version {
        Version { epoch: Epoch(0), number }
    }

    /// The same book as a plain list, in which everything is looked for from the start.
    #[derive(Default)]
    struct PlainBook(Vec<PlainReads>);

    struct PlainReads {
        reader: Incarnation,
        model: &'static str,
        version: Version,
        from: Vec<Incarnation>,
        crosses: bool,
    }

    impl PlainBook {
        fn of(&self, reader: Incarnation) -> Option<&PlainReads> {
            self.0.iter().find(|reads| reads.reader == reader)
        }

        fn readers(&self, source: Incarnation) -> BTreeSet<Incarnation> {
            let reads = self.0.iter().filter(|reads| reads.from.contains(&source));
            reads.map(|reads| reads.reader).collect()
        }

        fn leads_to(&self, from: Incarnation, to: Incarnation) -> bool {
            let above = self.of(from).into_iter().flat_map(|reads| reads.from.clone());
            from == to || above.into_iter().any(|source| self.leads_to(source, to))
        }

        fn chain(&self, of: Incarnation) -> Vec<Incarnation> {
            let (mut chain, mut at) = (Vec::new(), self.of(of));
            while let Some(reads) = at {
                chain.push(reads.from[0]);
                at = self.of(reads.from[0]).filter(|above| above.version == reads.version);
            }
            chain
        }

        fn height(&self, of: Incarnation, version: Version) -> usize {
            let readers = self.readers(of);
            let below = readers.iter().filter(|r| self.of(**r).unwrap().version == version);
            below.map(|reader| 1 + self.height(*reader, version)).max().unwrap_or(0)
        }
    }

    const GROUPS: u64 = 7;

    fn assert_same(edges: &Edges, book: &PlainBook) {
        for number in 0..GROUPS {
            let one = group(number);
            let reads = book.of(one);
            let from: Vec<Incarnation> = reads.map(|reads| reads.from.clone()).unwrap_or_default();
            assert_eq!(edges.sources_of(one), from);
            assert_eq!(edges.source_of(one), from.first().copied());
            assert_eq!(edges.crosses(one), reads.is_some_and(|reads| reads.crosses));
            let readers = book.readers(one);
            assert_eq!(edges.load(one), readers.len());
            assert!(edges.readers_of(one).eq(readers));
            assert!(edges.chain(one).eq(book.chain(one)), "{one}");
            assert_eq!(edges.depth(one), book.chain(one).len());
            for of in [version(0), version(1)] {
                assert_eq!(edges.height(one, of), book.height(one, of), "{of} below {one}");
            }
            for other in (0..GROUPS).map(group) {
                assert_eq!(edges.leads_to(one, other), book.leads_to(one, other));
            }
        }
        let sorted = |reads: Vec<Incarnation>| reads.into_iter().collect::<BTreeSet<_>>();
        for (model, of) in ["a", "b"].iter().flat_map(|m| [(*m, version(0)), (*m, version(1))]) {
            let filling = book.0.iter().filter(|r| r.model == model && r.version == of);
            let filling = filling.map(|reads| reads.reader).collect();
            assert!(edges.filling(model, of).eq(sorted(filling)), "{of} of {model}");
        }
        let mut all: Vec<_> = book
            .0
            .iter()
            .flat_map(|reads| {
                reads.from.iter().map(|source| (reads.reader, *source, reads.version))
            })
            .collect();
        let mut crossing: Vec<_> =
            book.0.iter().filter(|r| r.crosses).map(|r| (r.version, r.reader)).collect();
        all.sort_by_key(|(reader, ..)| *reader);
        crossing.sort_by_key(|(_, reader)| *reader);
        assert!(edges.all().eq(all));
        assert!(edges.crossing().eq(crossing));
    }

    #[test]
    fn the_book_says_what_a_plain_list_says() {
        let mut state = 1u64;
        let mut draw = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let (mut edges, mut book) = (Edges::default(), PlainBook::default());
        for _ in 0..2_000 {
            let reader = group(draw(GROUPS));
            match draw(5) {
                0 => {
                    let at = book.0.iter().position(|reads| reads.reader == reader);
                    let reads = at.map(|at| book.0.remove(at));
                    let model = reads.as_ref().map_or("a", |reads| reads.model);
                    let freed = edges.remove(model, reader);
                    assert_eq!(freed, reads.map(|reads| reads.from).unwrap_or_default());
                }
                1 => {
                    let reads = book.0.iter_mut().find(|reads| reads.reader == reader);
                    let others = reads.map(|reads| reads.from.split_off(1)).unwrap_or_default();
                    assert_eq!(edges.keep_first(reader), others);
                }
                _ if book.of(reader).is_some() => {}
                _ => {
                    let mut from: Vec<Incarnation> = Vec::new();
                    for _ in 0..1 + draw(3) {
                        let source = group(draw(GROUPS));
                        if !from.contains(&source) && !book.leads_to(source, reader) {
                            from.push(source);
                        }
                    }
                    if from.is_empty() {
                        continue;
                    }
                    let model = ["a", "b"][draw(2) as usize];
                    let (version, crosses) = (version(draw(2)), draw(2) == 0);
                    edges.add(model, version, reader, from.clone(), crosses);
                    book.0.push(PlainReads { reader, model, version, from, crosses });
                }
            }
            assert_same(&edges, &book);
        }
        for number in 0..GROUPS {
            for model in ["a", "b"] {
                edges.remove(model, group(number));
            }
        }
        assert!(edges.sources.is_empty() && edges.readers.is_empty() && edges.crossing.is_empty());
    }

    #[test]
    fn who_has_let_go_is_in_none_of_the_lists() {
        let mut edges = Edges::default();
        edges.add("a", version(1), group(1), vec![group(0), group(2)], true);
        edges.add("a", version(1), group(3), vec![group(0)], false);
        assert_eq!(edges.remove("a", group(1)), [group(0), group(2)]);
        assert_eq!(edges.remove("a", group(3)), [group(0)]);
        assert!(edges.sources.is_empty() && edges.readers.is_empty());
        assert!(edges.coming.is_empty() && edges.crossing.is_empty());
    }

    #[test]
    fn a_reader_out_of_sight_takes_no_place_until_it_reads_anew() {
        let mut edges = Edges::default();
        assert!(!edges.lose_sight(group(1)), "it reads nothing");
        let placed = |edges: &Edges| edges.placed_at(group(0)).collect::<Vec<_>>();
        for reader in [1, 2] {
            edges.add("a", version(1), group(reader), vec![group(0), group(3)], false);
        }
        assert_eq!(placed(&edges), [group(1), group(2)]);
        assert!(edges.lose_sight(group(1)) && !edges.lose_sight(group(1)), "once");
        assert_eq!(placed(&edges), [group(2)]);
        assert_eq!((edges.load(group(0)), edges.load(group(3))), (2, 2), "it may still read");
        edges.keep_first(group(1));
        assert_eq!(placed(&edges), [group(2)]);
        edges.remove("a", group(1));
        edges.add("a", version(1), group(1), vec![group(0)], false);
        assert_eq!(placed(&edges), [group(1), group(2)]);
        edges.lose_sight(group(2));
        edges.remove("a", group(2));
        assert!(edges.out_of_sight.is_empty());
    }

    #[test]
    fn a_chain_through_all_groups_is_followed_to_its_end() {
        let mut edges = Edges::default();
        for number in 1..20 {
            edges.add("a", version(1), group(number), vec![group(number - 1)], false);
        }
        assert!(edges.leads_to(group(19), group(0)) && !edges.leads_to(group(0), group(19)));
        assert_eq!((edges.depth(group(19)), edges.height(group(0), version(1))), (19, 19));
    }

    #[test]
    fn what_goes_in_a_circle_is_walked_to_an_end() {
        // Safeguards keep edges from forming a cycle. A walk must end even so.
        let mut edges = Edges::default();
        edges.add("a", version(1), group(0), vec![group(1)], false);
        edges.add("a", version(1), group(1), vec![group(0)], false);
        edges.add("a", version(1), group(2), vec![group(0), group(1)], false);
        assert!(!edges.leads_to(group(0), group(2)) && !edges.leads_to(group(2), group(3)));
        assert!(edges.leads_to(group(2), group(1)));
        assert!(edges.depth(group(2)) <= 3 && edges.height(group(0), version(1)) <= 3);
    }

    #[test]
    fn a_group_is_filled_with_what_it_reads_and_with_nothing_else() {
        let ([reader, source], [one, two]) = ([1, 2].map(group), [1, 2].map(version));
        let mut edges = Edges::default();
        edges.add("policy", one, reader, vec![source], false);
        assert!(edges.fills(reader, one) && !edges.fills(reader, two) && !edges.fills(source, one));
        edges.remove("policy", reader);
        assert!(!edges.fills(reader, one));
    }
}
