//! Registered memory, and what is done with its bytes: copies, digests, quantisation.

mod allocation;
pub(crate) mod computed;
pub(crate) mod digest;
mod fused;
mod host;
pub(crate) mod kind;
pub(crate) mod numa;
pub mod quantise;
mod racy;
pub(crate) mod region;
pub(crate) mod shared;
pub(crate) mod shared_view;
mod stream_copy;
pub(crate) mod sys;
