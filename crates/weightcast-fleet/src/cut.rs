//! How a weight is cut among the ranks of a group, and its scales and biases with it.

use weightcast_plan::Slice;

use crate::error::RuleError;
use crate::model::{Family, ModuleTensor};
use crate::record::ParameterPiece;

/// A rank's place in a group of ranks that share a weight: rank `index` of `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupRank {
    pub(crate) index: u64,
    pub(crate) of: u64,
}

impl GroupRank {
    /// The only rank of its group.
    pub(crate) const ALONE: GroupRank = GroupRank { index: 0, of: 1 };
}

/// A range of a tensor's dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) dim: usize,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// How a weight is cut. Rows are what a layer puts out, columns what it takes in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    /// Not at all.
    Whole,
    /// Equal parts of the rows: column-parallel, as the field says (of `y = xA`).
    Rows(GroupRank),
    /// Equal parts of each of so many parts of the rows: several weights that are one tensor.
    Parts { place: GroupRank, parts: u64 },
    /// Equal parts of each of three blocks of the rows, which have these sizes.
    Blocks { place: GroupRank, sizes: [u64; 3] },
    /// Equal parts of the columns: row-parallel.
    Columns(GroupRank),
    /// Heads of `head` rows: each rank has some, or shares one with its neighbours.
    Heads { place: GroupRank, heads: u64, head: u64 },
    /// These rows, whatever the others have.
    Span { start: u64, len: u64 },
}

impl Cut {
    /// The ranges of the weight that the rank has, in the order in which they lie.
    pub(crate) fn ranges(self, weight: &Family) -> Result<Vec<Range>, RuleError> {
        let rows = weight.shape[0];
        let what = &weight.name;
        let of_rows = |(start, len)| Range { dim: 0, start, len };
        Ok(match self {
            Cut::Whole => vec![of_rows((0, rows))],
            Cut::Rows(place) => vec![of_rows(equal(what, rows, place)?)],
            Cut::Parts { place, parts } => {
                let each = rows / parts;
                let (start, len) = equal(what, each, place)?;
                (0..parts).map(|part| of_rows((part * each + start, len))).collect()
            }
            Cut::Blocks { place, sizes } => {
                let mut ranges = Vec::new();
                let mut first = 0;
                for size in sizes {
                    let (start, len) = equal(what, size, place)?;
                    ranges.push(of_rows((first + start, len)));
                    first += size;
                }
                ranges
            }
            Cut::Columns(place) => {
                let (start, len) = equal(what, weight.shape[1], place)?;
                vec![Range { dim: 1, start, len }]
            }
            Cut::Span { start, len } => vec![of_rows((start, len))],
            Cut::Heads { place, heads, head } => {
                let (first, count) = shared_heads(what, heads, place)?;
                vec![of_rows((first * head, count * head))]
            }
        })
    }

    /// Whether ranks have different parts.
    pub(crate) fn is_cut(self) -> bool {
        match self {
            Cut::Whole => false,
            Cut::Span { .. } => true,
            Cut::Rows(place) | Cut::Columns(place) => place.of > 1,
            Cut::Parts { place, .. } | Cut::Blocks { place, .. } | Cut::Heads { place, .. } => {
                place.of > 1
            }
        }
    }
}

/// What of a bias or of scales goes with a range of their weight. Scales are one to a block; only
/// whole weights may have a ragged last one. The bias of a layer cut by columns is whole.
pub(crate) fn follow(
    member: &Family,
    range: Range,
    block: (u64, u64),
    is_cut: bool,
) -> Result<Range, RuleError> {
    match member.member {
        ModuleTensor::Weight => Ok(range),
        ModuleTensor::Bias if range.dim == 0 => Ok(range),
        ModuleTensor::Bias => Ok(Range { dim: 0, start: 0, len: member.shape[0] }),
        ModuleTensor::Scale => {
            let block = if range.dim == 0 { block.0 } else { block.1 };
            let Range { dim, start, len } = range;
            // All parts are of one length, and begin at multiples of it.
            if is_cut && len % block != 0 {
                let what = member.name.clone();
                return Err(RuleError::CutBlock { what, size: len, block });
            }
            Ok(Range { dim, start: start / block, len: len.div_ceil(block) })
        }
    }
}

/// The part of `size` that a place has; all parts are equal.
pub(crate) fn equal(what: &str, size: u64, place: GroupRank) -> Result<(u64, u64), RuleError> {
    if !size.is_multiple_of(place.of) {
        let (what, parts) = (what.to_owned(), place.of);
        return Err(RuleError::Indivisible { what, size, parts });
    }
    let len = size / place.of;
    Ok((place.index * len, len))
}

/// First and number of the key-value heads of a rank: with more ranks than heads, neighbours have
/// the same one.
fn shared_heads(what: &str, heads: u64, place: GroupRank) -> Result<(u64, u64), RuleError> {
    match place.of < heads {
        true => equal(what, heads, place),
        false if place.of.is_multiple_of(heads) => Ok((place.index / (place.of / heads), 1)),
        false => {
            let (what, parts) = (format!("{what}, shared by {} ranks", place.of), heads);
            Err(RuleError::Indivisible { what, size: place.of, parts })
        }
    }
}

/// A range of a family's tensors that lies at `at`.
pub(crate) fn piece(family: &Family, range: Range, at: u64) -> ParameterPiece {
    let mut slice = Slice::full(&family.shape);
    (slice.start[range.dim], slice.len[range.dim]) = (range.start, range.len);
    ParameterPiece {
        tensor: family.name.clone(),
        slice,
        dim: range.dim,
        target_dim: range.dim,
        target_start: at,
        target_index: None,
    }
}
