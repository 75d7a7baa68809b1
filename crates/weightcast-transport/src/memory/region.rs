//! Registered memory: a contiguous range of this process with an owner that keeps it alive.

use crate::base::limits::{CHUNK_BYTES, TAKEN_BYTES};
use crate::memory::allocation::Allocation;
use crate::memory::computed::{Chunk, Compute, ComputedMemory};
use crate::memory::digest::Digest;
use crate::memory::host::HostMemory;
use crate::memory::kind::{MemoryKind, RegionMemory};
use crate::memory::numa::NumaError;
use crate::memory::shared::SharedAllocation;
use crate::memory::stream_copy::order_stores;
use crate::memory::sys::Ranges;
use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// A contiguous piece of registered memory, or one whose bytes are made when they are read
/// ([`Region::computed`]). Clones name the same bytes and share the owner.
///
/// The bytes may change at any time: by the process that owns them, or by a read into them.
/// What is read here is therefore a momentary value; whether it counts is decided elsewhere, by
/// the fence word of an export.
#[derive(Clone)]
pub struct Region {
    /// At least `len` bytes.
    memory: Arc<dyn RegionMemory>,
    /// Of its first byte, exposed; 0 if there is none. It is kept here too: of thousands of small regions, each would have
    /// its memory waited for.
    address: usize,
    len: usize,
    writable: bool,
}

/// An access that a region does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegionError {
    /// The range leaves the region.
    #[error("bytes {offset}..+{len} leave the region of {region} bytes")]
    OutOfBounds {
        /// First byte of the range.
        offset: usize,
        /// Bytes of the range.
        len: usize,
        /// Bytes of the region.
        region: usize,
    },
    /// The region was registered read-only.
    #[error("the region is read-only: register it as writable")]
    ReadOnly,
    /// The region's bytes are made when they are read: they have no address.
    #[error("the region is computed: its bytes can be read, not found in memory")]
    Computed,
    /// A copy's source and target share bytes.
    #[error("the ranges of a copy overlap: copy into other memory")]
    Overlap,
}

impl Region {
    /// Registers memory of somebody else's allocator.
    ///
    /// # Safety
    /// - `len` bytes at `address` stay mapped and readable, and writable if `writable`, as long
    ///   as `owner` lives.
    /// - Nobody holds a Rust reference to the bytes while this crate writes to them, which it
    ///   does only in [`Region::write_at`] and while a transfer into the region runs; nor an
    ///   exclusive one while it reads them, which it does while they are exposed.
    pub unsafe fn from_raw(
        address: *mut u8,
        len: usize,
        writable: bool,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self::of(Arc::new(HostMemory::new(address, owner)), len, writable)
    }

    fn of(memory: Arc<dyn RegionMemory>, len: usize, writable: bool) -> Self {
        let address = memory.address().map_or(0, |first| first.as_ptr().expose_provenance());
        Self { memory, address, len, writable }
    }

    /// `len` bytes that are made whenever they are read: a transform of other memory. Read-only;
    /// peers get them over the data port, never from memory.
    pub fn computed(len: usize, compute: Arc<dyn Compute>) -> Self {
        Self::of(Arc::new(ComputedMemory(compute)), len, false)
    }

    /// Fresh writable memory of `len` zero bytes: page aligned, huge pages advised, left out of
    /// core dumps, not yet backed by pages ([`Region::prefault`] does that).
    pub fn allocate(len: usize) -> io::Result<Self> {
        let allocation = Allocation::new(len)?;
        let address = allocation.address();
        // SAFETY: the allocation is `len` bytes, writable, and unmapped when it is dropped.
        Ok(unsafe { Self::from_raw(address, len, true, Arc::new(allocation)) })
    }

    /// The same, of memory that other processes of this user can map: a sealed memfd, which readers of this
    /// host are lent. A forked child shares it too.
    ///
    /// # Errors
    /// What the system said: there is no memory, or no descriptor.
    pub fn allocate_shared(len: usize) -> io::Result<Self> {
        Ok(Self::of_shared(SharedAllocation::new(len)?, len))
    }

    /// The same, of memory whose pages come from one NUMA node alone.
    ///
    /// # Errors
    /// If there is no such node, the kernel does not bind memory to it, or there is no memory or no descriptor.
    pub fn allocate_shared_on(len: usize, node: u32) -> Result<Self, NumaError> {
        Ok(Self::of_shared(SharedAllocation::on_node(len, node)?, len))
    }

