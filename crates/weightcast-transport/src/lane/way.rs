//! The names of the lanes.

use std::fmt;

/// How bytes come from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Shared memory where the source has some, else direct where that works, else TCP. This very process is read over TCP.
    #[default]
    Auto,
    /// One copy out of memory that the peer shares ([`Region::allocate_shared`](crate::Region::allocate_shared)), with
    /// no system call. Demanded so, the peer may be this very process.
    Shared,
    /// `process_vm_readv`: one copy, from the peer's memory into ours. Demanded so, for tests and
    /// measurements, the peer may be this very process.
    Direct,
    /// The peer's data port.
    Tcp,
    /// Memmove within this process, which tests hold the others against:
    /// [`Peer::connect_within`](crate::Peer::connect_within).
    Reference,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "the best way",
            Self::Shared => "shared memory",
            Self::Direct => "a direct read",
            Self::Tcp => "TCP",
            Self::Reference => "the reference",
        })
    }
}
