//! What the measuring process and a source process say to each other: one JSON value a line.

use serde::{Deserialize, Serialize};

use super::cases::Case;

/// The first line: who the source is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) server: String,
    pub(crate) model: String,
    pub(crate) case: Case,
    pub(crate) shard: u32,
    /// Bytes to serve bare, for a limit to read.
    pub(crate) bare_bytes: Option<u64>,
}

/// Each further line: publish this version; revoke the one before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Publish {
    pub(crate) version: u64,
    /// Whether to fill the memory with the version's content first.
    pub(crate) fill: bool,
}

/// The answer to each line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Registered.
    Ready { bare: Option<Bare> },
    /// Published and sealed.
    Published(Published),
    /// Nothing more will come.
    Failed { error: String },
}

/// Where the bytes are that a limit reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bare {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) export: u64,
}

/// How long it took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Published {
    pub(crate) publish_s: f64,
    /// From the return of `publish` until all bytes were digested.
    pub(crate) seal_s: f64,
}
