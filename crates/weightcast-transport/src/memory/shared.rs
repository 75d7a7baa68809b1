//! Memory that other processes may map: sealed memfds, and which addresses of this process lie in them.
//!
//! The owner maps the file before it is sealed, and is the only one who ever maps it writable
//! (`F_SEAL_FUTURE_WRITE`). Nobody can make it shorter, so whoever reads a mapping of it gets no SIGBUS. It
//! has no name: only who is handed a descriptor can map it, and that descriptor is open for reading alone.
//!
//! A forked child has the owner's mapping too, as it has of all shared memory: what it writes there, it
//! writes into the owner's weights.

use crate::base::lock::lock;
use crate::memory::allocation::{HUGE_PAGE, PAGE, aligned};
use crate::memory::numa::{self, NumaError};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, Weak};

/// What nobody can undo: the size stays, and no other mapping may ever be written.
pub(super) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A sealed memfd, mapped writable by this process alone, aligned to huge pages where it is as large as one.
pub(crate) struct SharedAllocation {
    /// Address space that was set aside; the file is mapped at `address`, within.
    space: *mut c_void,
    set_aside: usize,
    address: *mut u8,
    len: usize,
    /// Open for reading alone.
    file: OwnedFd,
}

// SAFETY: the mapping belongs to this value alone; nothing in it depends on a thread.
unsafe impl Send for SharedAllocation {}
// SAFETY: shared access only reads the address and lends the descriptor.
unsafe impl Sync for SharedAllocation {}

impl SharedAllocation {
    /// `len` zero bytes, at least one page; not yet backed by pages, which then come from `node` alone.
    pub(crate) fn on_node(len: usize, node: u32) -> Result<Self, NumaError> {
        numa::check(node)?;
        let allocation = Self::new(len)?;
        numa::bind(allocation.address, allocation.len, node)?;
        Ok(allocation)
    }

    /// `len` zero bytes, at least one page; not yet backed by pages.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let len = len.max(1).checked_next_multiple_of(PAGE);
        let set_aside = len.and_then(|len| len.checked_add(align - 1));
        let set_aside = set_aside.filter(|set_aside| *set_aside <= isize::MAX as usize);
        let (len, set_aside) = len.zip(set_aside).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd()?;
        ftruncate(&file, len as u64)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let space = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mmap_anonymous(null_mut(), set_aside, ProtFlags::empty(), flags)
        }?;
        let address = aligned(space.cast(), align);
        let reading = open_for_reading(&file);
        // Dropped with its space where anything fails from here on.
        let allocation = Self { space, set_aside, address, len, file: reading? };
        allocation.map_and_seal(file.as_fd())?;
        Ok(allocation)
    }

    fn map_and_seal(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range lies in space of our own, where nothing is mapped yet that anybody uses.
        unsafe { mmap(self.address.cast(), self.len, protection, flags, file, 0) }?;
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontDump] {
            // SAFETY: our own mapping; both advices keep its content.
            let _best_effort = unsafe { madvise(self.address.cast(), self.len, advice) };
        }
        fcntl_add_seals(file, SEALS)?;
        Ok(())
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address
    }

    /// Bytes: whole pages.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// To be handed to a reader.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Lets [`find`] find it, as long as it lives.
    pub(crate) fn listed(self) -> Arc<Self> {
        let allocation = Arc::new(self);
        let mut known = lock(&KNOWN);
        // Those that are gone stay until here: whoever drops one takes no lock, which a fork's copy may
        // find held for ever.
        known.retain(|_, allocation| allocation.strong_count() > 0);
        known.insert(allocation.address.addr(), Arc::downgrade(&allocation));
        allocation
    }
}

impl Drop for SharedAllocation {
    fn drop(&mut self) {
        // SAFETY: the space of `new` with the file's mapping in it, unmapped once; regions hold an Arc of
        // this value.
        let _ = unsafe { munmap(self.space, self.set_aside) };
    }
}

/// Shared memory of this process by its first address.
static KNOWN: Mutex<BTreeMap<usize, Weak<SharedAllocation>>> = Mutex::new(BTreeMap::new());

/// The shared memory that each range lies in, and how far into it: `None` where a range is not, or not
/// wholly, in one allocation.
pub(crate) fn find(
    ranges: impl Iterator<Item = (u64, usize)>,
) -> Vec<Option<(Arc<SharedAllocation>, usize)>> {
    let known = lock(&KNOWN);
    ranges.map(|(address, len)| find_one(&known, usize::try_from(address).ok()?, len)).collect()
}

/// Whether all bytes of a range lie in one piece of shared memory of this process
/// ([`Region::allocate_shared`](crate::Region::allocate_shared)).
pub fn is_shared(address: u64, len: usize) -> bool {
    find(std::iter::once((address, len))).iter().all(Option::is_some)
}

fn find_one(
    known: &BTreeMap<usize, Weak<SharedAllocation>>,
    address: usize,
    len: usize,
) -> Option<(Arc<SharedAllocation>, usize)> {
    let (_, allocation) = known.range(..=address).next_back()?;
    let allocation = allocation.upgrade()?;
    let offset = address - allocation.address.addr();
    let end = offset.checked_add(len)?;
    (end <= allocation.len).then_some((allocation, offset))
}

/// Nobody may run it, where the kernel knows of that.
fn memfd() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("weightcast", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create("weightcast", flags),
        made => made,
    }
}

fn open_for_reading(file: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests;
