//! The client: what a worker holds, and what keeps it alive.
//!
//! [`handle`], [`register`] and [`publish`] are what a user calls, [`open`] how it comes to be,
//! [`process`] that it belongs to one process, and [`reservations`] that no two handles of a process
//! fill the same memory. [`control`] drives the session machine, and [`memory`] does what it
//! wants of the registered memory. [`registration`] is that memory in the light of its group;
//! [`plans`] makes plans once, and [`plan_files`] keeps them from one process to the next;
//! [`route`] binds a plan to a source and reads, where [`networks`] allows to connect to it,
//! [`striping`] spreads it over several; [`reading`] does so off the control thread; [`staging`] is
//! where a staged update reads, [`offload`] makes copies that outlive the handle, by
//! [`copy_aside`], and [`seed`] brings versions near, both in the [`room`] that they have;
//! [`proof`] shows that memory holds what it is said to, [`refusal`] finds why a publication was
//! refused; [`digesting`] shares the work among threads; [`locate`] finds where a read that was
//! refused differs, in [`ranges`] of bytes; [`connection`] leads to the servers, over each one's
//! [`control_port`], which is [`grpc`].

pub(crate) mod connection;
mod control;
mod control_port;
mod copy_aside;
mod difference;
mod digesting;
mod grpc;
mod handle;
mod layouts;
mod locate;
mod memory;
pub(crate) mod networks;
mod offload;
mod open;
mod pace;
mod plan_files;
mod plans;
mod process;
mod proof;
mod publish;
pub(crate) mod ranges;
mod reach;
mod reading;
mod refusal;
mod register;
pub(crate) mod registration;
mod reservations;
mod room;
pub(crate) mod route;
mod second;
mod seed;
mod shared;
mod staging;
pub(crate) mod status;
mod striping;

use weightcast_plan::{Layout, LayoutBuilder};
use weightcast_protocol::Version;

pub use handle::{Interrupted, ShardHandle};
pub use locate::{Cause, Place};
pub use plans::PlanFrom;
pub use process::Owned;
pub use route::THREADS as COPY_THREADS;
pub use status::status;

/// What a read moved, and how fast.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Bytes of this shard's slices.
    pub bytes: u64,
    /// Of those, bytes covered by a digest that was compared with the publisher's.
    pub verified: u64,
    /// From the assignment of a source until all bytes had arrived and were digested.
    pub seconds: f64,
    /// Of those, spent on the plan; nearly nothing from the second version on.
    pub plan_seconds: f64,
    /// Where the plan came from.
    pub plan_from: PlanFrom,
    /// `direct` or `tcp`.
    pub way: String,
    /// Why that way.
    pub way_reason: String,
    /// Replicas that it was drawn from beside the source, each for other ranges.
    pub helpers: Vec<String>,
    /// Bytes that a staged update copied into place once all had arrived; else zero.
    pub staged: u64,
    /// How long that took.
    pub install_seconds: f64,
}

/// What `replicate` or `update` came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Updated {
    /// Whether the memory holds another version now than before.
    pub changed: bool,
    /// What it holds.
    pub version: Option<Version>,
    /// The replica it was read from.
    pub source: Option<String>,
    /// What moved.
    pub transfer: Transfer,
}

/// A layout, or one whose shapes are still to be looked up in a published version.
#[derive(Clone, Debug)]
pub enum LayoutSource {
    /// All shapes are known.
    Known(Layout),
    /// Global shapes that it lacks come from the newest version.
    Open(LayoutBuilder),
}
