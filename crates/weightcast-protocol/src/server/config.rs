//! How a server behaves.

use crate::limits::Limits;
use crate::{Span, TicketKey};

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Tells this life of the server from its others: a random number.
    pub life: u64,
    /// With which the servers of a job prove to each other what was; the same for all of them.
    pub ticket_key: TicketKey,
    /// Which of the servers of its clients' lists this is: no two have the same term.
    pub index: u32,
    /// Length of a session's lease: `ttl` of T1.
    pub lease: Span,
    /// By how many percent clocks may differ in rate: the server waits that much longer, the
    /// client stops that much earlier (T1).
    pub margin_percent: u32,
    /// How long `unpublish`, `update` and `close` wait for readers before they are cut off.
    pub drain_deadline: Span,
    /// How long the last copy of a retained version is held back until it is offloaded; then it is
    /// lost.
    pub offload_deadline: Span,
    /// How long a seed replica may take, from when it is asked for until it holds the version; then
    /// another group may be asked.
    pub seed_deadline: Span,
    /// How long the shards of a staged update may take to copy what they have read into place; the
    /// call's own deadline does not end that.
    pub install_deadline: Span,
    /// Readers that one source may have at once (D1).
    pub fanout: u32,
    /// Sources that one reader may draw from at once where they have nothing else to do; 1: never
    /// more than one.
    pub stripes: u32,
    /// How long a chain of replicas may be that read from each other while being filled (D6).
    pub depth_limit: u32,
    /// Bounds.
    pub limits: Limits,
    /// What the numbers of challenges are drawn with: random, and known to nobody else.
    pub secret: [u64; 2],
    /// Check the invariants after every event, and panic if one is broken. For tests.
    pub paranoid: bool,
    /// Safeguards switched off, so that a test rig can show that it notices.
    #[doc(hidden)]
    pub safeguards: crate::Safeguards,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            life: 0,
            ticket_key: TicketKey::of_secret(b""),
            index: 0,
            lease: Span::from_secs(5),
            margin_percent: 10,
            drain_deadline: Span::from_secs(10),
            offload_deadline: Span::from_secs(60),
            seed_deadline: Span::from_secs(600),
            install_deadline: Span::from_secs(60),
            fanout: 1,
            stripes: 1,
            depth_limit: 64,
            limits: Limits::default(),
            secret: [0; 2],
            paranoid: false,
            safeguards: Default::default(),
        }
    }
}
