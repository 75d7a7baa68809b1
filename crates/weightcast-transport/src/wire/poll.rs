//! Waits for sockets and processes to be ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What to wait for.
#[derive(Clone, Copy)]
pub(crate) enum Ready {
    Readable,
    Writable,
}

/// Waits until `fd` is ready, `milliseconds` at most. True if it is.
pub(crate) fn poll(fd: BorrowedFd<'_>, ready: Ready, milliseconds: i32) -> io::Result<bool> {
    let events = match ready {
        Ready::Readable => libc::POLLIN,
        Ready::Writable => libc::POLLOUT,
    };
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry, exclusively borrowed through the call.
    let count = unsafe { libc::poll(&mut entry, 1, milliseconds) };
    match usize::try_from(count) {
        Ok(count) => Ok(count > 0),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Whether a connection has been closed or shut down by either end.
pub(crate) fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, exclusively borrowed through the call.
    let count = unsafe { libc::poll(&mut entry, 1, 0) };
    count > 0 && entry.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// Waits until one of these can be read, for ever if need be.
pub(crate) fn wait_any(fds: &[Option<BorrowedFd<'_>>]) -> io::Result<()> {
    let entry = |fd: &Option<BorrowedFd<'_>>| libc::pollfd {
        // The kernel skips negative ones.
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut entries: Vec<_> = fds.iter().map(entry).collect();
    // SAFETY: as many entries as the vector has, exclusively borrowed through the call.
    let count = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
    waited(count, io::Error::last_os_error())
}

/// What a wait ended with: a signal ends it as what was waited for does.
fn waited(count: libc::c_int, error: io::Error) -> io::Result<()> {
    if count < 0 && error.kind() != io::ErrorKind::Interrupted { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_that_has_closed_either_direction_is_noticed() {
        let (here, there) = UnixStream::pair().unwrap();
        assert!(!is_hung_up(here.as_fd()));
        there.shutdown(Shutdown::Write).unwrap();
        assert!(is_hung_up(here.as_fd()), "it will not ask again");
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        assert!(is_hung_up(here.as_fd()));
    }

    #[test]
    fn a_poll_says_what_is_ready() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let ready = |ready| poll(here.as_fd(), ready, 0).unwrap();
        assert!(!ready(Ready::Readable) && ready(Ready::Writable));
        there.write_all(&[1]).unwrap();
        assert!(ready(Ready::Readable) && ready(Ready::Writable));
        assert!(poll(here.as_fd(), Ready::Readable, -1).unwrap());
        wait_any(&[None, Some(there.as_fd()), Some(here.as_fd())]).expect("one of them is ready");
    }

    #[test]
    fn a_signal_is_no_failure_of_a_wait() {
        let error = io::Error::from_raw_os_error;
        assert!(waited(1, error(libc::EINVAL)).is_ok(), "an error of before");
        assert!(waited(0, error(libc::EINVAL)).is_ok());
        assert!(waited(-1, error(libc::EINTR)).is_ok());
        assert!(waited(-1, error(libc::EINVAL)).is_err());
    }
}
