//! Which copies of a plan bring bytes that lie at the target already, as far as digests tell.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, Range};

use crate::group::Cell;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::slice::Slice;

/// Digests of a shard's entries in one version, by number; of some entries nothing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDigests<D>(Vec<(u32, D)>);

impl<D: Copy> EntryDigests<D> {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of how many entries the digest is known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The digest of an entry.
    pub fn get(&self, entry: u32) -> Option<D> {
        // Where all are known, each lies in the place of its number.
        let at = match self.0.get(entry as usize) {
            Some((number, _)) if *number == entry => entry as usize,
            _ => self.0.binary_search_by_key(&entry, |(number, _)| *number).ok()?,
        };
        Some(self.0[at].1)
    }

    /// Forgets the digests of which `keep` says no.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, D) -> bool) {
        self.0.retain(|&(entry, digest)| keep(entry, digest));
    }
}

impl<D: Copy> Default for EntryDigests<D> {
    fn default() -> Self {
        Self::new()
    }
}

/// In any order; of two digests of one entry the first counts.
impl<D: Copy> FromIterator<(u32, D)> for EntryDigests<D> {
    fn from_iter<I: IntoIterator<Item = (u32, D)>>(digests: I) -> Self {
        let mut sorted: Vec<_> = digests.into_iter().collect();
        sorted.sort_by_key(|(entry, _)| *entry);
        sorted.dedup_by_key(|(entry, _)| *entry);
        Self(sorted)
    }
}

/// What is known of the version to be read, and of the version that the target holds.
///
/// `D` is a digest that adds up: the digests of disjoint boxes of a tensor make that of all of them
/// together. Equal digests of one box mean equal bytes.
#[derive(Debug, Clone, Copy)]
pub struct KnownDigests<'a, D> {
    /// Of the version to be read: the entries of each source shard.
    pub wanted: &'a [EntryDigests<D>],
    /// Of the version that the target holds: the same entries, where any are known.
    pub held: &'a [Option<&'a EntryDigests<D>>],
    /// Of the version that the target holds: its cells. Empty if nothing is known of them.
    pub cells: &'a [D],
}

/// What the digests tell of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchanged<D> {
    /// For each copy of the plan, whether its bytes are the same in both versions.
    pub copies: Vec<bool>,
    /// For each cell its digest in the version to be read, where the source's entries tell it.
    pub cells: Vec<Option<D>>,
}

/// Whose digests tell what of a plan's copies: geometry alone, which is worked out once and holds for every
/// version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanComparison {
    cells: Vec<CellGivers>,
    givers: Vec<Giver>,
    /// Of all givers, one after the other.
    entries: Vec<GivenEntry>,
    /// For each copy of the plan its giver.
    copies: Vec<u32>,
}

/// Who gives a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CellGivers {
    givers: Range<u32>,
    /// How many boxes make the cell up; `None` if those which the givers hold do not.
    boxes: Option<u32>,
}

/// A source shard that gives a part of a cell, and its entries of which some lies in the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Giver {
    source: u32,
    entries: Range<u32>,
}

/// An entry of a source shard, and which of the boxes of a cell its slice is: shards may hold the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GivenEntry {
    entry: u32,
    slice: u32,
}

impl PlanComparison {
    /// For a plan to `target`, whose cells are `cells`, from `sources`: a source beyond them gives no unchanged copy.
    pub fn new(plan: &Plan, target: &Layout, cells: &[Cell], sources: &[&Layout]) -> Self {
        let mut gives = vec![BTreeSet::new(); cells.len()];
        for copy in &plan.copies {
            gives[copy.cell as usize].insert(copy.source);
        }
        let numbers: Vec<_> = sources.iter().map(|source| target.numbers_in(source)).collect();
        let mut of = Self {
            cells: Vec::with_capacity(cells.len()),
            givers: Vec::with_capacity(cells.len()),
            entries: Vec::new(),
            copies: Vec::with_capacity(plan.copies.len()),
        };
        for (cell, gives) in cells.iter().zip(gives) {
            let tensor = target.entry(cell.entry).tensor as usize;
            let mut boxes = CellBoxes::new(&cell.slice);
            let first = of.givers.len() as u32;
            for source in gives {
                let number = numbers.get(source as usize).and_then(|numbers| numbers[tensor]);
                let given = number.map(|number| (sources[source as usize], number));
                of.add(source, given, &mut boxes);
            }
            let givers = first..of.givers.len() as u32;
            of.cells.push(CellGivers { givers, boxes: boxes.number() });
        }
        let giver = |cell: u32, source| {
            let mut givers = of.cells[cell as usize].givers.clone();
            givers.find(|giver| of.givers[*giver as usize].source == source)
        };
        let copies = plan.copies.iter();
        of.copies =
            copies.map(|copy| giver(copy.cell, copy.source).expect("noted above")).collect();
        of
    }

