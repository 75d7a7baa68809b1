//! Configuration of a server.

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::{Span, TicketKey};

/// Readers that one source has at once on its own host, if nobody says otherwise: a replica for each GPU of a usual host.
pub const HOST_FANOUT: u32 = 8;

/// Configuration of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerConfig {
    /// Random number that tells this life of the server from its other lives.
    pub life: u64,
    /// Key of the hashes with which the servers of a job prove terms and tickets to each other; the
    /// same on all of them.
    pub ticket_key: TicketKey,
    /// Place of this server in its clients' lists, so that no two servers take the same term.
    pub index: u32,
    /// Length of a session's lease: `ttl` of T1.
    pub lease: Span,
    /// By how many percent the rates of clocks may differ: the server waits that much longer, the
    /// client stops that much earlier (T1).
    pub margin_percent: u32,
    /// How long `unpublish`, `update` and `close` wait for readers before cutting them off.
    pub drain_deadline: Span,
    /// How long the last copy of a retained version is held back for an offload. After that the
    /// version is lost.
    pub offload_deadline: Span,
    /// How long a seed replica may take from the request until it holds the version. After that
    /// another group may be asked.
    pub seed_deadline: Span,
    /// How long the shards of a staged update may take to install what they have read. The call's
    /// own deadline is postponed for that.
    pub install_deadline: Span,
    /// Readers that one source may have at once in its datacentre, and as many that cross (D1).
    pub fanout: u32,
    /// Readers that one holder of a version may have at once on its own host, where no link is used; never fewer than
    /// `fanout` (D1).
    pub host_fanout: u32,
    /// Sources that one reader may draw from at once, if they have no other readers; 1 switches
    /// striping off.
    pub stripes: u32,
    /// Bytes of a shard from which a read that runs is joined by further sources: what is on its way then is lost.
    pub joins_from: u64,
    /// How many sources may be above a reader, in a chain of replicas that are being filled (D6).
    pub depth_limit: u32,
    /// Bounds on sizes and counts.
    pub limits: Limits,
    /// Secret from which the numbers of challenges are drawn: random, and known to no other
    /// process.
    #[serde(skip)]
    pub secret: [u64; 2],
    /// Tell each stage of each call, for traces: [`Server::poll_stage`](super::Server::poll_stage). A recording
    /// leaves this out: nobody takes the stages of a machine that is played back.
    #[serde(skip)]
    pub tell_stages: bool,
    /// Check the invariants after every event, and panic if one is broken. For tests.
    pub paranoid: bool,
    /// Safeguards switched off, so that a test rig can show that it notices.
    #[doc(hidden)]
    pub safeguards: crate::Safeguards,
}

impl ServerConfig {
    /// How long the server waits for a renewal: longer than the client acts on it.
    pub(in crate::server) fn lease_with_margin(&self) -> Span {
        self.lease.scaled(100 + u64::from(self.margin_percent), 100)
    }

    /// How many readers a source may have that are as far from it as one that is on its host, or is not.
    pub(in crate::server) fn places(&self, beside: bool) -> usize {
        let fanout = self.fanout.max(1);
        (if beside { fanout.max(self.host_fanout) } else { fanout }) as usize
    }
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
            host_fanout: HOST_FANOUT,
            stripes: 1,
            joins_from: 0,
            depth_limit: 64,
            limits: Limits::default(),
            secret: [0; 2],
            tell_stages: false,
            paranoid: false,
            safeguards: Default::default(),
        }
    }
}
