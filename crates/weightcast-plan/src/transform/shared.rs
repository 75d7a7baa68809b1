//! Blocks that lie with several shards, whose largest magnitudes are exchanged.
//!
//! Every shard makes the same list from the layouts of its group, writes what it has seen of each
//! block, and takes the largest over all. FSDP cuts rows where it likes, so a block of 128 rows has
//! parts with several ranks; tensor and expert parallelism cut at blocks, and nothing is exchanged.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::index::BoxIndex;
use crate::layout::Layout;
use crate::slice::Slice;
use crate::transform::grid::{Grid, block, touched, whole};
use crate::transform::rules::{Rules, Transform};

/// The blocks that some shard of a group holds in part, weight by weight.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shared {
    boxes: BTreeMap<String, Vec<Slice>>,
    len: usize,
}

/// Blocks that are both exchanged and in a shard's own tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedBlocks {
    /// First place in what is exchanged.
    pub at: usize,
    /// First entry in the tables.
    pub table: usize,
    /// How many.
    pub len: usize,
}

impl Shared {
    /// Of a group whose shards have these representations by these rules. Equal for all of them.
    pub fn new(group: &[&Layout], rules: &Rules) -> Self {
        let mut shared = Self::default();
        if group.len() < 2 {
            return shared;
        }
        let mut partial = BTreeMap::<&str, Vec<Slice>>::new();
        for layout in group {
            for (number, entry) in layout.entries().enumerate() {
                let tensor = layout.tensor_of(number as u32);
                let Some(Transform::Fp8(fp8)) = rules.of(tensor.name()) else { continue };
                if tensor.dtype() != DType::F8E4M3 || tensor.shape().len() < 2 {
                    continue;
                }
                let block = block(tensor.shape().len(), fp8);
                let Some(touched) = touched(&entry.slice, &block) else { continue };
                let rest = touched.subtract(&whole(&entry.slice, &block, tensor.shape()));
                partial.entry(tensor.name()).or_default().extend(rest);
            }
        }
        for (name, boxes) in partial {
            let disjoint = disjoint(boxes);
            if !disjoint.is_empty() {
                shared.len += disjoint.iter().map(|b| b.volume() as usize).sum::<usize>();
                shared.boxes.insert(name.to_owned(), disjoint);
            }
        }
        shared
    }

    /// How many blocks are exchanged.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether every shard holds all its blocks whole.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Which of them are in a shard's tables, and where.
    pub fn overlaps(&self, grids: &[Grid]) -> Vec<SharedBlocks> {
        let by_name: BTreeMap<&str, &Grid> =
            grids.iter().map(|grid| (grid.weight.as_str(), grid)).collect();
        let (mut overlaps, mut at) = (Vec::new(), 0);
        for (name, boxes) in &self.boxes {
            for one in boxes {
                if let Some(grid) = by_name.get(name.as_str()) {
                    overlaps.extend(meet(one, at, grid));
                }
                at += one.volume() as usize;
            }
        }
        overlaps
    }
}

/// Boxes that hold what these hold, each element once.
fn disjoint(mut boxes: Vec<Slice>) -> Vec<Slice> {
    boxes.sort_unstable();
    boxes.dedup();
    let index = BoxIndex::new(boxes.iter());
    let rest = |(at, one): (usize, &Slice)| {
        let before = index.near(one).filter(|&other| (other as usize) < at);
        one.subtract_all(before.map(|other| &boxes[other as usize]))
    };
    boxes.iter().enumerate().flat_map(rest).collect()
}

/// The rows that an exchanged box, which begins at `at`, has in common with a grid's table.
fn meet(exchanged: &Slice, at: usize, grid: &Grid) -> Vec<SharedBlocks> {
    let Some(both) = exchanged.intersect(&grid.within) else { return Vec::new() };
    let width = *both.len.last().expect("a grid has dimensions");
    (0..both.volume() / width)
        .map(|row| {
            let mut index = both.start.clone();
            let mut left = row;
            for d in (0..index.len() - 1).rev() {
                index[d] += left % both.len[d];
                left /= both.len[d];
            }
            SharedBlocks {
                at: at + place(&index, exchanged) as usize,
                table: grid.first + place(&index, &grid.within) as usize,
                len: width as usize,
            }
        })
        .collect()
}

