//! Configuration of a session.

use serde::{Deserialize, Serialize};

use crate::Span;
use crate::message::Open;

/// Configuration of a session. [`SessionConfig::new`] has the defaults.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionConfig {
    /// What the session opens. The session fills in `ticket`, `rejoins` and `activate`.
    pub open: Open,
    /// Addresses of the servers, for error messages.
    pub server: String,
    /// How many servers there are to try, in the same order for all clients.
    pub servers: usize,
    /// How long the session looks for a server that takes its group over, and keeps what it holds.
    /// Zero: the session ends when it loses its server.
    pub reconnect: Span,
    /// How long the runtime may take to open a stream. Longer than the runtime takes to find that a
    /// stream can't be opened.
    pub connect_patience: Span,
    /// How long a server may take to answer `Open`.
    pub patience: Span,
    /// By how many percent clocks may differ in rate (T1); the same as the server's.
    pub margin_percent: u32,
    /// Heartbeats sent per lease.
    pub heartbeats_per_lease: u32,
    /// How long a call waits for the server's answer beyond its deadline. The server knows the
    /// whole group, so it decides first.
    pub grace: Span,
    /// Pause before the first try to connect again; doubles with each round of the list.
    pub backoff: Span,
    /// The longest pause between tries.
    pub backoff_max: Span,
    /// Length of the windows in which a read's pace is measured.
    pub pace_window: Span,
    /// A pace below this, in bytes a second, is slow, even if the shard never had more.
    pub slow_pace: u64,
    /// A slow read stays at its source if the read would end within this time.
    pub slow_patience: Span,
    /// How often the server is told the progress of a read, for people. `None`: never.
    pub progress_every: Option<Span>,
    /// Whether the runtime can serve memory that is still being filled, and continue a read at
    /// another source ([`super::Output::ExposeFilling`]). If not, every read begins anew.
    pub relays: bool,
    /// Safeguards switched off, so that a test rig can show that it notices.
    #[doc(hidden)]
    pub safeguards: crate::Safeguards,
}

impl SessionConfig {
    /// `server`: one address, or several with commas between them.
    ///
    /// The defaults: 60 s to find another server, 10 s for a stream to one, 2 s for its answer, 10 %
    /// margin, 3 heartbeats a lease, 1 s grace, pauses of 50 ms to 1 s, no progress told, no relays.
    pub fn new(open: Open, server: impl Into<String>) -> Self {
        let server = server.into();
        Self {
            open,
            servers: server.split(',').count(),
            server,
            reconnect: Span::from_secs(60),
            connect_patience: Span::from_secs(10),
            patience: Span::from_secs(2),
            margin_percent: 10,
            heartbeats_per_lease: 3,
            grace: Span::from_secs(1),
            backoff: Span::from_millis(50),
            backoff_max: Span::from_secs(1),
            pace_window: crate::limits::PACE_WINDOW,
            slow_pace: crate::limits::SLOW_PACE,
            slow_patience: crate::limits::SLOW_PATIENCE,
            progress_every: None,
            relays: false,
            safeguards: Default::default(),
        }
    }
}
