//! Bytes that are made when they are read: a transform of other memory, with no copy of its own.

use crate::base::limits::CHUNK_BYTES;

/// Makes the bytes of a computed region.
///
/// Equal ranges give equal bytes while the region is exposed, whatever ranges were read before.
/// It must not panic: a data port's thread calls it.
pub trait Compute: Send + Sync {
    /// Writes the bytes from `offset` on. The range lies in the region.
    fn fill(&self, offset: usize, bytes: &mut [u8]);
}

/// A few kilobytes that stay in the cache, aligned so that whole words are copied.
#[repr(C, align(64))]
pub(crate) struct Chunk(pub(crate) [u8; CHUNK_BYTES + 8]);

impl Chunk {
    pub(crate) fn new() -> Self {
        Self([0; CHUNK_BYTES + 8])
    }
}
