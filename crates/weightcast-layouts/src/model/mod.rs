//! Models: what a published checkpoint holds, out of its config.

mod checkpoint;
mod config;
mod decoder;
mod description;
mod dims;
mod family;
mod gpt2;
mod gpt_oss;
mod quantisation;
mod role;

pub use checkpoint::Model;
pub use config::{Config, ConfigError};
pub(crate) use dims::Dims;
pub use family::{Family, fill};
pub(crate) use family::intervals;
pub use quantisation::Quantisation;
pub use role::{Member, Role};
