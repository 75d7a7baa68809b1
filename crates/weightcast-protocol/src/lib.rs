//! weightcast: reference server and client session as state machines (pure).
//!
//! The control protocol of TensorHub (arXiv 2604.09107), made safe. Nothing here does I/O, reads a
//! clock, or draws a random number: the same compiled code runs in a job and in the simulator.
//! Identifiers such as S3 or G2 name the invariants in `docs/invariants.md`.
//!
//! Read [`message`] first, then [`server`], then [`session`]. [`recording`] keeps the last minutes of either.
//! [`engine_update`] stands apart: how inference engines take a new version in. The server keeps one thing of it, a
//! fleet's register. [`push`] stands apart too: how senders write a version into the memory of targets.

#![forbid(unsafe_code)]

mod condition;
mod durations;
pub mod engine_update;
mod error;
mod ids;
pub mod limits;
pub mod message;
pub mod push;
pub mod recording;
mod role;
mod safeguards;
mod selector;
pub mod server;
pub mod session;
mod sums;
mod ticket;
mod time;
mod trace_id;
mod violation;

pub use condition::{Condition, Freshness, Oldest, Quorum};
pub use durations::{CallDurations, DurationHistogram};
pub use error::CallError;
pub use ids::{
    Attempt, ConnectionId, ContentDigest, Epoch, ExportId, Generation, Incarnation, Nonce, OpSeq,
    Revision, SessionId, Term, Version,
};
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use safeguards::SWITCHABLE;
#[doc(hidden)]
pub use safeguards::{Safeguard, Safeguards};
pub use selector::Selector;
pub use sums::{ShardSums, Sum};
pub use ticket::{Mac, Proved, TermProof, Ticket, TicketKey};
pub use time::{Span, Time};
pub use trace_id::TraceId;

/// Version of the control protocol. Peers of another version are refused (F35).
pub const PROTOCOL: u32 = 5;
