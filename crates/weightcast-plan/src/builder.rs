//! Building a layout by hand: local tensors as concatenations of parts of published ones.

use std::collections::BTreeMap;

use crate::buffer::{Buffer, Concatenation};
use crate::dtype::DType;
use crate::entry::Entry;
use crate::error::{LayoutError, Unmatched};
use crate::layout::Layout;
use crate::nearest::nearest;
use crate::part::Part;
use crate::tensor::{Catalog, Tensor};

/// How many unmatched names get suggestions; all are listed.
const SUGGESTED_FOR: usize = 16;

/// Describes a shard's memory buffer by buffer, in the order in which they are registered.
///
/// ```
/// use weightcast_plan::{DType, LayoutBuilder, Part};
/// let mut builder = LayoutBuilder::new();
/// let qkv = ["q", "k", "v"].map(|x| Part::new(format!("{x}_proj.weight")).shape([8, 4]).dim(0, 1, 2));
/// builder.add("qkv_proj.weight", DType::BF16, &[12, 4], qkv.into(), 0);
/// let layout = builder.build().unwrap();
/// assert_eq!(layout.bytes(), 96);
/// ```
#[derive(Debug, Clone, Default)]
pub struct LayoutBuilder {
    buffers: Vec<Buffer>,
}

impl LayoutBuilder {
    /// A shard without memory.
    pub fn new() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// The next buffer: a packed row-major tensor of `shape` that is the concatenation of `parts`
    /// along dimension `along` of the parts.
    ///
    /// Parts with fewer dimensions than the local tensor see its leading ones as one: a
    /// `[experts, rows, columns]` stack is the concatenation of its experts' `[rows, columns]`.
    pub fn add(
        &mut self,
        buffer: impl Into<String>,
        dtype: DType,
        shape: &[u64],
        parts: Vec<Part>,
        along: usize,
    ) -> &mut LayoutBuilder {
        self.buffers.push(Buffer {
            name: buffer.into(),
            dtype,
            shape: shape.to_vec(),
            padded: false,
            views: vec![Concatenation { parts, along }],
        });
        self
    }

    /// The buffer just added may be longer than its parts: the rest is padding (a vocabulary
    /// rounded up), which weightcast never touches. Without a buffer, nothing.
    pub fn pad(&mut self) -> &mut LayoutBuilder {
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.padded = true;
        }
        self
    }

    /// The buffer just added is also the concatenation of these parts: tied weights. Without a
    /// buffer, nothing.
    pub fn also(&mut self, parts: Vec<Part>, along: usize) -> &mut LayoutBuilder {
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.views.push(Concatenation { parts, along });
        }
        self
    }

    /// Names of the buffers, in order.
    pub fn buffer_names(&self) -> impl Iterator<Item = &str> {
        self.buffers.iter().map(|b| b.name.as_str())
    }

    /// The layout, when every part has its global shape.
    pub fn build(&self) -> Result<Layout, LayoutError> {
        self.assemble(|buffer, part| {
            let shape = part.global_shape();
            let shape = shape.ok_or_else(|| LayoutError::NoShape { part: part.name().into() })?;
            Ok(Tensor::new(part.name(), buffer.dtype, shape)?)
        })
    }

    /// The layout, with types and shapes as published. Errors list every name that is not in the
    /// catalog; types and shapes given here must be the published ones. (What the catalog has and
    /// a group lacks is [`crate::missing`].)
    pub fn resolve(&self, catalog: &Catalog) -> Result<Layout, LayoutError> {
        self.all_matched(catalog)?;
        self.assemble(|buffer, part| {
            let tensor = &catalog[part.name()];
            let (name, tensor_name) = (buffer.name.clone(), tensor.name().to_owned());
            if tensor.dtype() != buffer.dtype {
                return Err(LayoutError::DTypeMismatch {
                    buffer: name,
                    tensor: tensor_name,
                    published: tensor.dtype(),
                    local: buffer.dtype,
                });
            }
            match part.global_shape() {
                Some(shape) if shape != tensor.shape() => Err(LayoutError::ShapeMismatch {
                    buffer: name,
                    tensor: tensor_name,
                    published: tensor.shape().to_vec(),
                    local: shape.to_vec(),
                }),
                _ => Ok(tensor.clone()),
            }
        })
    }

    fn all_matched(&self, catalog: &Catalog) -> Result<(), LayoutError> {
        let parts = self.buffers.iter().flat_map(|b| &b.views).flat_map(|v| &v.parts);
        let mut names: Vec<&str> =
            parts.map(Part::name).filter(|name| !catalog.contains_key(*name)).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(());
        }
        let suggest = |(at, name): (usize, &&str)| Unmatched {
            name: (*name).to_owned(),
            nearest: match at < SUGGESTED_FOR {
                true => nearest(name, catalog.keys().map(String::as_str)),
                false => Vec::new(),
            },
        };
        Err(LayoutError::Unmatched { names: names.iter().enumerate().map(suggest).collect() })
    }

    fn assemble(
        &self,
        tensor_of: impl Fn(&Buffer, &Part) -> Result<Tensor, LayoutError>,
    ) -> Result<Layout, LayoutError> {
        let mut shelf = Shelf::default();
        let mut bytes = Vec::with_capacity(self.buffers.len());
        for (number, buffer) in self.buffers.iter().enumerate() {
            bytes.push(buffer.bytes()?);
            for view in &buffer.views {
                let mut placed = Vec::with_capacity(view.parts.len());
                for part in &view.parts {
                    let tensor = tensor_of(buffer, part)?;
                    let slice = part.slice(tensor.shape())?;
                    placed.push((shelf.number(tensor)?, part, slice));
                }
                shelf.entries.extend(buffer.lay(number as u32, view.along, placed)?);
            }
        }
        Layout::new(bytes, shelf.tensors, shelf.entries)
    }
}

/// The tensors met so far, each once.
#[derive(Default)]
struct Shelf {
    numbers: BTreeMap<String, u32>,
    tensors: Vec<Tensor>,
    entries: Vec<Entry>,
}

impl Shelf {
    fn number(&mut self, tensor: Tensor) -> Result<u32, LayoutError> {
        match self.numbers.get(tensor.name()) {
            None => {
                let number = self.tensors.len() as u32;
                self.numbers.insert(tensor.name().to_owned(), number);
                self.tensors.push(tensor);
                Ok(number)
            }
            Some(&number) if self.tensors[number as usize] == tensor => Ok(number),
            Some(&number) => Err(LayoutError::TensorTwice {
                name: tensor.name().to_owned(),
                first: self.tensors[number as usize].to_string(),
                second: tensor.to_string(),
            }),
        }
    }
}
