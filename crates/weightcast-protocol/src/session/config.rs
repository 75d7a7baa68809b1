//! How a session behaves.

use crate::Span;
use crate::message::Open;

/// How a session behaves. [`SessionConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// What it opens. The session fills in `term`.
    pub open: Open,
    /// Address of the server, for error messages.
    pub server: String,
    /// By how many percent clocks may differ in rate (T1); as the server's.
    pub margin_percent: u32,
    /// Heartbeats sent per lease.
    pub heartbeats_per_lease: u32,
    /// How much longer than its deadline a call is waited for: the server has the first word.
    pub grace: Span,
    /// Pause before the first try to connect again; doubles with each further one.
    pub backoff: Span,
    /// The longest such pause.
    pub backoff_max: Span,
    /// Whether the runtime can serve memory that is still being filled, and go on with a read at
    /// another source ([`super::Output::ExposeFilling`]). Without it every read begins anew.
    pub relays: bool,
    /// Safeguards switched off, so that a test rig can show that it notices.
    #[doc(hidden)]
    pub mutants: crate::mutants::Mutants,
}

impl SessionConfig {
    /// The defaults: 10 % margin, 3 heartbeats a lease, 1 s grace, pauses of 50 ms to 1 s, no relays.
    pub fn new(open: Open, server: impl Into<String>) -> Self {
        Self {
            open,
            server: server.into(),
            margin_percent: 10,
            heartbeats_per_lease: 3,
            grace: Span::from_secs(1),
            backoff: Span::from_millis(50),
            backoff_max: Span::from_secs(1),
            relays: false,
            mutants: Default::default(),
        }
    }
}
