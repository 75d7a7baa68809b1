//! What the rigs have in common that run real sessions in a made-up world: the simulator and its
//! scenarios, the explorer of all orders, the fuzzer of sessions, the protocol's cluster of tests.
//!
//! A session asks its host for effects ([`weightcast_protocol::session::SessionHost`]). In all rigs
//! an effect begins the same way: it is written down as something that is served, runs, or is wanted
//! ([`VirtualHost`]), and is struck out when the session takes it back. A rig implements
//! [`VirtualRuntime`], which has a method for what it does beside that, and [`drive`]s it after each
//! input. A new output of a session is booked here, and a rig that does nothing with it stays as it is.
//!
//! What stays with each rig, since no two do the same:
//! - the streams: how long one takes to open, what breaks it, in which order messages arrive;
//! - how a read goes on: chunk after chunk under faults, a step of the search each, a flow over links,
//!   or all at once;
//! - when digests, proofs, copies and seeds are through, and which of them fail;
//! - the calls of its program, and what it checks when one is answered.
//!
//! [`TaggedMemory`] is a shard's content where a rig looks at every chunk.

#![forbid(unsafe_code)]

mod host;
mod memory;
mod mix;
mod runtime;

pub use host::{Exposed, VirtualHost};
pub use memory::{TaggedMemory, chunks_of, tag};
pub use mix::{mix, scramble};
pub use runtime::{VirtualRuntime, drive};
