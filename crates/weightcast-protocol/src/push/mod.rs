//! A push as state machines: senders write a version into the memory of targets, each under a grant of the target's.
//!
//! Machines, each with inputs, `poll_output()` and, where time matters, `next_timeout()` and `handle_timeout(now)`:
//! - [`PushTarget`], at each worker whose memory is filled: opens a grant for each sender, counts what was written, closes
//!   all grants before it compares the content, and lets nothing be served that is not the version.
//! - [`PushSender`], at each worker that has bytes to give: writes what grants allow, and stops before its memory changes.
//! - [`PushDriver`], once in a push: keeps the routes, which say for each parcel of each target who is to write the parcel;
//!   moves the parcels of a sender that is lost or slow; takes in targets that join, and lets go of targets that leave.
//!
//! The machines know no address, no byte and no secret: a grant has a name here, and the transport's half of the grant
//! proves the sender.
//!
//! Reading order: `names`, `parcel`, `grant`, `order` (what the driver tells a target), `report` (what a target says), `target`,
//! `sender`, `config`, `outcome`, `loads` (who sends how much), `routes` (the rows of one target), `driver`.

mod config;
mod driver;
mod grant;
mod loads;
mod names;
mod order;
mod outcome;
mod parcel;
mod report;
mod routes;
mod sender;
mod target;
#[cfg(test)]
mod tests;

pub use config::PushConfig;
pub use driver::{PushDriver, PushInput, PushOutput};
pub use grant::{ParcelsWritten, PushGrant};
pub use names::{PushNumber, SenderId, TargetId};
pub use order::{PushCommand, PushOrder};
pub use outcome::{PushResult, TargetEnd, TargetOutcome};
pub use parcel::{PushParcel, TargetNeeds};
pub use report::{PushReport, TargetState};
pub use sender::{PushSender, SendRefusal, SendRefused, SenderOutput};
pub use target::{PushTarget, TargetOutput};
