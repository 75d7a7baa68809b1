//! Memory in the address space of this process, with an owner that keeps it mapped.

use crate::memory::digest::{Digest, digest_raw};
use crate::memory::kind::{MemoryKind, RegionMemory};
use crate::memory::{allocation, fused, racy};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of any allocator, which the owner keeps alive.
pub(super) struct HostMemory {
    address: NonNull<u8>,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only touched by raw accesses that make no claim of exclusiveness, and
// its owner, which is Send and Sync, keeps it mapped.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    pub(super) fn new(address: *mut u8, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let address = NonNull::new(address).unwrap_or(NonNull::dangling());
        address.as_ptr().expose_provenance();
        Self { address, _owner: owner }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.address.as_ptr().wrapping_add(offset)
    }
}

impl RegionMemory for HostMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn address(&self) -> Option<NonNull<u8>> {
        Some(self.address)
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) {
        // SAFETY: the range lies in the region, which the owner keeps readable; the slice is ours.
        unsafe { racy::copy(self.at(offset), bytes.as_mut_ptr(), bytes.len()) };
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: the range lies in the region, which the owner keeps writable.
        unsafe { racy::copy(bytes.as_ptr(), self.at(offset), bytes.len()) };
    }

    unsafe fn copy(&self, from: *const u8, offset: usize, len: usize) {
        // SAFETY: the caller's source; the range lies in the region, which the owner keeps writable.
        unsafe { racy::copy(from, self.at(offset), len) };
    }

    unsafe fn copy_past_cache(&self, from: *const u8, offset: usize, len: usize) {
        // SAFETY: as above; the ranges do not overlap.
        unsafe { fused::copy(from, self.at(offset), len) };
    }

    unsafe fn copy_digested(
        &self,
        from: *const u8,
        to: *mut u8,
        len: usize,
        position: u64,
        next: *const u8,
    ) -> Digest {
        // SAFETY: as above.
        unsafe { fused::copy_digested(position, from, to, len, next) }
    }

    unsafe fn digest(&self, offset: usize, len: usize, position: u64) -> Digest {
        // SAFETY: the range lies in the region, which the owner keeps readable.
        unsafe { digest_raw(position, self.at(offset), len) }
    }

    fn populate(&self, len: usize) {
        allocation::populate(self.address.as_ptr(), len);
    }
}