    /// Adds a giver of a cell, with its entries that lie in the cell.
    fn add(&mut self, source: u32, given: Option<(&Layout, u32)>, boxes: &mut CellBoxes<'_>) {
        let first = self.entries.len() as u32;
        if let Some((layout, tensor)) = given {
            for entry in layout.entries_of(tensor) {
                let slice = layout.entry(entry).slice;
                if slice.intersect(boxes.cell).is_some() {
                    self.entries.push(GivenEntry { entry, slice: boxes.add(slice) });
                }
            }
        }
        self.givers.push(Giver { source, entries: first..self.entries.len() as u32 });
    }

    /// Finds the copies whose bytes are the same in both versions. Two things tell it:
    ///
    /// - The entries of a source shard that lie in a cell have the digests in the version to be read
    ///   that they have in the version that is held: all that this shard gives of the cell is unchanged.
    /// - The sources' entries make up the cell, and their digests add up to the cell's: the whole cell is
    ///   unchanged, whatever was known of the entries before.
    ///
    /// Nothing of this looks at memory: whether the target still holds what it held is for the caller to
    /// find out. A source of which nothing is known gives no unchanged copy.
    pub fn unchanged<D: Copy + PartialEq + Default + AddAssign>(
        &self,
        known: &KnownDigests<'_, D>,
    ) -> Unchanged<D> {
        let mut alike: Vec<bool> = self.givers.iter().map(|g| self.is_alike(g, known)).collect();
        let mut told = Vec::new();
        let mut cells = Vec::with_capacity(self.cells.len());
        for (number, cell) in self.cells.iter().enumerate() {
            let sum = self.sum(cell, known.wanted, &mut told);
            if sum.is_some() && sum == known.cells.get(number).copied() {
                alike[as_usize(&cell.givers)].fill(true);
            }
            cells.push(sum);
        }
        let copies = self.copies.iter().map(|giver| alike[*giver as usize]).collect();
        Unchanged { copies, cells }
    }

    /// Of the digests of a source's entries, those by which any copy can be told to be unchanged.
    pub fn of_use<D: Copy>(
        &self,
        source: usize,
        digests: impl Fn(u32) -> Option<D>,
    ) -> EntryDigests<D> {
        let givers = self.givers.iter().filter(|giver| giver.source as usize == source);
        let entries = givers.flat_map(|giver| &self.entries[as_usize(&giver.entries)]);
        entries.filter_map(|given| Some((given.entry, digests(given.entry)?))).collect()
    }

    /// Whether all that a giver has of a cell is known to be the same in both versions.
    fn is_alike<D: Copy + PartialEq>(&self, giver: &Giver, known: &KnownDigests<'_, D>) -> bool {
        let source = giver.source as usize;
        let held = known.held.get(source).copied().flatten();
        let (Some(wanted), Some(held)) = (known.wanted.get(source), held) else { return false };
        let entries = &self.entries[as_usize(&giver.entries)];
        let alike = |of: &GivenEntry| {
            let digest = wanted.get(of.entry);
            digest.is_some() && digest == held.get(of.entry)
        };
        !entries.is_empty() && entries.iter().all(alike)
    }

