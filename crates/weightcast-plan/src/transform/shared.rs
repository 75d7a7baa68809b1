//! Blocks that lie with several shards, whose largest magnitudes are exchanged.
//!
//! Every shard makes the same list from the layouts of its group, writes what it has seen of each
//! block, and takes the largest over all. FSDP cuts rows where it likes, so a block of 128 rows has
//! parts with several ranks; tensor and expert parallelism cut at blocks, and nothing is exchanged.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::layout::Layout;
use crate::slice::Slice;
use crate::transform::grid::{block, touched, whole};
use crate::transform::{Grid, Rules, Transform};

/// The blocks that some shard of a group holds in part, weight by weight.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shared {
    boxes: BTreeMap<String, Vec<Slice>>,
    len: usize,
}

/// Blocks that are both exchanged and in a shard's own tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
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
            for (number, entry) in layout.entries().iter().enumerate() {
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
        for (name, mut boxes) in partial {
            boxes.sort_unstable();
            boxes.dedup();
            let mut disjoint: Vec<Slice> = Vec::new();
            for one in &boxes {
                let near = disjoint.iter().filter(|other| other.intersect(one).is_some());
                let rest = one.subtract_all(near.cloned().collect::<Vec<_>>().iter());
                disjoint.extend(rest);
            }
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
    pub fn overlaps(&self, grids: &[Grid]) -> Vec<Overlap> {
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

/// The rows that an exchanged box, which begins at `at`, has in common with a grid's table.
fn meet(exchanged: &Slice, at: usize, grid: &Grid) -> Vec<Overlap> {
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
            Overlap {
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
