//! Where readers come in: the TCP port, and beside it a Unix socket for those of this host.

use crate::credentials;
use crate::local_name::LocalName;
use crate::socket::Socket;
use crate::sys;
use rustix::net::Shutdown;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

/// The listening sockets of one data port.
pub(crate) struct Listener {
    tcp: TcpListener,
    local: Option<(LocalName, UnixListener)>,
}

impl Listener {
    /// Opens both. Without the local one readers of this host come over TCP.
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let tcp = TcpListener::bind(addr)?;
        tcp.set_nonblocking(true)?;
        let local = bind_local().inspect_err(|error| {
            tracing::warn!(%error, "no Unix socket beside the data port: all readers use TCP");
        });
        Ok(Self { tcp, local: local.ok() })
    }

    pub(crate) fn addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// What readers of this host connect to.
    pub(crate) fn name(&self) -> Option<LocalName> {
        self.local.as_ref().map(|(name, _)| *name)
    }

    /// Waits for newcomers: one of each kind at most, so that neither keeps the other out.
    ///
    /// # Errors
    /// What the system said, if nobody came.
    pub(crate) fn accept(&self) -> io::Result<Vec<Socket>> {
        let local = self.local.as_ref().map(|(_, listener)| listener);
        sys::wait_any(&[Some(self.tcp.as_fd()), local.map(AsFd::as_fd)])?;
        let tcp = ready(self.tcp.accept()).map(|come| come.map(|(socket, _)| Socket::Tcp(socket)));
        let local = local.map_or(Ok(None), |listener| ready(listener.accept()));
        let local = local.map(|come| come.map(|(socket, _)| Socket::Local(socket)));
        match [tcp, local] {
            [Err(error), Ok(None) | Err(_)] | [Ok(None), Err(error)] => Err(error),
            come => {
                let come = come.into_iter().filter_map(Result::ok).flatten();
                Ok(come.filter(is_own_user).collect())
            }
        }
    }

    /// Lets nobody in any more, and wakes whoever waits.
    pub(crate) fn close(&self) {
        let _already_down = rustix::net::shutdown(&self.tcp, Shutdown::Both);
        if let Some((_, local)) = &self.local {
            let _already_down = rustix::net::shutdown(local, Shutdown::Both);
        }
    }
}

fn bind_local() -> io::Result<(LocalName, UnixListener)> {
    let name = LocalName::draw();
    let listener = UnixListener::bind_addr(&name.address()?)?;
    listener.set_nonblocking(true)?;
    Ok((name, listener))
}

/// Nobody is there any more, or not yet: no error.
fn ready<T>(accepted: io::Result<T>) -> io::Result<Option<T>> {
    let passing = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
    match accepted {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if passing.contains(&error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Only processes of the same user may ask for addresses: others could not use them.
fn is_own_user(socket: &Socket) -> bool {
    let own = rustix::process::geteuid().as_raw();
    !socket.is_local() || credentials::of_peer(socket.as_fd()).is_ok_and(|who| who.uid == own)
}
