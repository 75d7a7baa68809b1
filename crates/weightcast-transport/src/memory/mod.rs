//! Registered memory, and what is done with its bytes: copies, digests, quantisation.

pub(crate) mod allocation;
pub(crate) mod computed;
pub(crate) mod digest;
pub(crate) mod kind;
pub mod quantise;
pub(crate) mod racy;
pub(crate) mod region;
pub(crate) mod stream_copy;
pub(crate) mod sys;
