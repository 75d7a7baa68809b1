//! Connects to the Unix socket of a data port of this host.

use crate::base::error::TransportError;
use crate::base::limits::TICK;
use crate::base::patience::Patience;
use crate::wire::local_name::LocalName;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_passcred, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::unix::net::UnixStream;

/// A connection on which the kernel names the sender of all bytes; or why there is none.
///
/// # Errors
/// What ended the patience.
pub(crate) fn connect(
    name: LocalName,
    patience: &Patience<'_>,
) -> Result<io::Result<UnixStream>, TransportError> {
    let (socket, addr) = match prepared(name) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(error.into())),
    };
    loop {
        patience.check("connecting")?;
        match rustix::net::connect(&socket, &addr) {
            Ok(()) => return Ok(Ok(UnixStream::from(socket))),
            // Its backlog was full for a tick.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Ok(Err(error.into())),
        }
    }
}

/// A socket that asks for credentials before the other end can send without them.
fn prepared(
    name: LocalName,
) -> rustix::io::Result<(std::os::fd::OwnedFd, rustix::net::SocketAddrUnix)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_passcred(&socket, true)?;
    set_socket_timeout(&socket, Timeout::Send, Some(TICK))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(TICK))?;
    Ok((socket, name.peer()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A reader that finds the queue full waits: its source is on this host all the same.
    #[test]
    fn a_full_queue_is_waited_for() {
        let name = LocalName::draw();
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &name.peer().unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let soon = || Patience { deadline: Some(Instant::now() + 3 * TICK), ..Default::default() };
        // Nobody accepts; the last one of these finds no room.
        let mut queued = Vec::new();
        let outcome = loop {
            match connect(name, &soon()) {
                Ok(Ok(stream)) => queued.push(stream),
                other => break other.map(|refused| refused.map(drop)),
            }
            assert!(queued.len() < 10, "there is a queue");
        };
        let error = outcome.expect_err("it is not refused");
        assert!(matches!(error, TransportError::Timeout { .. }), "{error}");
        drop(socket);
        let gone = connect(name, &soon()).expect("that is told at once");
        assert!(gone.is_err());
    }

    #[test]
    fn a_connection_names_its_senders_and_wakes_to_look() {
        let name = LocalName::draw();
        let listener =
            std::os::unix::net::UnixListener::bind_addr(&name.address().unwrap()).unwrap();
        let stream = connect(name, &Patience::default()).unwrap().unwrap();
        let _accepted = listener.accept().unwrap();
        assert!(rustix::net::sockopt::socket_passcred(&stream).unwrap());
        // The kernel counts in ticks of its own, and rounds up.
        let ticks = [stream.read_timeout(), stream.write_timeout()].map(|t| t.unwrap().unwrap());
        assert!(ticks.into_iter().all(|tick| (TICK..2 * TICK).contains(&tick)), "{ticks:?}");
        let ended = std::sync::atomic::AtomicBool::new(true);
        let patience = Patience { stop: Some(&ended), ..Patience::default() };
        assert_eq!(connect(name, &patience).err(), Some(TransportError::Cancelled));
    }
}
