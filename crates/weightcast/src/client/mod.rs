//! The client: what a worker holds, and what keeps it alive.
//!
//! Reading order: [`handle`] is what a user calls, and [`open`] is how a handle begins; [`data_address`] says where its
//! data port is. [`control`] is the thread that takes each [`event`] to the session machine and does what the machine asks
//! for. [`connection`] leads to the reference servers. [`memory`] is the registered memory; [`reading`] fills it from
//! other replicas, [`push`] has it filled by them, [`view`] maps what others of the host share, and [`mismatch`] finds where two copies differ. [`aside`] keeps copies beside the registered memory
//! that outlive the handle: offloads and seeds. [`handle_state`] is what handle, control thread and reads share, and
//! [`updated`] is what a call moved.

pub(crate) mod aside;
pub(crate) mod connection;
mod control;
pub(crate) mod data_address;
mod event;
mod handle;
mod handle_state;
pub(crate) mod memory;
pub(crate) mod mismatch;
mod open;
pub(crate) mod push;
pub(crate) mod reading;
pub(crate) mod threads;
mod updated;
mod view;

pub use connection::engines::engines;
pub use connection::record::record;
pub use connection::status::status;
pub use connection::why::why;
pub use handle::process::Owned;
pub use handle::{Interrupted, ReadWatch, ShardHandle};
pub use memory::layout_source::LayoutSource;
pub use mismatch::locate::{Cause, Place};
pub use push::outcome::{PushEnd, PushOutlook, PushTerms, PushWay, Pushed, PushedShard};
pub use reading::plans::PlanFrom;
pub use threads::COPY_THREADS;
pub use updated::{Transfer, Updated};
pub use view::{ShardView, VersionView};
