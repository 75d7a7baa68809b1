//! Why there is no representation of a layout.

use thiserror::Error;

use crate::dtype::DType;
use crate::error::LayoutError;

/// Why a layout has no such representation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum TransformError {
    /// Elements that cannot be cast or quantised.
    #[error(
        "{tensor} is {from}: only F32, BF16 and F16 are made into {to}; leave it out of the rule"
    )]
    Elements { tensor: String, from: DType, to: DType },
    /// Blocks need rows and columns.
    #[error(
        "{tensor} has {dims} dimensions: FP8 blocks need rows and columns; leave it out of the rule"
    )]
    NoMatrix { tensor: String, dims: usize },
    /// A block without elements, or larger than can be counted.
    #[error("FP8 blocks of {rows} x {columns} elements; both must be from 1 to 1048576")]
    Block { rows: u64, columns: u64 },
    /// Scales that are not powers of two do not fit an exponent.
    #[error(
        "formula {formula} has scales in F32, not {scales}: those of {exponents} are powers of two"
    )]
    Scales { formula: &'static str, scales: DType, exponents: &'static str },
    /// A tensor has the name that scales would get.
    #[error(
        "the scales of {tensor} would be called {scales}, which the layout has; choose another suffix"
    )]
    NameTaken { tensor: String, scales: String },
    /// The layout that comes out is none.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}