    /// The digest of a cell, if entries make it up. Two shards that hold one box count once, and only if they say the same
    /// of it. `told` is room for what they say.
    fn sum<D: Copy + PartialEq + Default + AddAssign>(
        &self,
        cell: &CellGivers,
        wanted: &[EntryDigests<D>],
        told: &mut Vec<Option<D>>,
    ) -> Option<D> {
        told.clear();
        told.resize(cell.boxes? as usize, None);
        for giver in &self.givers[as_usize(&cell.givers)] {
            let digests = wanted.get(giver.source as usize)?;
            for of in &self.entries[as_usize(&giver.entries)] {
                let digest = digests.get(of.entry)?;
                if *told[of.slice as usize].get_or_insert(digest) != digest {
                    return None;
                }
            }
        }
        let mut sum = D::default();
        told.iter().try_for_each(|digest| digest.map(|digest| sum += digest))?;
        Some(sum)
    }
}

/// As a range of places.
fn as_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The distinct boxes that lie in a cell.
struct CellBoxes<'a> {
    cell: &'a Slice,
    numbers: BTreeMap<Slice, u32>,
    volume: u64,
}

impl<'a> CellBoxes<'a> {
    fn new(cell: &'a Slice) -> Self {
        Self { cell, numbers: BTreeMap::new(), volume: 0 }
    }

    /// The number of a box.
    fn add(&mut self, slice: Slice) -> u32 {
        let (next, volume) = (self.numbers.len() as u32, slice.volume());
        let number = *self.numbers.entry(slice).or_insert(next);
        if number == next {
            self.volume = self.volume.saturating_add(volume);
        }
        number
    }

    /// How many there are, if they make up the cell: they cover it, so as many elements in boxes that all lie within it
    /// cover none twice.
    fn number(&self) -> Option<u32> {
        let within = self.numbers.keys().all(|slice| self.cell.contains(slice));
        let made = !self.numbers.is_empty() && within && self.volume == self.cell.volume();
        made.then_some(self.numbers.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::num::Wrapping;

    use super::*;

    #[test]
    fn an_entrys_digest_is_found_wherever_it_lies() {
        let of = |numbers: &[u32]| -> EntryDigests<u32> {
            numbers.iter().map(|number| (*number, 10 * number)).collect()
        };
        for numbers in
            [&[][..], &[0], &[0, 1, 2], &[2, 0, 1], &[1, 2], &[0, 2, 5], &[5, 3, 3, 0, 5]]
        {
            let digests = of(numbers);
            for entry in 0..8 {
                let known = numbers.contains(&entry).then_some(10 * entry);
                assert_eq!(digests.get(entry), known, "{numbers:?}");
            }
            assert_eq!(digests.len(), BTreeSet::from_iter(numbers).len());
        }
        let first: EntryDigests<u32> = [(7, 1), (7, 2)].into_iter().collect();
        assert_eq!(first.get(7), Some(1));
    }

    /// Two halves make a cell up; one shard holds both, another the second.
    #[test]
    fn of_a_box_of_which_shards_say_different_things_nothing_is_known() {
        let given = |entry, slice| GivenEntry { entry, slice };
        let comparison = PlanComparison {
            cells: vec![CellGivers { givers: 0..2, boxes: Some(2) }],
            givers: vec![Giver { source: 0, entries: 0..2 }, Giver { source: 1, entries: 2..3 }],
            entries: vec![given(0, 0), given(1, 1), given(0, 1)],
            copies: vec![0, 1],
        };
        let known = |said: [Option<u64>; 2]| {
            let of = |digests: &[(u32, Option<u64>)]| -> EntryDigests<Wrapping<u64>> {
                let digests = digests.iter();
                digests.filter_map(|(entry, said)| Some((*entry, Wrapping((*said)?)))).collect()
            };
            let wanted = [of(&[(0, Some(5)), (1, said[0])]), of(&[(0, said[1])])];
            let known = KnownDigests { wanted: &wanted, held: &[], cells: &[Wrapping(12)] };
            let found = comparison.unchanged(&known);
            assert_eq!(found.copies, [found.cells[0].is_some(); 2]);
            found.cells[0]
        };
        assert_eq!(known([Some(7), Some(7)]), Some(Wrapping(12)));
        for said in [[Some(7), Some(8)], [Some(7), None], [None, Some(7)], [None, None]] {
            assert_eq!(known(said), None, "{said:?}");
        }
    }
}
