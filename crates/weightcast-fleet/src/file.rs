//! Layouts of all ranks of a side in a file: read off live ranks, or off models without memory.
//!
//! ```json
//! {"format": "weightcast-layouts/1",
//!  "tensors": [["model.norm.weight", "BF16", [64]]],
//!  "ranks": [{"bytes": 128, "holds": [[0, [0], [64], "model.norm.weight", 0]], "tied": []}]}
//! ```
//!
//! An item of `holds` is the number of a tensor, first index and length by dimension, and where the box lies: a buffer of
//! the rank, and the byte of it. `tied` has further names for boxes in `holds`. Everything is checked when it is read.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weightcast_plan::limits::MAX_BYTES;
use weightcast_plan::{DType, Entry, Layout, LayoutError, Slice, Tensor, TensorError};

use crate::cluster::MOST_RANKS;

/// What a file begins with.
const FORMAT: &str = "weightcast-layouts/1";

/// Most bytes of a file: some five million boxes.
pub const MOST_FILE_BYTES: usize = 512 << 20;

/// Why a text has no layouts.
#[derive(Debug, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum LayoutFileError {
    /// Longer than any of a real job.
    #[error("{bytes} bytes; at most {MOST_FILE_BYTES} are read")]
    TooLong { bytes: usize },
    /// No JSON of this form.
    #[error("no layouts in the form {FORMAT}: {0}")]
    Form(#[from] serde_json::Error),
    /// A later form, or another one.
    #[error("its format is {found:?}; this release reads {FORMAT:?}")]
    Format { found: String },
    /// No rank, or too many.
    #[error("{ranks} ranks; a file has 1 to {MOST_RANKS}")]
    Ranks { ranks: usize },
    /// A type that nobody knows.
    #[error("tensor {tensor}: unknown dtype {dtype:?}")]
    DType { tensor: String, dtype: String },
    /// A tensor that cannot be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A name twice.
    #[error("tensor {name} is listed twice")]
    Twice { name: String },
    /// Boxes that cannot be held together.
    #[error("rank {rank}: {error}")]
    Layout { rank: usize, error: Box<LayoutError> },
    /// A box that is no box, or in no place.
    #[error("rank {rank}: number {number} of what it holds {what}")]
    Held { rank: usize, number: usize, what: &'static str },
    /// More in a rank than its memory.
    #[error("rank {rank} holds {held} bytes, and says that it has {bytes}")]
    Bytes { rank: usize, held: u64, bytes: u64 },
    /// Two ranks that mean different tensors by one name.
    #[error("ranks have different tensors of one name: {first} and {second}")]
    Different { first: String, second: String },
}

/// A tensor: name, type, global shape.
type ListedTensor = (String, String, Vec<u64>);

/// A box: number of the tensor, first index, length, buffer, byte of the buffer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListedBox(
    pub(crate) usize,
    pub(crate) Vec<u64>,
    pub(crate) Vec<u64>,
    pub(crate) String,
    pub(crate) u64,
);

impl ListedBox {
    pub(crate) fn slice(&self) -> Slice {
        Slice { start: self.1.clone(), len: self.2.clone() }
    }
}

/// What a rank has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListedRank {
    /// Of all buffers, padding included.
    pub(crate) bytes: u64,
    pub(crate) holds: Vec<ListedBox>,
    /// Further names for boxes in `holds`.
    pub(crate) tied: Vec<ListedBox>,
}

/// The layouts of all ranks of a side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutFile {
    format: String,
    tensors: Vec<ListedTensor>,
    pub(crate) ranks: Vec<ListedRank>,
}

/// The beginning of a file, whatever follows.
#[derive(Deserialize)]
struct FileHeader {
    format: String,
}

impl LayoutFile {
    /// The layout of one rank, whose buffers have these names.
    pub fn of_rank(layout: &Layout, buffers: &[String]) -> LayoutFile {
        let mut rank =
            ListedRank { bytes: layout.buffers().iter().sum(), holds: vec![], tied: vec![] };
        for (number, entry) in (0u32..).zip(layout.entries()) {
            let Entry { tensor, slice, buffer, offset, .. } = entry;
            if slice.is_empty() {
                continue;
            }
            let name = buffers.get(buffer as usize).cloned().unwrap_or_default();
            let held = ListedBox(tensor as usize, slice.start, slice.len, name, offset);
            let list = if layout.is_alias(number) { &mut rank.tied } else { &mut rank.holds };
            list.push(held);
        }
        let tensor =
            |t: &Tensor| (t.name().to_owned(), t.dtype().name().to_owned(), t.shape().to_vec());
        let tensors = layout.tensors().iter().map(tensor).collect();
        LayoutFile { format: FORMAT.to_owned(), tensors, ranks: vec![rank] }
    }

