//! weightcast: what a Rust user holds, [`ShardHandle`] and [`serve()`].
//!
//! Binds the three crates that do not know each other: layouts and plans
//! (`weightcast-plan`), the protocol's state machines (`weightcast-protocol`) and the movement of
//! bytes (`weightcast-transport`). To follow a version from trainer to rollout, read
//! `client/mod.rs`, `client/control/mod.rs`, `serve/actor.rs`, `client/reading/route.rs`.

#![forbid(unsafe_code)]

/// The release that this build is: what a server says of itself in its [`Status`].
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

mod auth;
mod client;
mod clock;
mod config;
mod convert;
mod doctor;
mod environment;
mod error;
pub mod fp8;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod lazy;
mod limits;
mod manifest;
mod metrics;
mod per_process;
mod private;
mod recordings;
mod serve;
mod telemetry;
mod transform;
mod verify;
#[cfg(test)]
mod warnings;
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod wire;

pub use auth::{new_token, read_token};
pub use client::{
    COPY_THREADS, Cause, Interrupted, LayoutSource, Owned, Place, PlanFrom, PushEnd, PushOutlook,
    PushTerms, PushWay, Pushed, PushedShard, ReadWatch, ShardHandle, ShardView, Transfer, Updated,
    VersionView, engines, record, status, why,
};
pub use config::{EpochPolicy, Options, Replica, Role};
pub use doctor::{Check, CheckVerdict, ChoiceOf, Examination, doctor, self_test_reader};
pub use error::Error;
pub use metrics::{metrics, metrics_text};
pub use recordings::WrittenRecording;
pub use serve::{HOST_FANOUT, JOINS_FROM, STRIPES, ServeConfig, Server, Status, serve};
pub use telemetry::{
    LogLevel, LogLine, log_lines, log_to_queue, log_to_stderr, set_log_level, wake_log_lines,
};
pub use transform::{Exchange, Transformed};
pub use verify::{
    Comparison, Difference, DifferentRange, HeldBy, MAX_RANGES, MAX_TENSORS, Other, Verdict,
    Verified, Watch, verify,
};
pub use weightcast_plan as plan;
pub use weightcast_protocol::engine_update;
pub use weightcast_protocol::message::Listing;
pub use weightcast_protocol::{
    CallError, Condition, Freshness, Oldest, Quorum, Revision, Selector, Term, Time, Version,
};
pub use weightcast_transport as transport;
