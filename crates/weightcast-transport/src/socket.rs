//! A connection of the data port: TCP, or a Unix socket of this host.

use crate::sys;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    /// To a host that may be another.
    Tcp(TcpStream),
    /// To a process that the kernel names.
    Local(UnixStream),
}

impl Socket {
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// Sets what connections of the data port have in common.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let Self::Tcp(socket) = self else { return Ok(()) };
        socket.set_nodelay(true)?;
        // An idle connection may stay, but not beyond its peer's death.
        rustix::net::sockopt::set_socket_keepalive(socket, true)?;
        Ok(())
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(timeout),
            Self::Local(socket) => socket.set_read_timeout(timeout),
        }
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_write_timeout(timeout),
            Self::Local(socket) => socket.set_write_timeout(timeout),
        }
    }

    /// Ends the connection both ways, if it has not ended.
    pub(crate) fn shut_down(&self) {
        let _already_gone = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Local(socket) => socket.shutdown(Shutdown::Both),
        };
    }

    /// Whether neither end has closed or shut it down, as far as the kernel knows, whatever
    /// still waits to be read.
    pub(crate) fn is_connected(&self) -> bool {
        !sys::is_hung_up(self.as_fd())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Local(socket) => socket.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).read(bytes),
            Socket::Local(socket) => (&*socket).read(bytes),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write(bytes),
            Socket::Local(socket) => (&*socket).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
