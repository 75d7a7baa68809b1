//! The kinds of memory that a region can have, and what is done with the bytes of each.

use crate::memory::digest::Digest;
use std::ptr::NonNull;

/// Where the bytes of a region come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MemoryKind {
    /// The address space of the process.
    Host = 1,
    /// Nowhere: the bytes are made when they are read.
    Computed = 2,
}

impl MemoryKind {
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    /// `None` for a kind of a later release.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Host, Self::Computed].into_iter().find(|kind| kind.code() == code)
    }
}

/// The memory of a region. A new kind of memory implements these operations. Code outside this room
/// touches the bytes of a region in no other way; only lanes take addresses, for the kernel.
///
/// # Safety
/// Every operation that is unsafe may be called only with a range that lies in the region, and those
/// that write only on a region that is writable.
pub(super) trait RegionMemory: Send + Sync {
    fn kind(&self) -> MemoryKind;

    /// The first byte in the address space of this process; `None` if the bytes are not there.
    fn address(&self) -> Option<NonNull<u8>>;

    /// Copies bytes out.
    unsafe fn read(&self, offset: usize, bytes: &mut [u8]);

    /// Copies bytes in.
    unsafe fn write(&self, offset: usize, bytes: &[u8]);

    /// Copies bytes of this process into the range, front to back.
    unsafe fn copy(&self, from: *const u8, offset: usize, len: usize);

    /// The same past the cache, of bytes that do not overlap with the range.
    unsafe fn copy_past_cache(&self, from: *const u8, offset: usize, len: usize);

    /// Copies bytes of this process past the cache to `to`, an address in the region; and the digest of what was copied,
    /// which lies `position` bytes into its logical tensor. `next` is what the caller will copy afterwards, if
    /// anything.
    unsafe fn copy_digested(
        &self,
        from: *const u8,
        to: *mut u8,
        len: usize,
        position: u64,
        next: *const u8,
    ) -> Digest;

    /// The digest of a range that lies `position` bytes into its logical tensor.
    unsafe fn digest(&self, offset: usize, len: usize, position: u64) -> Digest;

    /// Backs the first `len` bytes of a writable region with pages.
    fn populate(&self, len: usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends know them: they are a format.
    #[test]
    fn kinds_are_known_numbers() {
        let known = (0..=255).filter_map(|code| Some((code, MemoryKind::from_code(code)?)));
        let known: Vec<_> = known.collect();
        assert_eq!(known, [(1, MemoryKind::Host), (2, MemoryKind::Computed)]);
    }
}