    fn of_shared(allocation: SharedAllocation, len: usize) -> Self {
        let allocation = allocation.listed();
        let address = allocation.address();
        // SAFETY: the allocation is `len` bytes or more, writable, and unmapped when it is dropped.
        unsafe { Self::from_raw(address, len, true, allocation) }
    }

    /// A fresh region with the given content.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let region = Self::allocate(bytes.len())?;
        region.write_at(0, bytes).expect("as long as the bytes");
        Ok(region)
    }

    /// A part of a region: `len` bytes from `offset` on, of the same owner.
    ///
    /// # Errors
    /// If the range leaves the region; if the bytes have no address.
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, RegionError> {
        let address = self.range(offset, len)?;
        let owner = Arc::new(Arc::clone(&self.memory));
        // SAFETY: the range lies in the region, whose memory is kept by the owner of the part.
        Ok(unsafe { Self::from_raw(address, len, self.writable, owner) })
    }

    /// The same bytes, no longer writable through this clone.
    pub fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }

    /// Where it begins; 0 if its bytes have no address.
    pub fn address(&self) -> u64 {
        self.address as u64
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What memory it is.
    pub fn kind(&self) -> MemoryKind {
        self.memory.kind()
    }

    /// True if its bytes are made when they are read.
    pub fn is_computed(&self) -> bool {
        self.kind() == MemoryKind::Computed
    }

    /// True if transfers may write to it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Backs the region with pages now, so that no copy pays for it: a copy into untouched pages
    /// takes up to ten times as long. Content stays. Best effort.
    pub fn prefault(&self) {
        if self.writable {
            self.memory.populate(self.len);
        }
    }

    /// The first address of a writable region that this process may not write after all, which must then not be
    /// touched. All others are backed with pages on the way.
    pub(crate) fn unwritable(&self) -> Option<u64> {
        if self.address == 0 || !self.writable || self.len == 0 {
            return None;
        }
        let mut range = Ranges::default();
        range.push(self.address as u64, self.len);
        // SAFETY: the region is a target, so nobody else writes to it before the call returns.
        unsafe { range.populate_or_unwritable() }
    }

    /// Copies bytes out.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RegionError> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range lies in the region.
        unsafe { self.memory.read(offset, bytes) };
        Ok(())
    }

    /// Copies bytes in.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), RegionError> {
        self.check_writable(offset, bytes.len())?;
        // SAFETY: the range lies in the region, which is writable.
        unsafe { self.memory.write(offset, bytes) };
        Ok(())
    }

    /// Copies `len` bytes at `from` of another region to `offset` of this one, past the cache.
    ///
    /// # Errors
    /// If a range leaves its region, this region is read-only, or the ranges overlap.
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Self,
        from: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        if !self.writable {
            return Err(RegionError::ReadOnly);
        }
        if source.address == 0 {
            return self.copy_chunks(offset, source, from, len);
        }
        let (start, _) = self.apart(offset, source, from, len)?;
        // SAFETY: both ranges lie in their regions, whose owners keep them readable and writable;
        // they do not overlap.
        unsafe { self.memory.copy_past_cache(start, offset, len) };
        Ok(())
    }

    /// The same of a region with an address, and the digest of what was copied, which lies `position` bytes into
    /// its logical tensor: both in one pass. `next` is where the caller will copy from afterwards, if anywhere
    /// ([`Region::place`]). [`Region::order_copies`] has to follow before another thread hears of the copy.
    pub(crate) fn copy_digested(
        &self,
        offset: usize,
        source: &Self,
        from: usize,
        len: usize,
        position: u64,
        next: *const u8,
    ) -> Result<Digest, RegionError> {
        self.check_writable(offset, len)?;
        let (start, to) = self.apart(offset, source, from, len)?;
        // SAFETY: as above.
        Ok(unsafe { self.memory.copy_digested(start, to, len, position, next) })
    }

    /// What this thread has copied so is there for whoever hears of it from now on.
    pub(crate) fn order_copies() {
        order_stores();
    }

    /// Where an offset lies in memory, unchecked: not to be read there.
    pub(crate) fn place(&self, offset: usize) -> *const u8 {
        self.first().wrapping_add(offset)
    }

    fn first(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Where a range of another region begins, and one of this region with which it does not overlap.
    fn apart(
        &self,
        offset: usize,
        source: &Self,
        from: usize,
        len: usize,
    ) -> Result<(*const u8, *mut u8), RegionError> {
        let (start, to) = (source.range(from, len)?, self.range(offset, len)?);
        if start.addr().abs_diff(to.addr()) < len {
            return Err(RegionError::Overlap);
        }
        Ok((start, to))
    }

    /// The same through the cache, front to back: what the reference lane does.
    pub(crate) fn copy_plainly(
        &self,
        offset: usize,
        source: &Self,
        from: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        self.check_writable(offset, len)?;
        if source.address == 0 {
            return self.copy_chunks(offset, source, from, len);
        }
        let start = source.range(from, len)?;
        // SAFETY: both ranges lie in their regions, whose owners keep them readable and writable.
        unsafe { self.memory.copy(start, offset, len) };
        Ok(())
    }

    /// Copies from memory without an address.
    fn copy_chunks(
        &self,
        offset: usize,
        source: &Self,
        from: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        let mut done = 0;
        source.chunks(from, len, |bytes| {
            self.write_at(offset + done, bytes)?;
            done += bytes.len();
            Ok(())
        })
    }

    /// A copy of the whole content.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read_at(0, &mut bytes).expect("as long as the region");
        bytes
    }

    /// The digest of a range that lies `position` bytes into its logical tensor.
    pub fn digest(&self, offset: usize, len: usize, position: u64) -> Result<Digest, RegionError> {
        self.check(offset, len)?;
        // SAFETY: the range lies in the region.
        Ok(unsafe { self.memory.digest(offset, len, position) })
    }

    /// Hands out a range chunk by chunk, each a copy that stays in the cache: [`TAKEN_BYTES`] of memory,
    /// [`CHUNK_BYTES`] of what is computed, or what is left.
    ///
    /// # Errors
    /// If the range leaves the region; the first error of `each`.
    pub fn chunks(
        &self,
        offset: usize,
        len: usize,
        mut each: impl FnMut(&[u8]) -> Result<(), RegionError>,
    ) -> Result<(), RegionError> {
        self.check(offset, len)?;
        // Where a chunk begins as far past a multiple of 8 as its source does, words are copied.
        let lead = (self.address() as usize).wrapping_add(offset) % 8;
        let most = if self.is_computed() { CHUNK_BYTES } else { TAKEN_BYTES };
        let mut chunk = Chunk::new();
        let mut at = offset;
        while at < offset + len {
            let step = most.min(offset + len - at);
            let bytes = &mut chunk.0[lead..lead + step];
            self.read_at(at, bytes)?;
            each(bytes)?;
            at += step;
        }
        Ok(())
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), RegionError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(RegionError::OutOfBounds { offset, len, region: self.len }),
        }
    }

    fn check_writable(&self, offset: usize, len: usize) -> Result<(), RegionError> {
        if self.writable { self.check(offset, len) } else { Err(RegionError::ReadOnly) }
    }

    /// The address of a range, checked.
    pub(crate) fn range(&self, offset: usize, len: usize) -> Result<*mut u8, RegionError> {
        self.check(offset, len)?;
        if self.address == 0 {
            return Err(RegionError::Computed);
        }
        Ok(self.first().wrapping_add(offset))
    }

    /// A range as a slice, for a measurement's own memory.
    ///
    /// # Safety
    /// Nobody writes to the range while the slice lives.
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> Result<&[u8], RegionError> {
        let from = self.range(offset, len)?;
        // SAFETY: the range lies in the region, whose owner lives as long as the region; the caller's
        // promise.
        Ok(unsafe { std::slice::from_raw_parts(from, len) })
    }

    /// The same to write to.
    ///
    /// # Safety
    /// Nobody else reads or writes the range while the slice lives.
    #[allow(clippy::mut_from_ref)] // the memory is not the region's own, and the caller promises
    pub(crate) unsafe fn slice_mut(
        &self,
        offset: usize,
        len: usize,
    ) -> Result<&mut [u8], RegionError> {
        self.check_writable(offset, len)?;
        let to = self.range(offset, len)?;
        // SAFETY: the range lies in the writable region, whose owner lives as long as the region; the
        // caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(to, len) })
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .field("writable", &self.writable)
            .field("computed", &self.is_computed())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
