//! Parts: which piece of a published tensor lies in a local one, said by a person.

use crate::error::LayoutError;
use crate::placement::chunk;
use crate::slice::Slice;

/// A piece of a logical tensor: its name, and cuts that narrow it one after the other.
///
/// ```
/// use weightcast_plan::Part;
/// let rows = Part::new("layers.0.q_proj.weight").dim(0, 1, 2); // the second of two halves
/// assert_eq!(rows.slice(&[8, 4]).unwrap().to_string(), "[4:8, 0:4]");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    name: String,
    shape: Option<Vec<u64>>,
    cuts: Vec<PartCut>,
}

/// One narrowing of a dimension, of what earlier cuts left.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartCut {
    Chunk { dim: usize, index: u64, of: u64 },
    Range { dim: usize, start: u64, len: u64 },
}

impl Part {
    /// The whole tensor of this name, until cut.
    pub fn new(name: impl Into<String>) -> Part {
        Part { name: name.into(), shape: None, cuts: Vec::new() }
    }

    /// Chunk `index` of `of` along `dim`, by the rule of `torch.chunk`.
    pub fn dim(mut self, dim: usize, index: u64, of: u64) -> Part {
        self.cuts.push(PartCut::Chunk { dim, index, of });
        self
    }

    /// `len` indices from `start` along `dim`, counted within what earlier cuts left.
    pub fn range(mut self, dim: usize, start: u64, len: u64) -> Part {
        self.cuts.push(PartCut::Range { dim, start, len });
        self
    }

    /// Takes back all cuts: the whole tensor.
    pub fn whole(mut self) -> Part {
        self.cuts.clear();
        self
    }

    /// The tensor's global shape. Without it, the shape comes from the published version.
    pub fn shape(mut self, global: impl Into<Vec<u64>>) -> Part {
        self.shape = Some(global.into());
        self
    }

    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The global shape, where it was given.
    pub fn global_shape(&self) -> Option<&[u64]> {
        self.shape.as_deref()
    }

    /// The box it is of a tensor of this shape.
    pub fn slice(&self, shape: &[u64]) -> Result<Slice, LayoutError> {
        let mut slice = Slice::full(shape);
        for cut in &self.cuts {
            let (PartCut::Chunk { dim, .. } | PartCut::Range { dim, .. }) = *cut;
            if dim >= shape.len() {
                return Err(LayoutError::PartDim {
                    part: self.name.clone(),
                    dim,
                    dims: shape.len(),
                });
            }
            let size = slice.len[dim];
            let (start, len) = match *cut {
                PartCut::Chunk { index, of, .. } if index < of => {
                    let range = chunk(size, index, of);
                    (range.start, range.end - range.start)
                }
                PartCut::Chunk { index, of, .. } => {
                    return Err(LayoutError::PartChunk { part: self.name.clone(), index, of });
                }
                PartCut::Range { start, len, .. } => (start, len),
            };
            if start.checked_add(len).is_none_or(|end| end > size) {
                let part = self.name.clone();
                return Err(LayoutError::PartRange { part, dim, start, len, size });
            }
            slice = slice.with(dim, slice.start[dim] + start, len);
        }
        Ok(slice)
    }
}
