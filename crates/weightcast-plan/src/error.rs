//! What can be wrong with a layout, and why a plan may not exist.

use std::fmt::Write;

use thiserror::Error;

use crate::dtype::DType;
use crate::limits::{MAX_BYTES, MAX_COPIES, MAX_FRAGMENTS};
use crate::overlap::Overlap;
use crate::slice::Slice;
use crate::tensor::{Tensor, TensorError};

/// Why a layout is refused. Messages name the tensor or the buffer and the next thing to try.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum LayoutError {
    /// A tensor that cannot be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// More things than a layout may have.
    #[error("{count} {what} in one layout; at most {most}")]
    TooMany { what: &'static str, count: usize, most: usize },
    /// Buffers larger than any memory.
    #[error("buffer {buffer} brings the shard to more than {MAX_BYTES} bytes")]
    BufferBytes { buffer: u32 },
    /// One name for two different tensors.
    #[error("tensor {name} is described twice: {first} and {second}")]
    TensorTwice { name: String, first: String, second: String },
    /// An entry refers to a tensor that is not listed.
    #[error("an entry refers to tensor number {tensor} of {tensors}")]
    NoTensor { tensor: u32, tensors: usize },
    /// Something that is not where, or not as, a layout has it.
    #[error("{what} number {number} is not in canonical order or form, as a layout gives it")]
    OutOfOrder { what: &'static str, number: usize },
    /// An entry refers to a buffer that is not listed.
    #[error("tensor {tensor} refers to buffer number {buffer} of {buffers}")]
    NoBuffer { tensor: String, buffer: u32, buffers: usize },
    /// A slice that is no box of its tensor.
    #[error("slice {slice} is outside tensor {tensor}")]
    OutsideTensor { tensor: String, slice: Slice },
    /// A slice of a sub-byte type that begins or ends inside a byte.
    #[error("slice {slice} of tensor {tensor} splits a byte; cut {dtype} at multiples of 2")]
    SplitsByte { tensor: String, dtype: DType, slice: Slice },
    /// Strides that are not one per dimension, or that let rows run into each other.
    #[error("strides {strides:?} of tensor {tensor} {slice}: one per dimension, none overlapping")]
    Strides { tensor: String, slice: Slice, strides: Vec<u64> },
    /// Elements of the last dimension do not lie side by side.
    #[error(
        "tensor {tensor} {slice} steps {stride} bytes in its last dimension, not {expected}; \
         make it contiguous"
    )]
    NotContiguous { tensor: String, slice: Slice, stride: u64, expected: u64 },
    /// An entry reaches past the end of its buffer.
    #[error("tensor {tensor} {slice} ends at byte {end} of buffer {buffer}, which has {bytes}")]
    OutsideBuffer { tensor: String, slice: Slice, buffer: u32, end: u64, bytes: u64 },
    /// One element of a tensor in two places of one shard.
    #[error("tensor {tensor} is held twice: {first} and {second} overlap; register one of them")]
    HeldTwice { tensor: String, first: Slice, second: Slice },
    /// Two different slices in the same bytes.
    #[error(
        "{first} and {second} share bytes {from}..{to} of buffer {buffer}; only equal slices of \
         tensors of equal type and shape may (tied weights)"
    )]
    SharedMemory { buffer: u32, first: String, second: String, from: u64, to: u64 },
    /// Buffers that lie in each other's memory.
    #[error("{0}; give each its own memory, or say that they are the same tensor with also()")]
    Overlap(Box<Overlap>),
    /// Memory interleaved in so irregular a way that its check would take too long.
    #[error("buffer {buffer} interleaves more than {MAX_FRAGMENTS} pieces; pack its tensors")]
    TooFragmented { buffer: u32 },
    /// A part names a dimension that its tensor has not.
    #[error("part {part}: dimension {dim} of a tensor with {dims}")]
    PartDim { part: String, dim: usize, dims: usize },
    /// A part selects what is not there.
    #[error("part {part}: {start} + {len} is outside dimension {dim} of {size}")]
    PartRange { part: String, dim: usize, start: u64, len: u64, size: u64 },
    /// A part is chunk `index` of `of`, which is none.
    #[error("part {part}: there is no chunk {index} of {of}")]
    PartChunk { part: String, index: u64, of: u64 },
    /// `build` needs every shape; `resolve` takes them from a catalog.
    #[error("part {part} has no global shape; give it one or resolve against a catalog")]
    NoShape { part: String },
    /// Parts do not add up to the local tensor.
    #[error(
        "buffer {buffer}: the parts make {got:?} along dimension {along}, the local tensor is \
         {expected:?}; if its end is padding, say so with pad()"
    )]
    Sizes { buffer: String, along: usize, expected: Vec<u64>, got: Vec<u64> },
    /// A part whose other dimensions are not those of the local tensor.
    #[error("buffer {buffer}: part {part} is {got:?}, the local tensor is {expected:?}")]
    PartShape { buffer: String, part: String, expected: Vec<u64>, got: Vec<u64> },
    /// The local tensor's own shape and type are impossible.
    #[error(
        "buffer {buffer}: {dtype} {shape:?} is no array of whole rows of at most {MAX_BYTES} bytes"
    )]
    BufferShape { buffer: String, dtype: DType, shape: Vec<u64> },
    /// Names that the catalog has not.
    #[error("not in the published version: {}{}", listed(names), renamed(names))]
    Unmatched { names: Vec<Unmatched> },
    /// A tensor of another type than the published one.
    #[error(
        "buffer {buffer}: {tensor} is {published} in the published version, {local} here; register \
         memory of the published type, or have the trainer publish this one with Layout.cast"
    )]
    DTypeMismatch { buffer: String, tensor: String, published: DType, local: DType },
    /// A tensor of another shape than the published one.
    #[error("buffer {buffer}: {tensor} is {published:?} in the published version, {local:?} here")]
    ShapeMismatch { buffer: String, tensor: String, published: Vec<u64>, local: Vec<u64> },
}

