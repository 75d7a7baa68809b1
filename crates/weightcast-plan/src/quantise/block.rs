//! Blocks of a matrix: their largest magnitudes, joined over ranks, and their codes.

use thiserror::Error;

use super::formula::{Formula, Scale};

/// Why a part of a matrix cannot be quantised.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum QuantiseError {
    /// A block without elements.
    #[error("blocks of {rows} x {columns} elements; both must be at least 1")]
    Block { rows: u64, columns: u64 },
    /// Rows and columns that are not in the matrix.
    #[error("rows {first_row}+{rows} and columns {first_column}+{columns} are not in the matrix")]
    Outside { first_row: u64, rows: u64, first_column: u64, columns: u64 },
    /// Not as many values as the part has.
    #[error("{found} values for a part of {wanted}")]
    Values { found: usize, wanted: u64 },
    /// Amaxes of another grid.
    #[error("{found} amaxes for a grid of {wanted} blocks")]
    Grid { found: usize, wanted: usize },
}

/// A matrix cut into blocks, the last ones ragged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Rows and columns of the matrix, in elements.
    pub shape: (u64, u64),
    /// Rows and columns of a block.
    pub block: (u64, u64),
}

/// A part of a matrix that one rank has: a box of rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MatrixBox {
    first: (u64, u64),
    size: (u64, u64),
}

/// The largest magnitude of every block, over the elements seen so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Amax {
    blocks: Blocks,
    formula: Formula,
    values: Vec<f32>,
}

/// A quantised matrix, or part of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantised {
    /// One code for each element, row by row.
    pub codes: Vec<u8>,
    /// One scale for each block of the whole matrix, row by row: `weight_scale_inv`.
    pub scales: Vec<f32>,
}

impl Blocks {
    /// Rows and columns of the grid of scales.
    pub fn grid(&self) -> (u64, u64) {
        (self.shape.0.div_ceil(self.block.0.max(1)), self.shape.1.div_ceil(self.block.1.max(1)))
    }

    /// Whether a part of this place and size is in the matrix, and blocks have elements.
    pub fn check(&self, first: (u64, u64), size: (u64, u64)) -> Result<(), QuantiseError> {
        self.part(first, size).map(|_| ())
    }

    fn part(&self, first: (u64, u64), size: (u64, u64)) -> Result<MatrixBox, QuantiseError> {
        if self.block.0 == 0 || self.block.1 == 0 {
            return Err(QuantiseError::Block { rows: self.block.0, columns: self.block.1 });
        }
        let inside =
            |first: u64, size: u64, all: u64| first.checked_add(size).is_some_and(|end| end <= all);
        match inside(first.0, size.0, self.shape.0) && inside(first.1, size.1, self.shape.1) {
            true => Ok(MatrixBox { first, size }),
            false => Err(QuantiseError::Outside {
                first_row: first.0,
                rows: size.0,
                first_column: first.1,
                columns: size.1,
            }),
        }
    }

    /// The number of the block of an element.
    fn number(&self, row: u64, column: u64) -> usize {
        (row / self.block.0 * self.grid().1 + column / self.block.1) as usize
    }
}

impl Amax {
    /// Nothing seen yet.
    pub fn new(blocks: Blocks, formula: Formula) -> Amax {
        let (rows, columns) = blocks.grid();
        Amax { blocks, formula, values: vec![0.0; (rows * columns) as usize] }
    }

    /// Takes in a part: `size` rows and columns from `first` on, row by row.
    pub fn see(
        &mut self,
        first: (u64, u64),
        size: (u64, u64),
        values: &[f32],
    ) -> Result<(), QuantiseError> {
        let part = self.blocks.part(first, size)?;
        for (row, of_row) in part.rows(values)? {
            for (column, value) in (part.first.1..).zip(of_row) {
                let amax = &mut self.values[self.blocks.number(row, column)];
                *amax = self.formula.larger(*amax, value.abs());
            }
        }
        Ok(())
    }

    /// Joins what another rank has seen of the same matrix. In any order: maxima commute.
    pub fn join(&mut self, others: &[f32]) -> Result<(), QuantiseError> {
        if others.len() != self.values.len() {
            let (found, wanted) = (others.len(), self.values.len());
            return Err(QuantiseError::Grid { found, wanted });
        }
        for (amax, other) in self.values.iter_mut().zip(others) {
            *amax = self.formula.larger(*amax, *other);
        }
        Ok(())
    }

    /// The largest magnitudes, block by block: what ranks that share blocks exchange.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The scales, block by block.
    pub fn scales(&self) -> Vec<Scale> {
        self.values.iter().map(|&amax| self.formula.scale(amax)).collect()
    }

    /// The codes of a part, by the scales of everything seen.
    pub fn codes(
        &self,
        first: (u64, u64),
        size: (u64, u64),
        values: &[f32],
    ) -> Result<Vec<u8>, QuantiseError> {
        let part = self.blocks.part(first, size)?;
        let scales = self.scales();
        let mut codes = Vec::with_capacity(values.len());
        for (row, of_row) in part.rows(values)? {
            let coded = (part.first.1..).zip(of_row);
            codes.extend(coded.map(|(c, &value)| scales[self.blocks.number(row, c)].code(value)));
        }
        Ok(codes)
    }
}

impl MatrixBox {
    /// The rows of its values, each with its number.
    fn rows<'a>(
        &self,
        values: &'a [f32],
    ) -> Result<impl Iterator<Item = (u64, &'a [f32])> + use<'a>, QuantiseError> {
        let wanted = self.size.0.saturating_mul(self.size.1);
        if values.len() as u64 != wanted {
            return Err(QuantiseError::Values { found: values.len(), wanted });
        }
        Ok((self.first.0..).zip(values.chunks((self.size.1 as usize).max(1))))
    }
}

/// A whole matrix, row by row.
pub fn quantise(
    blocks: Blocks,
    formula: Formula,
    values: &[f32],
) -> Result<Quantised, QuantiseError> {
    let mut amax = Amax::new(blocks, formula);
    amax.see((0, 0), blocks.shape, values)?;
    let codes = amax.codes((0, 0), blocks.shape, values)?;
    let scales = amax.scales().iter().map(|scale| scale.stored).collect();
    Ok(Quantised { codes, scales })
}
