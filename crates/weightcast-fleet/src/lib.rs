//! What a model's config and a parallelism put into the memory of each trainer and engine rank.
//!
//! # Reading order
//!
//! 1. [`model`]: a config becomes [`model::Family`]s of tensors, each with a [`model::TensorRole`]. Rules
//!    below speak of roles, never of models.
//! 2. [`Spec`]: a parallelism in one word; [`Cluster`]: a model on its ranks.
//! 3. [`trainer`] and [`engine`]: the rules.
//! 4. [`RankLayout`]: what comes out, in the form of the layout data set.
//! 5. [`LayoutFile`]: the same of live ranks, as they say it themselves.
//! 6. [`movement`]: what moving a version between two clusters takes.

#![forbid(unsafe_code)]

mod cluster;
mod cut;
pub mod engine;
mod error;
mod file;
pub mod model;
pub mod movement;
mod record;
mod spec;
pub mod trainer;

pub use cluster::Cluster;
pub use error::RuleError;
pub use file::{LayoutFile, LayoutFileError, MOST_FILE_BYTES};
pub use record::{ParameterPiece, RankLayout, Record};
pub use spec::{Quantise, Side, Spec, SpecError};
