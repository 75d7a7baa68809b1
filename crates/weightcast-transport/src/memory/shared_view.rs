//! Shared memory of another process, mapped for reading.
//!
//! The owner may write it at any time. What it cannot do is to take it away: a file that could be made
//! shorter under its readers, who would die of it, is not mapped.

use crate::base::error::TransportError;
use crate::base::patience::Patience;
use crate::memory::region::Region;
use crate::memory::shared::SEALS;
use rustix::fs::{Stat, fcntl_get_seals, fstat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::Arc;

/// Bytes that are backed with page table entries between two looks at the patience: some milliseconds.
const STEP: usize = 64 << 20;

/// Which file it is, by the word of the kernel. As long as it is mapped, no other has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileName {
    device: u64,
    number: u64,
}

impl FileName {
    pub(crate) fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::in_status(&fstat(file)?))
    }

    fn in_status(status: &Stat) -> Self {
        Self { device: status.st_dev, number: status.st_ino }
    }
}

/// A whole file of another process, mapped read-only.
pub(crate) struct SharedView {
    mapping: *mut c_void,
    len: usize,
    name: FileName,
}

// SAFETY: the mapping belongs to this value alone; nothing in it depends on a thread.
unsafe impl Send for SharedView {}
// SAFETY: shared access only reads memory that is mapped read-only.
unsafe impl Sync for SharedView {}

impl SharedView {
    /// # Errors
    /// Why it is not mapped.
    pub(crate) fn map(file: impl AsFd) -> Result<Self, String> {
        let seals = fcntl_get_seals(&file).map_err(|error| format!("no seals: {error}"))?;
        if !seals.contains(SEALS) {
            return Err(format!("not sealed ({:?} is missing)", SEALS.difference(seals)));
        }
        let status = fstat(&file).map_err(|error| error.to_string())?;
        let len = usize::try_from(status.st_size).map_err(|_| "no size".to_owned())?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapping = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        let mapping = mapping.map_err(|error| format!("not mapped: {error}"))?;
        let view = Self { mapping, len, name: FileName::in_status(&status) };
        for advice in [Advice::LinuxHugepage, Advice::LinuxDontDump] {
            // SAFETY: our own mapping; both advices keep its content.
            let _best_effort = unsafe { madvise(mapping, len, advice) };
        }
        Ok(view)
    }

    pub(crate) fn name(&self) -> FileName {
        self.name
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address(&self) -> *const u8 {
        self.mapping.cast()
    }

    /// Has the page tables filled in now, so that no copy pays for it. Best effort.
    ///
    /// # Errors
    /// Whatever ends the patience.
    pub(crate) fn populate(&self, patience: &Patience<'_>) -> Result<(), TransportError> {
        for at in (0..self.len).step_by(STEP) {
            patience.check("mapping shared memory")?;
            let part = self.mapping.wrapping_byte_add(at);
            // SAFETY: a range of our own mapping, whose content stays.
            unsafe { libc::madvise(part, STEP.min(self.len - at), libc::MADV_POPULATE_READ) };
        }
        Ok(())
    }

    /// A part of it. `None` if the range leaves it.
    pub(crate) fn region(self: &Arc<Self>, offset: usize, len: usize) -> Option<Region> {
        offset.checked_add(len).filter(|end| *end <= self.len)?;
        let address = self.mapping.cast::<u8>().wrapping_add(offset);
        let owner = Arc::clone(self);
        // SAFETY: the range is mapped and readable as long as the view lives. Nobody has a Rust reference to
        // it, and its owner's writes are seen to by a fence word.
        Some(unsafe { Region::from_raw(address, len, false, owner) })
    }
}

impl Drop for SharedView {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped once; regions hold an Arc of this value.
        let _ = unsafe { munmap(self.mapping, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::shared::SharedAllocation;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    #[test]
    fn a_view_shows_what_its_owner_writes_and_ends_where_the_file_does() {
        let owned = SharedAllocation::new(5_000).unwrap();
        let view = Arc::new(SharedView::map(owned.file()).unwrap());
        view.populate(&Patience::default()).unwrap();
        assert_eq!(view.name(), FileName::of(owned.file()).unwrap());
        assert_ne!(view.name(), FileName::of(SharedAllocation::new(1).unwrap().file()).unwrap());
        let region = view.region(4_090, 10).unwrap();
        // SAFETY: our own memory, which nobody has a reference to.
        unsafe { owned.address().add(4_091).write(7) };
        assert_eq!(region.to_vec(), [0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(!region.is_writable());
        assert!(view.region(0, 8_192).is_some() && view.region(8_192, 0).is_some());
        assert!(view.region(1, 8_192).is_none() && view.region(usize::MAX, 2).is_none());
    }

    /// Each seal is asked for: without any of them the file could change under its reader in a way that
    /// no fence word tells of.
    #[test]
    fn what_lacks_a_seal_is_not_mapped() {
        for missing in SEALS.iter() {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("weights", flags).unwrap();
            ftruncate(&file, 4_096).unwrap();
            fcntl_add_seals(&file, SEALS.difference(missing)).unwrap();
            let why = SharedView::map(&file).err().unwrap();
            assert!(why.contains("not sealed"), "{missing:?}: {why}");
            if missing != SealFlags::SEAL {
                continue;
            }
            fcntl_add_seals(&file, SEALS).unwrap();
            assert!(SharedView::map(&file).is_ok());
        }
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(SharedView::map(socket).is_err(), "no file at all");
    }
}
