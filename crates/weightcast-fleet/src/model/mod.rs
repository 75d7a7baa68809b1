//! Models: what a published checkpoint holds, out of its config.

mod alike;
mod checkpoint;
mod config;
mod decoder;
mod description;
mod dims;
mod family;
mod form;
mod gpt2;
mod gpt_oss;
mod quantisation;
mod role;
mod tower;

pub(crate) use alike::Fused;
pub use checkpoint::ModelSpec;
pub use config::{Config, ConfigError};
pub(crate) use dims::MoeDims;
pub use family::{Family, fill};
pub use quantisation::Quantisation;
pub use role::{ModuleTensor, TensorRole};
