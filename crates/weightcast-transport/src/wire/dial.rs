//! Connects to a data port without blocking longer than a tick: even a black hole can be cancelled.

use crate::base::error::TransportError;
use crate::base::patience::Patience;
use crate::wire::poll::{Ready, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

/// # Errors
/// [`TransportError::Unreachable`], or what ended the patience.
pub(crate) fn dial(addr: SocketAddr, patience: &Patience<'_>) -> Result<TcpStream, TransportError> {
    let unreachable = |e: io::Error| TransportError::Unreachable { addr, what: e.to_string() };
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|e| unreachable(e.into()))?;
    match rustix::net::connect(&socket, &addr) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => return Err(unreachable(error.into())),
    }
    loop {
        patience.check("connecting")?;
        let tick = patience.tick().as_millis() as i32;
        match poll(socket.as_fd(), Ready::Writable, tick) {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(unreachable(error)),
        }
    }
    let outcome = rustix::net::sockopt::socket_error(&socket).map_err(io::Error::from);
    outcome.and_then(|outcome| outcome.map_err(io::Error::from)).map_err(unreachable)?;
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false).map_err(unreachable)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::AtomicBool;

    /// Else each look at an answer that has not come would be answered at once, round and round.
    #[test]
    fn a_dialled_socket_blocks() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = dial(listener.local_addr().unwrap(), &Patience::default()).unwrap();
        let flags = rustix::fs::fcntl_getfl(&socket).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
    }

    #[test]
    fn whoever_was_given_up_before_does_not_connect() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let raised = AtomicBool::new(true);
        let patience = Patience { cancel: Some(&raised), ..Patience::default() };
        let given_up = dial(listener.local_addr().unwrap(), &patience).err();
        assert_eq!(given_up, Some(TransportError::Cancelled));
    }
}
