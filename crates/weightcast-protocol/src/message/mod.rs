//! Messages between client sessions and the reference server.
//!
//! Neither weight bytes nor tensors pass here. Messages name layouts by their digest; manifests
//! travel as opaque blobs beside this stream.

mod announcement;
mod answer;
mod assignment;
mod call;
mod client;
mod open;
mod server;

pub use crate::role::Role;
pub use announcement::{Announcement, Holding, Registration};
pub use answer::{Answer, Listing, Sibling};
pub use assignment::{Assignment, ReadFailure, SourceShard, Witnesses};
pub use call::Call;
pub use client::ClientMessage;
pub use open::{EpochPolicy, Location, Open};
pub use server::ServerMessage;
