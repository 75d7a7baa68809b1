//! What all rigs share that run real sessions in a made-up world: the simulator and its scenarios,
//! the explorer of all orders, the fuzzer of sessions, the protocol's cluster of tests.
//!
//! A session asks its host for effects ([`weightcast_protocol::session::SessionHost`]). In every
//! rig an effect begins the same way: [`VirtualHost`] books what is served, runs, or is asked for,
//! and strikes it out when the session takes the effect back. A rig implements [`VirtualRuntime`],
//! which has a method for what the rig does beside that, and [`drive`]s it after each input. A new
//! output of a session is booked here, so a rig that does nothing with it needs no change.
//!
//! Each rig has its own
//!
//! - streams: how long one takes to open, what breaks it, in which order messages arrive;
//! - reads: chunk after chunk under faults, a step of the search each, a flow over links, or all at
//!   once;
//! - ends of digests, proofs, copies and seeds: when they come, and which of them fail;
//! - calls of its program, and what it checks when one is answered.
//!
//! The content of a shard, for rigs that look at every chunk, is [`TaggedMemory`].

#![forbid(unsafe_code)]

mod host;
mod memory;
mod mix;
mod runtime;

pub use host::{Exposed, VirtualHost};
pub use memory::{TaggedMemory, chunks_of, tag};
pub use mix::{mix, scramble};
pub use runtime::{VirtualRuntime, drive};
