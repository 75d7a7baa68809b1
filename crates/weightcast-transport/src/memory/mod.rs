//! Registered memory, and what is done with its bytes: copies, digests, quantisation.

mod allocation;
pub(crate) mod computed;
pub(crate) mod digest;
mod host;
pub(crate) mod kind;
pub mod quantise;
mod racy;
pub(crate) mod region;
mod stream_copy;
pub(crate) mod sys;
