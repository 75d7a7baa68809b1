//! Copies that outlive their handle, in memory beside the registered one.
//!
//! `offload` keeps a version that the registered memory is to lose, and `seed` brings a version near. Both are a
//! `second` replica, with a session and a handle of its own, on a thread of its own. `room` bounds the memory that all
//! of a handle's second replicas take; `copy_aside` copies into it.

mod copy_aside;
pub(super) mod offload;
pub(super) mod room;
pub(super) mod second;
pub(super) mod seed;
