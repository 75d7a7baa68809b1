//! Memory of our own: anonymous mappings that suit large copies.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::null_mut;

pub(super) const HUGE_PAGE: usize = 2 << 20;
pub(super) const PAGE: usize = 4 << 10;

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
        let allocation = Self { mapping, mapped, aligned: aligned(mapping.cast(), align) };
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

/// The first address from there on that is aligned so.
pub(super) fn aligned(address: *mut u8, align: usize) -> *mut u8 {
    address.wrapping_add(address.align_offset(align))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_aligned_and_has_no_byte_too_few_or_too_many() {
        let table = [
            (0, PAGE),
            (1, PAGE),
            (PAGE, PAGE),
            (PAGE + 1, PAGE),
            (HUGE_PAGE - 1, PAGE),
            (HUGE_PAGE, HUGE_PAGE),
            (HUGE_PAGE + 1, HUGE_PAGE),
        ];
        for (len, align) in table {
            let allocation = Allocation::new(len).unwrap();
            let (from, at) = (allocation.mapping.addr(), allocation.address().addr());
            assert_eq!(at % align, 0, "{len}");
            assert_eq!(allocation.mapped, len.max(1) + align - 1, "{len}");
            assert!(from <= at && at + len <= from + allocation.mapped, "{len}");
        }
    }

    #[test]
    fn what_no_object_may_have_is_not_asked_of_the_kernel() {
        let most = isize::MAX as usize - (HUGE_PAGE - 1);
        let refused = |len| Allocation::new(len).err().map(|error| error.raw_os_error());
        assert_eq!(refused(most), Some(Some(libc::ENOMEM)), "the kernel's word");
        assert_eq!(refused(most + 1), Some(None));
        assert_eq!(refused(usize::MAX), Some(None));
    }

    #[test]
    fn weights_are_left_out_of_core_dumps() {
        let allocation = Allocation::new(PAGE).unwrap();
        let at = allocation.address().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let flags = maps.lines().find(|line| {
            let place = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((from, to)) = place.and_then(|(from, to)| number(from).zip(number(to))) {
                inside = (from..to).contains(&at);
            }
            inside && line.starts_with("VmFlags:")
        });
        let flags = flags.expect("its mapping");
        assert!(["rd", "wr", "dd"].iter().all(|flag| flags.contains(flag)), "{flags}");
        let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        assert_eq!(flags.contains("hg"), has_huge_pages, "{flags}");
    }

    /// Pages whose borders lie within the range, and no other.
    #[test]
    fn whole_pages_are_backed_and_others_left_alone() {
        const PAGES: usize = 6;
        for (offset, len, backed) in [
            (0, 0, 0..0),
            (0, PAGE - 1, 0..0),
            (0, PAGE, 0..1),
            (0, 2 * PAGE - 1, 0..1),
            (PAGE, 2 * PAGE, 1..3),
            (1, PAGE, 0..0),
            (1, 2 * PAGE - 2, 0..0),
            (1, 2 * PAGE - 1, 1..2),
            (PAGE - 1, PAGE + 1, 1..2),
            (PAGE + 1, 4 * PAGE, 2..5),
        ] {
            let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
            let mapping = unsafe { mmap_anonymous(null_mut(), PAGES * PAGE, prot, flags) }.unwrap();
            // Page by page, and no neighbour's.
            // SAFETY: a mapping of our own.
            let _no_such_pages = unsafe { madvise(mapping, PAGES * PAGE, Advice::LinuxNoHugepage) };
            populate(mapping.cast::<u8>().wrapping_add(offset), len);
            let mut resident = [0_u8; PAGES];
            // SAFETY: our mapping, and a byte for each of its pages.
            let told = unsafe { libc::mincore(mapping, PAGES * PAGE, resident.as_mut_ptr()) };
            assert_eq!(told, 0);
            let found: Vec<usize> = (0..PAGES).filter(|page| resident[*page] & 1 == 1).collect();
            assert_eq!(found, backed.collect::<Vec<_>>(), "{len} bytes at {offset}");
            // SAFETY: mapped above, unmapped once.
            unsafe { munmap(mapping, PAGES * PAGE) }.unwrap();
        }
    }

    /// To its last page: all of these together have no room in the address space, which has 2^47 bytes.
    #[test]
    fn whoever_drops_an_allocation_gives_all_of_it_back() {
        for round in 0..16 {
            let allocation = Allocation::new(1 << 44);
            assert!(allocation.is_ok(), "round {round}");
        }
    }
}
