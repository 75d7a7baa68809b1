//! Groups: what the shards of one replica hold together.

use std::collections::BTreeMap;

use crate::index::BoxIndex;
use crate::layout::Layout;
use crate::slice::Slice;
use crate::tensor::{Catalog, Tensor};

/// A part of one entry of mine that the same shards of my group hold throughout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Number of the entry in my layout.
    pub entry: u32,
    /// The elements, a box within the entry's slice.
    pub slice: Slice,
    /// How many shards of the group hold them, with me.
    pub copies: u32,
    /// Whether I am the lowest shard that holds them. Over a group every element is counted once.
    pub counted: bool,
}

/// The entries of shard number `shard`, split into cells; `layouts` are those of all shards of the
/// group in order. Cells ascend by entry; empty slices have none. A tied weight's further name has
/// cells of its own, for its own tensor.
///
/// Tensors are the same if name, type and shape are; [`disagreement`] finds shards that differ.
///
/// # Panics
/// If the group has no shard of that number.
pub fn cells(layouts: &[&Layout], shard: usize) -> Vec<Cell> {
    let mine = layouts[shard];
    let twins: Vec<_> = layouts.iter().map(|other| mine.numbers_in(other)).collect();
    let mut cells = Vec::with_capacity(mine.entries().len());
    for tensor in 0..mine.tensors().len() as u32 {
        let peers: Vec<ShardBoxes> = (0..layouts.len())
            .filter(|&other| other != shard)
            .filter_map(|other| {
                let twin = twins[other][tensor as usize]?;
                let same =
                    layouts[other].tensors()[twin as usize] == mine.tensors()[tensor as usize];
                same.then(|| ShardBoxes::new(other as u32, layouts[other], twin))
            })
            .collect();
        for entry in mine.entries_of(tensor) {
            let slice = mine.entry(entry).slice;
            for piece in pieces(&slice, shard as u32, &peers) {
                let (slice, copies) = (piece.slice, piece.copies);
                cells.push(Cell { entry, slice, copies, counted: piece.lowest == shard as u32 });
            }
        }
    }
    cells
}

/// Elements of the catalog's tensors that no shard of the group holds, tensor by tensor.
pub fn missing(layouts: &[&Layout], catalog: &Catalog) -> Vec<(Tensor, Vec<Slice>)> {
    let mut held = BTreeMap::<&str, Vec<Slice>>::new();
    for layout in layouts {
        for (number, entry) in layout.entries().enumerate() {
            let tensor = layout.tensor_of(number as u32);
            if catalog.get(tensor.name()) == Some(tensor) {
                held.entry(tensor.name()).or_default().push(entry.slice);
            }
        }
    }
    let mut missing = Vec::new();
    for tensor in catalog.values() {
        // Replicas hold equal boxes, and sorted boxes leave few remainders at a time.
        let mut held = held.remove(tensor.name()).unwrap_or_default();
        held.sort_unstable();
        held.dedup();
        let rest = Slice::full(tensor.shape()).subtract_all(&held);
        if !rest.is_empty() {
            missing.push((tensor.clone(), rest));
        }
    }
    missing
}

/// The first tensor on which two shards of a group differ in type or shape, as both have it.
pub fn disagreement(layouts: &[&Layout]) -> Option<(Tensor, Tensor)> {
    let mut seen = Catalog::new();
    for tensor in layouts.iter().flat_map(|layout| layout.tensors()) {
        match seen.get(tensor.name()) {
            Some(other) if other != tensor => return Some((other.clone(), tensor.clone())),
            Some(_) => {}
            None => {
                seen.insert(tensor.name().to_owned(), tensor.clone());
            }
        }
    }
    None
}

/// Another shard's boxes of one tensor.
struct ShardBoxes {
    shard: u32,
    slices: Vec<Slice>,
    index: BoxIndex,
}

impl ShardBoxes {
    fn new(shard: u32, layout: &Layout, tensor: u32) -> ShardBoxes {
        let slices: Vec<Slice> =
            layout.entries_of(tensor).map(|entry| layout.entry(entry).slice).collect();
        let index = BoxIndex::new(slices.iter());
        ShardBoxes { shard, slices, index }
    }

    /// Splits a fragment by what this shard holds of it.
    fn share(&self, piece: Fragment) -> Vec<Fragment> {
        let near = self.index.near(&piece.slice);
        let mut both: Vec<Slice> =
            near.filter_map(|at| self.slices[at as usize].intersect(&piece.slice)).collect();
        if both.is_empty() {
            return vec![piece];
        }
        // One shard holds nothing twice, so these are disjoint; how it cuts them does not matter.
        both.sort_unstable();
        both.dedup_by(|next, last| last.join(next));
        let mut shared: Vec<Fragment> = piece
            .slice
            .subtract_all(&both)
            .into_iter()
            .map(|slice| Fragment { slice, ..piece })
            .collect();
        let (copies, lowest) = (piece.copies + 1, piece.lowest.min(self.shard));
        shared.extend(both.into_iter().map(|slice| Fragment { slice, copies, lowest }));
        shared
    }
}

/// A box within an entry, all of whose elements the same shards hold.
struct Fragment {
    slice: Slice,
    /// How many shards hold the box, and the lowest of their numbers.
    copies: u32,
    lowest: u32,
}

/// Splits `slice` where the set of its holders changes.
fn pieces(slice: &Slice, shard: u32, peers: &[ShardBoxes]) -> Vec<Fragment> {
    if slice.is_empty() {
        return Vec::new();
    }
    let mut pieces = vec![Fragment { slice: slice.clone(), copies: 1, lowest: shard }];
    for peer in peers {
        pieces = pieces.into_iter().flat_map(|piece| peer.share(piece)).collect();
    }
    pieces.sort_unstable_by(|a, b| a.slice.cmp(&b.slice));
    pieces
}
