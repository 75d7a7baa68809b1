//! The names of the lanes.

/// How bytes come from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Direct where it works, else TCP. This very process is read over TCP.
    #[default]
    Auto,
    /// `process_vm_readv`: one copy, from the peer's memory into ours. Demanded so, for tests and
    /// measurements, the peer may be this very process.
    Direct,
    /// The peer's data port.
    Tcp,
    /// Memmove within this process, which tests hold the others against:
    /// [`Peer::connect_within`](crate::Peer::connect_within).
    Reference,
}