/// A name without a published tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched {
    /// The name as the layout has it.
    pub name: String,
    /// Up to three published names that look like it, the nearest first.
    pub nearest: Vec<String>,
}

/// For people: the first few names, each with its likely meanings.
fn listed(names: &[Unmatched]) -> String {
    const SHOWN: usize = 8;
    let one = |u: &Unmatched| match u.nearest.is_empty() {
        true => u.name.clone(),
        false => format!("{} (near: {})", u.name, u.nearest.join(", ")),
    };
    let mut text = names.iter().take(SHOWN).map(one).collect::<Vec<_>>().join("; ");
    if names.len() > SHOWN {
        text += &format!("; and {} more", names.len() - SHOWN);
    }
    text
}

/// What names look like that fail for a known reason, and the next thing to try.
fn renamed(names: &[Unmatched]) -> &'static str {
    const PEFT: [&str; 2] = ["base_model.model.", ".base_layer."];
    let all = || names.iter().flat_map(|u| std::iter::once(&u.name).chain(&u.nearest));
    if all().any(|name| PEFT.iter().any(|mark| name.contains(mark))) {
        return "; PEFT wraps names: merge the adapter before publishing, and give rename= to \
                weightcast.torch.layout";
    }
    if names.iter().any(|u| u.name.ends_with("lm_head.weight")) {
        return "; a head that is tied to the embedding is published under the embedding's name only: \
                leave it out here where it is tied too, else have the trainer publish both names \
                (Layout.also)";
    }
    ""
}

/// Why no plan exists.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum PlanError {
    /// Elements that the target wants and no source holds. The first few boxes, and how many more.
    #[error("no source holds {}; publish them or drop them from the layout", boxes(missing, *more))]
    Uncovered { missing: Vec<(String, Slice)>, more: usize },
    /// A source has the name with another type or shape.
    #[error("source shard {source_shard} has {found}, the target wants {wanted}")]
    TensorMismatch { source_shard: u32, found: Box<Tensor>, wanted: Box<Tensor> },
    /// The layouts cut each other into too many pieces.
    #[error("the plan needs more than {MAX_COPIES} copies at tensor {tensor}; pack its rows")]
    TooManyCopies { tensor: String },
    /// A cell that is no part of the target.
    #[error("cell {cell} is no part of the target's layout; make cells from the same layout")]
    ForeignCell { cell: u32 },
}

fn boxes(missing: &[(String, Slice)], more: usize) -> String {
    let mut text = String::new();
    for (at, (tensor, slice)) in missing.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{tensor} {slice}");
    }
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}