/// Row-major number of an index in a box.
fn place(index: &[u64], within: &Slice) -> u64 {
    let dims = index.iter().zip(&within.start).zip(&within.len);
    dims.fold(0, |place, ((index, start), len)| place * len + (index - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantise::Formula;
    use crate::transform::{Fp8, Representation, Rule};
    use crate::{LayoutBuilder, Part};

    fn rules() -> Rules {
        let fp8 = Fp8 { block: (4, 4), ..Fp8::new(Formula::DeepGemm) };
        Rules(vec![Rule { names: "w".to_owned(), transform: Some(Transform::Fp8(fp8)) }])
    }

    /// Rows of a 16 x 8 matrix over as many shards, by torch's rule.
    fn group(of: u64) -> Vec<Representation> {
        let shard = |index: u64| {
            let rows = 16_u64.div_ceil(of);
            let len = rows.min(16_u64.saturating_sub(index * rows));
            let part = Part::new("w").shape([16, 8]).dim(0, index, of);
            let mut builder = LayoutBuilder::new();
            builder.add("w", DType::BF16, &[len, 8], vec![part], 0);
            Representation::new(&builder.build().unwrap(), &rules()).unwrap()
        };
        (0..of).map(shard).collect()
    }

    fn shared(group: &[Representation]) -> Shared {
        Shared::new(&group.iter().map(|one| &one.layout).collect::<Vec<_>>(), &rules())
    }

    #[test]
    fn shards_cut_at_blocks_exchange_nothing() {
        for of in [1, 2, 4] {
            assert!(shared(&group(of)).is_empty(), "{of}");
        }
    }

    /// Six rows each: of the rows of blocks, only 4 to 8 is cut.
    #[test]
    fn blocks_that_are_cut_are_exchanged() {
        let group = group(3);
        let shared = shared(&group);
        assert_eq!(shared.len(), 2);
        let overlap = |at, table, len| SharedBlocks { at, table, len };
        assert_eq!(shared.overlaps(&group[0].grids), [overlap(0, 2, 2)]);
        assert_eq!(shared.overlaps(&group[1].grids), [overlap(0, 0, 2)]);
        assert_eq!(shared.overlaps(&group[2].grids), []);
    }

    /// A weight that comes before by its name, and that the shard in the middle lacks.
    #[test]
    fn a_shard_without_a_weight_counts_its_places_all_the_same() {
        let fp8 = Fp8 { block: (4, 4), ..Fp8::new(Formula::DeepGemm) };
        let rules =
            Rules(vec![Rule { names: "*".to_owned(), transform: Some(Transform::Fp8(fp8)) }]);
        let shard = |weights: &[(&str, u64, u64)]| {
            let mut builder = LayoutBuilder::new();
            for &(name, index, of) in weights {
                let part = Part::new(name).shape([12, 8]).dim(0, index, of);
                builder.add(name, DType::BF16, &[12 / of, 8], vec![part], 0);
            }
            Representation::new(&builder.build().unwrap(), &rules).unwrap()
        };
        let both = |index| shard(&[("v", index, 2), ("w", index, 2)]);
        let group = [both(0), shard(&[("w", 0, 2)]), both(1)];
        let shared = Shared::new(&group.each_ref().map(|one| &one.layout), &rules);
        assert_eq!(shared.len(), 4, "the middle rows of blocks of both");
        let places = |one: &Representation| {
            shared.overlaps(&one.grids).iter().map(|one| one.at).collect::<Vec<_>>()
        };
        assert_eq!(places(&group[0]), [0, 2]);
        assert_eq!(places(&group[1]), [2], "behind the two of the weight that it lacks");
        assert_eq!(places(&group[2]), [0, 2]);
    }

    #[test]
    fn boxes_are_made_disjoint() {
        let slice = |start: [u64; 2], len: [u64; 2]| Slice::new(start, len);
        let boxes = vec![
            slice([0, 0], [2, 4]),
            slice([1, 2], [3, 3]),
            slice([0, 0], [2, 4]),
            slice([3, 3], [1, 1]),
        ];
        let made = disjoint(boxes.clone());
        for row in 0..5 {
            for column in 0..6 {
                let point = slice([row, column], [1, 1]);
                let in_any = boxes.iter().any(|b| b.contains(&point));
                let count = made.iter().filter(|b| b.contains(&point)).count();
                assert_eq!(count, usize::from(in_any), "{row} {column}");
            }
        }
    }
}
