//! A connection of the data port: TCP, or a Unix socket of this host.

use crate::wire::poll;
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
        !poll::is_hung_up(self.as_fd())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Of each kind one, with its other end.
    fn pairs() -> [(Socket, Socket); 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = (Socket::Tcp(listener.accept().unwrap().0), Socket::Tcp(there));
        let (here, there) = UnixStream::pair().unwrap();
        [far, (Socket::Local(here), Socket::Local(there))]
    }

    #[test]
    fn either_kind_carries_bytes_until_it_is_shut_down() {
        for (number, (here, there)) in pairs().into_iter().enumerate() {
            here.prepare().unwrap();
            assert_eq!(here.is_local(), number == 1);
            (&here).write_all(b"abc").unwrap();
            (&here).flush().unwrap();
            let mut bytes = [0; 3];
            (&there).read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"abc");
            assert!(here.is_connected() && there.is_connected());
            there.shut_down();
            assert!(!here.is_connected() && !there.is_connected());
            assert_eq!((&here).read(&mut bytes).unwrap(), 0);
            there.shut_down();
        }
    }

    #[test]
    fn each_timeout_is_its_own() {
        let [one, two] = [1, 2].map(Duration::from_secs);
        for (here, _there) in pairs() {
            let timeouts = || match &here {
                Socket::Tcp(s) => [s.read_timeout(), s.write_timeout()].map(Result::unwrap),
                Socket::Local(s) => [s.read_timeout(), s.write_timeout()].map(Result::unwrap),
            };
            assert_eq!(timeouts(), [None, None]);
            here.set_read_timeout(Some(one)).unwrap();
            assert_eq!(timeouts(), [Some(one), None]);
            here.set_write_timeout(Some(two)).unwrap();
            assert_eq!(timeouts(), [Some(one), Some(two)]);
            here.set_read_timeout(None).unwrap();
            assert_eq!(timeouts(), [None, Some(two)]);
        }
    }

    #[test]
    fn a_connection_sends_at_once_and_outlives_no_peer() {
        let [(far, _), _] = pairs();
        let Socket::Tcp(socket) = &far else { unreachable!() };
        let keeps = || rustix::net::sockopt::socket_keepalive(socket).unwrap();
        assert!(!socket.nodelay().unwrap() && !keeps());
        far.prepare().unwrap();
        assert!(socket.nodelay().unwrap() && keeps());
    }
}
