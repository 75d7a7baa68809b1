//! Memory of our own: anonymous mappings that suit large copies.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;

const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4 << 10;

/// An anonymous private mapping, aligned to huge pages where it is as large as one.
pub(crate) struct Allocation {
    mapping: *mut c_void,
    mapped: usize,
    aligned: *mut u8,
}

// SAFETY: the mapping belongs to this value alone; nothing in it depends on a thread.
unsafe impl Send for Allocation {}
// SAFETY: shared access only reads the address.
unsafe impl Sync for Allocation {}

impl Allocation {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let mapped = len
            .max(1)
            .checked_add(align - 1)
            .filter(|mapped| *mapped <= isize::MAX as usize)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapping = unsafe {
            mmap_anonymous(
                null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let aligned = mapping.cast::<u8>();
        let aligned = aligned.wrapping_add(aligned.align_offset(align));
        let allocation = Self { mapping, mapped, aligned };
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontDump] {
            // SAFETY: our own mapping; both advices keep its content.
            let _best_effort = unsafe { madvise(mapping, mapped, advice) };
        }
        Ok(allocation)
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.aligned
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, unmapped once; regions hold an Arc of this value.
        let _ = unsafe { munmap(self.mapping, self.mapped) };
    }
}

/// Backs the whole pages of a writable range with memory. Content stays; errors do not matter.
pub(crate) fn populate(address: *mut u8, len: usize) {
    let skip = address.align_offset(PAGE);
    let whole = len.saturating_sub(skip) & !(PAGE - 1);
    if whole > 0 {
        let first = address.wrapping_add(skip);
        // SAFETY: MADV_POPULATE_WRITE faults pages in for writing and changes no content; an
        // invalid range makes the kernel return an error.
        let _ = unsafe { libc::madvise(first.cast(), whole, libc::MADV_POPULATE_WRITE) };
    }
}
