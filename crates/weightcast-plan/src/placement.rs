//! Placements: how a tensor is spread over a mesh, with torch's rules.
//!
//! Checked against torch 2.13 on four processes (`tests/placement.rs`).

use std::ops::Range;

use thiserror::Error;

use crate::limits::MAX_PIECES;
use crate::mesh::Mesh;
use crate::slice::Slice;

/// What one mesh axis does to a tensor: torch's DTensor placements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Split along a tensor dimension by the rule of `torch.chunk`.
    Shard {
        /// Tensor dimension.
        dim: usize,
    },
    /// torch's `_StridedShard`: split along `dim` as if `split_factor` shards had been made before,
    /// by axes that stand further right. FSDP2 over tensor parallelism is
    /// `(StridedShard(0, tp), Shard(0))`: TP splits first, FSDP splits the TP shard.
    StridedShard {
        /// Tensor dimension.
        dim: usize,
        /// Number of shards made before.
        split_factor: u64,
    },
    /// A full copy on each rank of the axis.
    Replicate,
}

/// Why a placement gives no slices.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum PlacementError {
    /// The mesh has no such rank.
    #[error("rank {rank} is outside the mesh of {ranks} ranks")]
    Rank { rank: u64, ranks: u64 },
    /// One placement per axis is needed.
    #[error("{placements} placements for a mesh of {axes} axes; give one per axis")]
    Count { placements: usize, axes: usize },
    /// The tensor has no such dimension.
    #[error("axis {axis} shards dimension {dim} of a tensor with {dims}; scalars are replicated")]
    Dim { axis: String, dim: usize, dims: usize },
    /// A split factor of zero, or so many pieces that they cannot be listed.
    #[error("axis {axis}: split factor {split_factor} is not between 1 and {MAX_PIECES}")]
    SplitFactor { axis: String, split_factor: u64 },
    /// The local tensor is no concatenation along one dimension.
    #[error("dimensions {first} and {second} are both interleaved; reshard one of them to Shard")]
    Interleaved { first: usize, second: usize },
}

/// The boxes of a tensor of this shape that `rank` holds.
///
/// The local tensor is their concatenation, in order, along the one dimension in which they
/// differ. One box, unless a strided shard's factor is no product of axis sizes; a rank without
/// elements gets one empty box.
pub fn local_slices(
    shape: &[u64],
    mesh: &Mesh,
    placements: &[Placement],
    rank: u64,
) -> Result<Vec<Slice>, PlacementError> {
    let place = mesh.coordinate(rank).ok_or(PlacementError::Rank { rank, ranks: mesh.size() })?;
    if placements.len() != place.len() {
        return Err(PlacementError::Count { placements: placements.len(), axes: place.len() });
    }
    let cuts = cuts_by_dim(shape, mesh, placements, &place)?;
    let mut slices = vec![Slice::full(shape)];
    let mut interleaved = None;
    for (dim, cuts) in cuts.iter().enumerate() {
        let ranges = local_ranges(shape[dim], cuts);
        if ranges.len() > 1
            && let Some(first) = interleaved.replace(dim)
        {
            return Err(PlacementError::Interleaved { first, second: dim });
        }
        slices = slices
            .iter()
            .flat_map(|s| ranges.iter().map(move |r| s.with(dim, r.start, r.end - r.start)))
            .collect();
    }
    Ok(slices)
}

/// The part of `0..size` that is chunk `index` of `of`: `torch.chunk`'s rule. Chunks have the size
/// rounded up, so trailing ones may be short or empty.
pub fn chunk(size: u64, index: u64, of: u64) -> Range<u64> {
    let each = size.div_ceil(of.max(1));
    let start = each.saturating_mul(index).min(size);
    start..start.saturating_add(each).min(size)
}

/// How one mesh axis cuts a dimension.
#[derive(Clone, Copy)]
struct AxisCut {
    index: u64,
    of: u64,
    split_factor: u64,
}

fn cuts_by_dim(
    shape: &[u64],
    mesh: &Mesh,
    placements: &[Placement],
    place: &[u64],
) -> Result<Vec<Vec<AxisCut>>, PlacementError> {
    let mut cuts = vec![Vec::new(); shape.len()];
    for (at, placement) in placements.iter().enumerate() {
        let (axis, of) = &mesh.axes()[at];
        let (dim, split_factor) = match *placement {
            Placement::Replicate => continue,
            Placement::Shard { dim } => (dim, 1),
            Placement::StridedShard { dim, split_factor } => (dim, split_factor),
        };
        if dim >= shape.len() {
            return Err(PlacementError::Dim { axis: axis.clone(), dim, dims: shape.len() });
        }
        if !(1..=MAX_PIECES as u64).contains(&split_factor) {
            return Err(PlacementError::SplitFactor { axis: axis.clone(), split_factor });
        }
        cuts[dim].push(AxisCut { index: place[at], of: *of, split_factor });
    }
    Ok(cuts)
}

/// The ranges of `0..size` left after all cuts, in local order; never none.
fn local_ranges(size: u64, cuts: &[AxisCut]) -> Vec<Range<u64>> {
    let mut whole: Vec<Range<u64>> = std::iter::once(0..size).collect();
    match shard_order(cuts) {
        Some(order) => {
            for cut in order {
                whole = narrow(&whole, chunk(total(&whole), cut.index, cut.of));
            }
        }
        None => {
            for cut in cuts {
                whole = interleave(&whole, cut);
            }
        }
    }
    if whole.is_empty() {
        // Where torch says that an empty shard starts.
        whole.push(size..size);
    }
    whole
}

/// The cuts in the order in which they were made, if the split factors tell it: each is the
/// product of the cuts made before it by axes further right. (torch:
/// `_maybe_convert_StridedShard_to_shard_order`.) That order is how FSDP2 over TP really splits;
/// reading the placements left to right is not, when the split is uneven.
fn shard_order(cuts: &[AxisCut]) -> Option<Vec<AxisCut>> {
    let mut order: Vec<AxisCut> = Vec::new();
    for cut in cuts.iter().rev() {
        let mut before = 1u64;
        let mut at = 0;
        while before != cut.split_factor {
            before = before.saturating_mul(order.get(at)?.of);
            at += 1;
        }
        order.insert(at, *cut);
    }
    Some(order)
}

/// A strided shard by its definition: split into `split_factor` pieces, chunk each, and
/// concatenate the chunks of this index.
fn interleave(whole: &[Range<u64>], cut: &AxisCut) -> Vec<Range<u64>> {
    let mut kept: Vec<Range<u64>> = Vec::new();
    for piece in 0..cut.split_factor {
        let piece = narrow(whole, chunk(total(whole), piece, cut.split_factor));
        for range in narrow(&piece, chunk(total(&piece), cut.index, cut.of)) {
            match kept.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => kept.push(range),
            }
        }
    }
    kept
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|r| r.end - r.start).sum()
}

/// The part `keep` of the concatenation of `ranges`, without empty ranges.
fn narrow(ranges: &[Range<u64>], keep: Range<u64>) -> Vec<Range<u64>> {
    let mut kept = Vec::new();
    let mut before = 0;
    for range in ranges {
        let len = range.end - range.start;
        let from = keep.start.max(before) - before;
        let to = keep.end.min(before + len).saturating_sub(before);
        if from < to {
            kept.push(range.start + from..range.start + to);
        }
        before += len;
    }
    kept
}
