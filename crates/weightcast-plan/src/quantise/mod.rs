//! FP8 block quantisation: weights in e4m3 with one scale for each block, by the formulas that
//! engines and trainers use.
//!
//! The reference: plain arithmetic, bit-exact everywhere but where a formula says otherwise.
//! Faster kernels (`weightcast-transport`) are compared with it.

mod block;
mod e4m3;
mod formula;

pub use block::{Amax, Blocks, QuantiseError, Quantised, quantise};
pub use e4m3::{from_e4m3, to_e4m3};
pub use formula::{Formula, Scale, UnknownFormula};
