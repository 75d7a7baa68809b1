//! The system calls that take raw ranges of memory.
//!
//! Memory of somebody else's allocator is never borrowed as a slice: its bytes may change under
//! us, and the fence word decides afterwards whether they count.

use libc::iovec;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// No page is smaller.
const PAGE: u64 = 4 << 10;

/// Ranges of memory in the order in which a call fills or sends them; neighbours are merged.
#[derive(Default)]
pub(crate) struct Ranges {
    ranges: Vec<iovec>,
    first: usize,
    bytes: usize,
}

impl Ranges {
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.first = 0;
        self.bytes = 0;
    }

    /// Appends a range, merged with the last where they touch. An empty one is left out.
    #[inline]
    pub(crate) fn push(&mut self, address: u64, len: usize) {
        if len == 0 {
            return;
        }
        if let Some(last) = self.ranges.last_mut()
            && last.iov_base as u64 + last.iov_len as u64 == address
        {
            last.iov_len += len;
            self.bytes += len;
            return;
        }
        self.push_apart(address, len);
    }

    /// Moves all ranges of `other`, of which none is sent yet, behind the own.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.bytes += other.bytes;
        self.ranges.append(&mut other.ranges);
        other.clear();
    }

    /// Appends a range of its own.
    #[inline]
    pub(crate) fn push_apart(&mut self, address: u64, len: usize) {
        self.bytes += len;
        let base = std::ptr::with_exposed_provenance_mut(address as usize);
        self.ranges.push(iovec { iov_base: base, iov_len: len });
    }

    /// Takes the last range away, if any is left.
    pub(crate) fn split_last(&mut self) -> Self {
        let last = self.ranges.pop().filter(|_| self.ranges.len() >= self.first);
        let ranges: Vec<iovec> = last.into_iter().collect();
        let bytes = ranges.iter().map(|range| range.iov_len).sum();
        self.bytes -= bytes;
        Self { ranges, first: 0, bytes }
    }

    /// Where the ranges left begin; there must be some.
    pub(crate) fn address(&self) -> u64 {
        self.ranges[self.first].iov_base as u64
    }

    /// Ranges left.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len() - self.first
    }

    /// Bytes left.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the first `count` bytes: they are done.
    pub(crate) fn advance(&mut self, mut count: usize) {
        self.bytes -= count;
        while count > 0 {
            let range = &mut self.ranges[self.first];
            if count < range.iov_len {
                range.iov_base = range.iov_base.wrapping_byte_add(count);
                range.iov_len -= count;
                return;
            }
            count -= range.iov_len;
            self.first += 1;
        }
    }

    /// The first address of the ranges left that this process cannot write. Content stays.
    ///
    /// # Safety
    /// Nobody else writes to the ranges until the call returns.
    pub(crate) unsafe fn unwritable(&self) -> Option<u64> {
        let pages = self.left().iter().flat_map(|range| {
            let first = range.iov_base as u64;
            let last = first + range.iov_len as u64;
            std::iter::once(first).chain((first / PAGE * PAGE..last).step_by(PAGE as usize).skip(1))
        });
        // SAFETY: the caller's promise.
        pages.into_iter().find(|address| !unsafe { is_writable(*address) })
    }

    fn left(&self) -> &[iovec] {
        let left = &self.ranges[self.first..];
        &left[..left.len().min(crate::limits::MAX_RANGES)]
    }
}

/// `process_vm_readv`: copies `remote` ranges of process `pid` into `local` ones, in order.
///
/// # Safety
/// The local ranges are writable, and nobody relies on their content until the call returns.
/// Remote ranges need not be valid: the kernel checks them.
pub(crate) unsafe fn read_process(pid: i32, local: &Ranges, remote: &Ranges) -> io::Result<usize> {
    let (local, remote) = (local.left(), remote.left());
    // SAFETY: both arrays live through the call; the local ranges are the caller's promise.
    let count = unsafe {
        libc::process_vm_readv(
            pid,
            local.as_ptr(),
            local.len() as libc::c_ulong,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// True if this process can write to `address`: the kernel is asked to write what is there.
///
/// # Safety
/// Nobody else writes to the byte until the call returns.
unsafe fn is_writable(address: u64) -> bool {
    let mut byte = Ranges::default();
    byte.push(address, 1);
    // SAFETY: the kernel checks the address, and the byte keeps its value.
    let written = unsafe { read_process(std::process::id() as i32, &byte, &byte) };
    written.is_ok_and(|count| count == 1)
}

/// Whether this process may read the memory of `pid`. The first page is mapped nowhere, so nothing
/// is read: the kernel looks at the permission first, and then finds no memory.
pub(crate) fn may_read(pid: i32) -> io::Result<()> {
    let mut byte = 0_u8;
    let (mut local, mut remote) = (Ranges::default(), Ranges::default());
    local.push((&raw mut byte).expose_provenance() as u64, 1);
    remote.push(0, 1);
    // SAFETY: the byte is ours.
    match unsafe { read_process(pid, &local, &remote) } {
        Err(error) if error.raw_os_error() != Some(libc::EFAULT) => Err(error),
        _ => Ok(()),
    }
}

/// Receives into the ranges, as many bytes as they hold if the socket's timeout allows.
///
/// # Safety
/// The ranges are writable, and nobody relies on their content until the call returns.
pub(crate) unsafe fn receive(socket: BorrowedFd<'_>, ranges: &Ranges) -> io::Result<usize> {
    let left = ranges.left();
    let message = message_of(left);
    // SAFETY: the message names `left`, which lives through the call; the caller's promise.
    let count = unsafe {
        libc::recvmsg(socket.as_raw_fd(), (&raw const message).cast_mut(), libc::MSG_WAITALL)
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Sends the ranges, as many bytes as the socket takes before its timeout.
///
/// # Safety
/// The ranges are readable until the call returns.
pub(crate) unsafe fn send(socket: BorrowedFd<'_>, ranges: &Ranges) -> io::Result<usize> {
    let left = ranges.left();
    let message = message_of(left);
    // SAFETY: the message names `left`, which lives through the call; the caller's promise.
    let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn message_of(ranges: &[iovec]) -> libc::msghdr {
    // SAFETY: a msghdr of zeros is valid: no name, no ranges, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = ranges.as_ptr().cast_mut();
    message.msg_iovlen = ranges.len() as _;
    message
}

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
    match io::Error::last_os_error() {
        error if count < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
