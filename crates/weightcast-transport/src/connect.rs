//! Chooses the way to a peer: its memory directly where the kernel permits, else TCP.

use crate::error::TransportError;
use crate::identity::{Identity, NONCE_BYTES};
use crate::sys::{self, Ranges, Ready};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// How bytes come from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Direct where it works, else TCP.
    #[default]
    Auto,
    /// `process_vm_readv`: one copy, from the peer's memory into ours.
    Direct,
    /// The peer's data port.
    Tcp,
}

/// A process of this host whose memory we may read.
pub(crate) struct Direct {
    addr: SocketAddr,
    identity: Identity,
    pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Direct {
    /// Tries it out: the nonce that the peer named over the authenticated connection must be
    /// readable at its pid. That proves same host, same pid namespace and permission at once.
    ///
    /// # Errors
    /// [`TransportError::NoDirect`], which says why not.
    pub(crate) fn probe(addr: SocketAddr, identity: Identity) -> Result<Self, TransportError> {
        let no = |what: &str| TransportError::NoDirect { addr, what: what.to_owned() };
        if !identity.is_local() {
            return Err(no("it runs on another host or in another pid namespace"));
        }
        let pid = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(no("it named no process"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
        let direct = Self { addr, identity, pid: pid.as_raw_nonzero().get(), pidfd };
        match direct.read_nonce() {
            Ok(nonce) if nonce == identity.nonce => Ok(direct),
            Ok(_) => Err(no("another process lives at its pid")),
            Err(error) => Err(no(&error.to_string())),
        }
    }

    fn read_nonce(&self) -> std::io::Result<[u8; NONCE_BYTES]> {
        let mut nonce = [0; NONCE_BYTES];
        let (mut local, mut remote) = (Ranges::default(), Ranges::default());
        local.push(nonce.as_mut_ptr().expose_provenance() as u64, NONCE_BYTES);
        remote.push(self.identity.nonce_address, NONCE_BYTES);
        // SAFETY: the nonce is ours, and looked at only afterwards.
        unsafe { sys::read_process(self.pid, &local, &remote) }?;
        Ok(nonce)
    }

    /// # Errors
    /// [`TransportError::SourceGone`] unless the process of the first probe still lives: its pid
    /// may have been given to another.
    pub(crate) fn verify(&self) -> Result<(), TransportError> {
        let ended = |fd: &OwnedFd| sys::poll(fd.as_fd(), Ready::Readable, 0).unwrap_or(true);
        if self.pidfd.as_ref().is_some_and(ended) {
            return Err(self.gone("its process has ended"));
        }
        match self.read_nonce() {
            Ok(nonce) if nonce == self.identity.nonce => Ok(()),
            Ok(_) => Err(self.gone("another process lives at its pid")),
            Err(error) => Err(self.gone(error)),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    fn gone(&self, what: impl ToString) -> TransportError {
        TransportError::SourceGone { addr: self.addr, what: what.to_string() }
    }
}