    /// The ranks of all of these, in their order, as one.
    ///
    /// # Errors
    /// Two tensors of one name.
    pub fn joined(files: Vec<LayoutFile>) -> Result<LayoutFile, LayoutFileError> {
        let mut tensors: Vec<ListedTensor> = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut ranks = Vec::new();
        for file in files {
            let mut places = Vec::with_capacity(file.tensors.len());
            for tensor in file.tensors {
                let place = *numbers.entry(tensor.0.clone()).or_insert(tensors.len());
                match tensors.get(place) {
                    None => tensors.push(tensor),
                    Some(first) if *first == tensor => {}
                    Some(first) => {
                        let [first, second] = [format!("{first:?}"), format!("{tensor:?}")];
                        return Err(LayoutFileError::Different { first, second });
                    }
                }
                places.push(place);
            }
            for mut rank in file.ranks {
                for held in rank.holds.iter_mut().chain(&mut rank.tied) {
                    held.0 = places[held.0];
                }
                ranks.push(rank);
            }
        }
        Ok(LayoutFile { format: FORMAT.to_owned(), tensors, ranks })
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn parse(text: &str) -> Result<LayoutFile, LayoutFileError> {
        if text.len() > MOST_FILE_BYTES {
            return Err(LayoutFileError::TooLong { bytes: text.len() });
        }
        let file: LayoutFile = serde_json::from_str(text).map_err(|error| {
            match serde_json::from_str::<FileHeader>(text) {
                Ok(FileHeader { format }) if format != FORMAT => {
                    LayoutFileError::Format { found: format }
                }
                _ => LayoutFileError::Form(error),
            }
        })?;
        if file.format != FORMAT {
            return Err(LayoutFileError::Format { found: file.format });
        }
        let ranks = file.ranks.len();
        if ranks == 0 || ranks as u64 > MOST_RANKS {
            return Err(LayoutFileError::Ranks { ranks });
        }
        let tensors = file.tensors()?;
        let mut names = BTreeSet::new();
        if let Some(twice) = tensors.iter().find(|tensor| !names.insert(tensor.name())) {
            return Err(LayoutFileError::Twice { name: twice.name().to_owned() });
        }
        for (number, rank) in file.ranks.iter().enumerate() {
            check(number, rank, &tensors)?;
        }
        Ok(file)
    }

    /// The tensors, checked one by one.
    pub(crate) fn tensors(&self) -> Result<Vec<Tensor>, LayoutFileError> {
        let tensor = |(name, dtype, shape): &ListedTensor| {
            let known = DType::from_name(dtype).ok_or_else(|| LayoutFileError::DType {
                tensor: name.clone(),
                dtype: dtype.clone(),
            })?;
            Ok(Tensor::new(name.clone(), known, shape.clone())?)
        };
        self.tensors.iter().map(tensor).collect()
    }
}

/// Checks the boxes of a rank as those of a layout are checked that is registered: each within its tensor, none twice.
fn check(number: usize, rank: &ListedRank, tensors: &[Tensor]) -> Result<(), LayoutFileError> {
    let mut used: Vec<Option<u32>> = vec![None; tensors.len()];
    let (mut own, mut buffers, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    let mut held = 0u64;
    for (at, one) in rank.holds.iter().chain(&rank.tied).enumerate() {
        let wrong = |what| LayoutFileError::Held { rank: number, number: at, what };
        let tensor = tensors.get(one.0).ok_or_else(|| wrong("is of no tensor of the file"))?;
        let slice = one.slice();
        if !slice.fits(tensor.shape()) {
            return Err(wrong("is no box of its tensor"));
        }
        if slice.is_empty() {
            return Err(wrong("is empty"));
        }
        let bytes = slice.volume() * tensor.dtype().bits() / 8;
        if one.4.checked_add(bytes).is_none_or(|end| end > rank.bytes.min(MAX_BYTES)) {
            return Err(wrong("lies outside of the rank's memory"));
        }
        let at_tensor = *used[one.0].get_or_insert_with(|| {
            own.push(tensor.clone());
            own.len() as u32 - 1
        });
        held = held.saturating_add(if at < rank.holds.len() { bytes } else { 0 });
        // Each in memory of its own: how boxes share buffers is not asked here.
        let strides = packed(&slice.len, tensor.dtype());
        let buffer = buffers.len() as u32;
        buffers.push(bytes);
        entries.push(Entry { tensor: at_tensor, slice, buffer, offset: 0, strides });
    }
    if held > rank.bytes {
        return Err(LayoutFileError::Bytes { rank: number, held, bytes: rank.bytes });
    }
    Layout::new(buffers, own, entries)
        .map(drop)
        .map_err(|error| LayoutFileError::Layout { rank: number, error: Box::new(error) })
}

/// Bytes from one index to the next, by dimension, of a box without gaps.
fn packed(len: &[u64], dtype: DType) -> Vec<u64> {
    let mut strides = vec![dtype.step_bytes(); len.len()];
    for dim in (0..len.len().saturating_sub(1)).rev() {
        let inner = len[dim + 1] * strides[dim + 1];
        let last = dim + 2 == len.len();
        strides[dim] = if last { inner / dtype.step_elements() } else { inner };
    }
    strides
}

#[cfg(test)]
mod tests;
