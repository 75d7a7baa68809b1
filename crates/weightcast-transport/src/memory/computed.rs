//! Bytes that are made when they are read: a transform of other memory, with no copy of its own.

use crate::base::limits::CHUNK_BYTES;
use crate::memory::digest::{Digest, digest_at};
use crate::memory::kind::{MemoryKind, RegionMemory};
use std::ptr::NonNull;
use std::sync::Arc;

/// Makes the bytes of a computed region.
///
/// Equal ranges give equal bytes while the region is exposed, whatever ranges were read before.
/// It must not panic: a data port's thread calls it.
pub trait Compute: Send + Sync {
    /// Writes the bytes from `offset` on. The range lies in the region.
    fn fill(&self, offset: usize, bytes: &mut [u8]);
}

/// Memory that is nowhere. No region of it is writable.
pub(super) struct ComputedMemory(pub(super) Arc<dyn Compute>);

impl RegionMemory for ComputedMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Computed
    }

    fn address(&self) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.0.fill(offset, bytes);
    }

    unsafe fn write(&self, _: usize, _: &[u8]) {
        unreachable!("a computed region is read-only");
    }

    unsafe fn copy(&self, _: *const u8, _: usize, _: usize) {
        unreachable!("a computed region is read-only");
    }

    unsafe fn copy_past_cache(&self, _: *const u8, _: usize, _: usize) {
        unreachable!("a computed region is read-only");
    }

    unsafe fn copy_digested(
        &self,
        _: *const u8,
        _: *mut u8,
        _: usize,
        _: u64,
        _: *const u8,
    ) -> Digest {
        unreachable!("a computed region is read-only");
    }

    /// Chunk by chunk, each while it is in the cache.
    unsafe fn digest(&self, offset: usize, len: usize, position: u64) -> Digest {
        let (mut sum, mut chunk) = (Digest::ZERO, Chunk::new());
        for at in (0..len).step_by(CHUNK_BYTES) {
            let bytes = &mut chunk.0[..CHUNK_BYTES.min(len - at)];
            self.0.fill(offset + at, bytes);
            sum += digest_at(position + at as u64, bytes);
        }
        sum
    }

    fn populate(&self, _: usize) {}
}

/// Makes no bytes: for tests in which nobody reads the region.
#[cfg(test)]
pub(crate) struct LeftAsItIs;

#[cfg(test)]
impl Compute for LeftAsItIs {
    fn fill(&self, _offset: usize, _bytes: &mut [u8]) {}
}

/// A few kilobytes that stay in the cache, aligned so that whole words are copied.
#[repr(C, align(64))]
pub(crate) struct Chunk(pub(crate) [u8; CHUNK_BYTES + 8]);

impl Chunk {
    pub(crate) fn new() -> Self {
        Self([0; CHUNK_BYTES + 8])
    }
}
