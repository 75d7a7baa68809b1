//! Transforms: slices in another representation, made element by element from where they lie.
//!
//! A representation of a shard is an ordinary [`Layout`]: casts and FP8 codes lie packed in one
//! buffer whose bytes are made when they are read, the scales of FP8 blocks in another, and what no
//! rule names stays where it is. So it is published, planned, relayed and verified like any layout,
//! with digests of its own.
//!
//! Codes need the largest magnitude of their whole block. What of a block lies with other shards is
//! exchanged ([`Shared`]), never guessed.

mod cast;
mod error;
mod grid;
mod piece;
mod rules;
mod shared;

use std::collections::BTreeSet;

use crate::dtype::DType;
use crate::entry::Entry;
use crate::error::LayoutError;
use crate::layout::Layout;
use crate::tensor::Tensor;

pub use cast::cast;
pub use error::TransformError;
pub use grid::Grid;
pub use piece::{How, Row, TransformPiece};
pub use rules::{Fp8, Rule, Rules, Transform};
pub use shared::{Shared, SharedBlocks};

/// Where a buffer of a representation's layout comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backing {
    /// The source layout's buffer of this number, as it is.
    Kept(u32),
    /// Bytes that are made when they are read: [`Representation::pieces`] says of what.
    Made,
    /// The scales, grid by grid: [`Representation::grids`].
    Scales,
}

/// One shard's slices in another representation.
#[derive(Debug, Clone)]
pub struct Representation {
    /// What is published.
    pub layout: Layout,
    /// What each of its buffers is.
    pub memory: Vec<Backing>,
    /// What the made buffer consists of, in order and without gaps.
    pub pieces: Vec<TransformPiece>,
    /// The quantised tensors, of which pieces tell the number.
    pub grids: Vec<Grid>,
}

impl Representation {
    /// The representation of a layout by these rules.
    ///
    /// # Errors
    /// [`TransformError`], which names the tensor.
    pub fn new(source: &Layout, rules: &Rules) -> Result<Self, TransformError> {
        let mut making = Making::default();
        for (number, tensor) in source.tensors().iter().enumerate() {
            let entries = source.entries_of(number as u32).map(|entry| source.entry(entry));
            let entries = &entries.collect::<Vec<Entry>>();
            match rules.of(tensor.name()) {
                None => making.keep(tensor, entries),
                Some(Transform::Cast(to)) => making.cast(tensor, entries, *to)?,
                Some(Transform::Fp8(fp8)) => {
                    if source.find(&fp8.scales_of(tensor.name())).is_some() {
                        return Err(TransformError::NameTaken {
                            tensor: tensor.name().to_owned(),
                            scales: fp8.scales_of(tensor.name()),
                        });
                    }
                    making.quantise(tensor, entries, fp8)?;
                }
            }
        }
        making.finish(source)
    }
}

/// A representation on its way. Entries name their buffer by what it will be.
#[derive(Default)]
struct Making {
    tensors: Vec<Tensor>,
    entries: Vec<(Backing, Entry)>,
    pieces: Vec<TransformPiece>,
    grids: Vec<Grid>,
}

impl Making {
    fn keep(&mut self, tensor: &Tensor, entries: &[Entry]) {
        let number = self.tensors.len() as u32;
        self.tensors.push(tensor.clone());
        let kept = |e: &Entry| (Backing::Kept(e.buffer), Entry { tensor: number, ..e.clone() });
        self.entries.extend(entries.iter().map(kept));
    }

    fn cast(
        &mut self,
        tensor: &Tensor,
        entries: &[Entry],
        to: DType,
    ) -> Result<(), TransformError> {
        if to == tensor.dtype() {
            self.keep(tensor, entries);
            return Ok(());
        }
        self.make(tensor, entries, to, How::Cast(to))
    }

    fn quantise(
        &mut self,
        tensor: &Tensor,
        entries: &[Entry],
        fp8: &Fp8,
    ) -> Result<(), TransformError> {
        let grid = Grid::new(tensor, entries, fp8, self.grids.last())?;
        let number = self.grids.len() as u32;
        self.make(tensor, entries, DType::F8E4M3, How::Codes { grid: number })?;
        let scales = self.tensors.len() as u32;
        self.tensors.push(grid.scales_tensor(fp8.scales).map_err(LayoutError::from)?);
        let placed = grid.entries(entries, scales).into_iter();
        self.entries.extend(placed.map(|entry| (Backing::Scales, entry)));
        self.grids.push(grid);
        Ok(())
    }

    /// A piece for each entry, one behind the other.
    fn make(
        &mut self,
        tensor: &Tensor,
        entries: &[Entry],
        to: DType,
        how: How,
    ) -> Result<(), TransformError> {
        let number = self.tensors.len() as u32;
        let changed = Tensor::new(tensor.name(), to, tensor.shape()).map_err(LayoutError::from)?;
        self.tensors.push(changed);
        for entry in entries {
            let at = self.pieces.last().map_or(0, TransformPiece::end);
            let piece = TransformPiece::new(tensor, entry, at, to, how)?;
            self.entries.push((Backing::Made, piece.entry(number)));
            if piece.rows() > 0 {
                self.pieces.push(piece);
            }
        }
        Ok(())
    }

    fn finish(self, source: &Layout) -> Result<Representation, TransformError> {
        let used: BTreeSet<Backing> = self.entries.iter().map(|(of, _)| *of).collect();
        let memory: Vec<Backing> = used.into_iter().collect();
        let bytes = |one: &Backing| match one {
            Backing::Kept(number) => source.buffers()[*number as usize],
            Backing::Made => self.pieces.last().map_or(0, TransformPiece::end),
            Backing::Scales => self.grids.last().map_or(0, Grid::scales_end),
        };
        let buffers = memory.iter().map(bytes).collect();
        let placed = |(of, entry): (Backing, Entry)| {
            let buffer = memory.binary_search(&of).expect("in use") as u32;
            Entry { buffer, ..entry }
        };
        let entries = self.entries.into_iter().map(placed).collect();
        let layout = Layout::new(buffers, self.tensors, entries)?;
        Ok(Representation { layout, memory, pieces: self.pieces, grids: self.grids })
    }
}
