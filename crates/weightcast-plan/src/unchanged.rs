//! Which copies of a plan bring bytes that lie at the target already, as far as digests tell.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use crate::group::Cell;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::slice::Slice;

/// Digests of a shard's entries in one version, by number; of some entries nothing is known.
pub type EntryDigests<D> = BTreeMap<u32, D>;

/// What is known of the version to be read, and of the version that the target holds.
///
/// `D` is a digest that adds up: the digests of disjoint boxes of a tensor make that of all of them
/// together. Equal digests of one box mean equal bytes.
#[derive(Debug, Clone, Copy)]
pub struct KnownDigests<'a, D> {
    /// Of the version to be read: the entries of each source shard.
    pub wanted: &'a [EntryDigests<D>],
    /// Of the version that the target holds: the same entries.
    pub held: &'a [EntryDigests<D>],
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

/// Finds the copies whose bytes are the same in both versions. Two things tell it:
///
/// - The entries of a source shard that lie in a cell have the digests in the version to be read
///   that they have in the version that is held: all that this shard gives of the cell is unchanged.
/// - The sources' entries make up the cell, and their digests add up to the cell's: the whole cell is
///   unchanged, whatever was known of the entries before.
///
/// Nothing of this looks at memory: whether the target still holds what it held is for the caller to
/// find out. `target`, `cells` and `sources` are those of the plan; a source beyond them, or one of
/// which nothing is known, gives no unchanged copy.
pub fn unchanged<D: Copy + PartialEq + Default + AddAssign>(
    plan: &Plan,
    target: &Layout,
    cells: &[Cell],
    sources: &[&Layout],
    known: &KnownDigests<'_, D>,
) -> Unchanged<D> {
    let mut givers = vec![BTreeSet::new(); cells.len()];
    for copy in &plan.copies {
        givers[copy.cell as usize].insert(copy.source);
    }
    let numbers: Vec<_> = sources.iter().map(|source| target.numbers_in(source)).collect();
    let mut found = Unchanged { copies: Vec::new(), cells: Vec::with_capacity(cells.len()) };
    let mut alike = BTreeSet::new();
    for (number, (cell, givers)) in cells.iter().zip(&givers).enumerate() {
        let tensor = target.entry(cell.entry).tensor as usize;
        let mut parts = CellParts::new(&cell.slice);
        for &source in givers {
            let entries = Given { source: source as usize, known };
            let of = numbers.get(entries.source).and_then(|numbers| numbers[tensor]);
            let of = of.map_or(0..0, |tensor| sources[entries.source].entries_of(tensor));
            let near = of.filter_map(|entry| {
                let slice = sources[entries.source].entry(entry).slice;
                slice.intersect(&cell.slice).map(|_| (entry, slice))
            });
            let near: Vec<_> = near.collect();
            if !near.is_empty() && near.iter().all(|(entry, _)| entries.are_alike(*entry)) {
                alike.insert((number as u32, source));
            }
            near.into_iter().for_each(|(entry, slice)| parts.add(slice, entries.wanted(entry)));
        }
        let sum = parts.sum();
        if sum.is_some() && sum == known.cells.get(number).copied() {
            alike.extend(givers.iter().map(|&source| (number as u32, source)));
        }
        found.cells.push(sum);
    }
    found.copies = plan.copies.iter().map(|c| alike.contains(&(c.cell, c.source))).collect();
    found
}

/// What is known of the entries of one source shard.
struct Given<'a, D> {
    source: usize,
    known: &'a KnownDigests<'a, D>,
}

impl<D: Copy + PartialEq> Given<'_, D> {
    fn wanted(&self, entry: u32) -> Option<D> {
        self.known.wanted.get(self.source)?.get(&entry).copied()
    }

    /// Whether an entry is known to be the same in both versions.
    fn are_alike(&self, entry: u32) -> bool {
        let held = self.known.held.get(self.source).and_then(|held| held.get(&entry).copied());
        held.is_some() && held == self.wanted(entry)
    }
}

/// The source entries that give a cell, each box once, with its digest.
struct CellParts<'a, D> {
    cell: &'a Slice,
    boxes: BTreeMap<Slice, Option<D>>,
    volume: u64,
}

impl<'a, D: Copy + PartialEq + Default + AddAssign> CellParts<'a, D> {
    fn new(cell: &'a Slice) -> Self {
        Self { cell, boxes: BTreeMap::new(), volume: 0 }
    }

    /// Two shards that hold one box count once, and only if they say the same of it.
    fn add(&mut self, slice: Slice, digest: Option<D>) {
        let volume = slice.volume();
        match self.boxes.get_mut(&slice) {
            Some(known) if *known == digest => {}
            Some(known) => *known = None,
            None => {
                self.boxes.insert(slice, digest);
                self.volume = self.volume.saturating_add(volume);
            }
        }
    }

    /// The digest of the cell, if the boxes make it up: they cover it, so as many elements in boxes
    /// that all lie within it cover none twice.
    fn sum(&self) -> Option<D> {
        let within = self.boxes.keys().all(|slice| self.cell.contains(slice));
        if self.boxes.is_empty() || !within || self.volume != self.cell.volume() {
            return None;
        }
        let mut sum = D::default();
        self.boxes.values().try_for_each(|digest| digest.map(|digest| sum += digest))?;
        Some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Toy(u64);

    impl AddAssign for Toy {
        fn add_assign(&mut self, other: Self) {
            self.0 += other.0;
        }
    }

    #[test]
    fn of_a_box_of_which_shards_say_different_things_nothing_is_known() {
        let halves = [0, 2].map(|start| Slice::new([start], [2]));
        let cell = Slice::new([0], [4]);
        let known = |said: [Option<u64>; 2]| {
            let mut parts = CellParts::new(&cell);
            parts.add(halves[0].clone(), Some(Toy(5)));
            said.into_iter().for_each(|digest| parts.add(halves[1].clone(), digest.map(Toy)));
            parts.sum()
        };
        assert_eq!(known([Some(7), Some(7)]), Some(Toy(12)));
        for said in [[Some(7), Some(8)], [Some(7), None], [None, Some(7)], [None, None]] {
            assert_eq!(known(said), None, "{said:?}");
        }
    }
}
