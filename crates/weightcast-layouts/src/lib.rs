//! What a model's config and a parallelism put into the memory of each trainer and engine rank.
#![forbid(unsafe_code)]
pub mod model;
