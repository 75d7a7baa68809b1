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

    /// Takes the last range away, if there is one; none is done yet.
    pub(crate) fn split_last(&mut self) -> Self {
        let ranges: Vec<iovec> = self.ranges.pop().into_iter().collect();
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

    /// Backs the pages of the ranges left with memory, for writing. Where the kernel does not: the first address that
    /// this process cannot write, if there is one. Content stays.
    ///
    /// # Safety
    /// As [`Ranges::unwritable`].
    pub(crate) unsafe fn populate_or_unwritable(&self) -> Option<u64> {
        let is_backed = self.left().iter().all(|range| {
            let first = range.iov_base as u64 / PAGE * PAGE;
            let len = (range.iov_base as u64 + range.iov_len as u64).next_multiple_of(PAGE) - first;
            let first = std::ptr::with_exposed_provenance_mut(first as usize);
            let advice = libc::MADV_POPULATE_WRITE;
            // SAFETY: pages are faulted in, and no content changes; the kernel checks the range.
            unsafe { libc::madvise(first, len as usize, advice) == 0 }
        });
        // SAFETY: the caller's promise.
        if is_backed { None } else { unsafe { self.unwritable() } }
    }

    fn left(&self) -> &[iovec] {
        let left = &self.ranges[self.first..];
        &left[..left.len().min(crate::base::limits::MAX_RANGES)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MAX_RANGES;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn ranges(of: &[(u64, usize)]) -> Ranges {
        let mut ranges = Ranges::default();
        of.iter().for_each(|(address, len)| ranges.push(*address, *len));
        ranges
    }

    /// Address and length of each that is left.
    fn left(ranges: &Ranges) -> Vec<(u64, usize)> {
        ranges.left().iter().map(|range| (range.iov_base as u64, range.iov_len)).collect()
    }

    #[test]
    fn neighbours_are_one_range_and_an_empty_one_is_none() {
        let mut some = ranges(&[(100, 0), (100, 5), (105, 2), (90, 10), (107, 0), (108, 1)]);
        assert_eq!(left(&some), [(100, 7), (90, 10), (108, 1)]);
        assert_eq!((some.count(), some.bytes(), some.address()), (3, 18, 100));
        some.push_apart(109, 4);
        assert_eq!(left(&some)[3], (109, 4), "though it touches the last");
        assert_eq!((some.count(), some.bytes()), (4, 22));
        let mut behind = ranges(&[(113, 1), (7, 7)]);
        some.append(&mut behind);
        assert_eq!(left(&some)[4..], [(113, 1), (7, 7)]);
        assert_eq!((some.count(), some.bytes()), (6, 30));
        assert_eq!((left(&behind), behind.count(), behind.bytes()), (vec![], 0, 0));
        let last = some.split_last();
        assert_eq!((left(&last), last.count(), last.bytes()), (vec![(7, 7)], 1, 7));
        assert_eq!((some.count(), some.bytes()), (5, 23));
        some.clear();
        assert_eq!((left(&some), some.count(), some.bytes()), (vec![], 0, 0));
        let none = some.split_last();
        assert_eq!((none.count(), none.bytes(), some.count(), some.bytes()), (0, 0, 0, 0));
    }

    /// Against a list of all bytes, in every way to come to an end in two steps.
    #[test]
    fn what_is_done_is_forgotten_to_the_byte() {
        let parts = [(1_000, 3), (2_000, 1), (2_002, 4), (500, 2)];
        let bytes = |parts: &[(u64, usize)]| -> Vec<u64> {
            parts.iter().flat_map(|(at, len)| *at..*at + *len as u64).collect()
        };
        let all = bytes(&parts);
        for first in 0..=all.len() {
            for second in 0..=all.len() - first {
                let mut some = ranges(&parts);
                some.advance(first);
                some.advance(second);
                let done = first + second;
                assert_eq!(bytes(&left(&some)), all[done..], "{first} and {second}");
                assert_eq!(some.bytes(), all.len() - done);
                assert_eq!(some.count(), left(&some).len());
                if let Some(next) = all.get(done) {
                    assert_eq!(some.address(), *next);
                }
                some.clear();
                some.push(9, 1);
                assert_eq!(left(&some), [(9, 1)], "nothing is done of what comes next");
            }
        }
    }

    #[test]
    fn a_call_takes_as_many_ranges_as_the_kernel_does() {
        for count in [MAX_RANGES - 1, MAX_RANGES, MAX_RANGES + 1, 3 * MAX_RANGES] {
            let mut some = Ranges::default();
            (0..count as u64).for_each(|n| some.push(16 * n, 1));
            assert_eq!((some.left().len(), some.count()), (count.min(MAX_RANGES), count));
            some.advance(2);
            assert_eq!(some.left().len(), (count - 2).min(MAX_RANGES));
        }
    }

    #[test]
    fn the_first_address_that_cannot_be_written_is_found() {
        const LEN: u64 = 4 * PAGE;
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let (anywhere, len) = (std::ptr::null_mut(), LEN as usize);
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapping = unsafe { mmap_anonymous(anywhere, len, prot, MapFlags::PRIVATE) }.unwrap();
        let third = mapping.wrapping_byte_add(2 * PAGE as usize);
        // SAFETY: a page of the mapping, to which nobody has a reference.
        unsafe { mprotect(third, PAGE as usize, MprotectFlags::READ) }.unwrap();
        let (base, bad) = (mapping as u64, third as u64);
        let table: [(&[(u64, u64)], _); 9] = [
            (&[(base, 2 * PAGE)], None),
            (&[(base + 5, 2 * PAGE - 5)], None),
            (&[(base + 5, 2 * PAGE - 4)], Some(bad)),
            (&[(base + PAGE, 3 * PAGE)], Some(bad)),
            (&[(bad, 1)], Some(bad)),
            (&[(bad + 7, 1)], Some(bad + 7)),
            (&[(bad + PAGE - 1, 2)], Some(bad + PAGE - 1)),
            (&[(bad + PAGE, PAGE)], None),
            (&[(bad + PAGE, 8), (base, 8), (bad + 9, 8), (bad, 1)], Some(bad + 9)),
        ];
        for (parts, expected) in table {
            let mut some = Ranges::default();
            parts.iter().for_each(|(at, len)| some.push(*at, *len as usize));
            // SAFETY: nobody else knows of the mapping.
            assert_eq!(unsafe { some.unwritable() }, expected, "{parts:?} of {base}");
        }
        // SAFETY: mapped above, unmapped once.
        unsafe { munmap(mapping, LEN as usize) }.unwrap();
    }

    #[test]
    fn a_read_stops_where_the_other_memory_ends() {
        let (from, mut to) = (*b"weights", [0_u8; 9]);
        let own = std::process::id() as i32;
        let at = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
        let local = ranges(&[((&raw mut to).expose_provenance() as u64, 9)]);
        let remote = ranges(&[(at(&from[3..]), 4), (at(&from), 2), (0, 3)]);
        // SAFETY: the target is ours.
        assert_eq!(unsafe { read_process(own, &local, &remote) }.unwrap(), 6);
        assert_eq!(&to[..6], b"ghtswe");
        assert!(may_read(own).is_ok());
        let nobody = may_read(i32::MAX).unwrap_err();
        assert_eq!(nobody.raw_os_error(), Some(libc::ESRCH));
    }

    /// One call for a whole piece, however its bytes come.
    #[test]
    fn a_receive_waits_for_all_that_was_asked_for() {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"abc").unwrap();
        let mut to = [0_u8; 6];
        let all = ranges(&[((&raw mut to).expose_provenance() as u64, 6)]);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // What is there is taken first, so the call has begun.
                while !is_taken(&there) {
                    std::thread::yield_now();
                }
                there.write_all(b"def").unwrap();
            });
            // SAFETY: the array is ours, and long enough.
            let count = unsafe { receive(here.as_fd(), &all) }.unwrap();
            assert_eq!(count, 6);
        });
        assert_eq!(&to, b"abcdef");
    }

    /// Whether the peer of a Unix socket has taken all that was sent: nothing is queued.
    fn is_taken(socket: &UnixStream) -> bool {
        let mut queued: libc::c_int = 0;
        // SAFETY: the kernel writes one number, which is ours.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut queued) };
        assert_eq!(done, 0);
        queued == 0
    }
}
