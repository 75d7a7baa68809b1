//! Registered memory: a contiguous range of this process with an owner that keeps it alive.

use crate::base::limits::CHUNK_BYTES;
use crate::memory::allocation::Allocation;
use crate::memory::computed::{Chunk, Compute};
use crate::memory::digest::{Digest, digest_at, digest_raw};
use crate::memory::kind::MemoryKind;
use crate::memory::racy;
use crate::memory::stream_copy::stream_copy;
use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;
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
    address: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Makes the bytes, if they do not lie at the address.
    compute: Option<Arc<dyn Compute>>,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only touched by raw accesses that make no claim of exclusiveness, and
// its owner, which is Send and Sync, keeps it mapped.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

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
        let address = NonNull::new(address).unwrap_or(NonNull::dangling());
        address.as_ptr().expose_provenance();
        Self { address, len, writable, compute: None, _owner: owner }
    }

    /// `len` bytes that are made whenever they are read: a transform of other memory. Read-only;
    /// peers get them over the data port, never from memory.
    pub fn computed(len: usize, compute: Arc<dyn Compute>) -> Self {
        let address = NonNull::dangling();
        Self { address, len, writable: false, compute: Some(compute), _owner: Arc::new(()) }
    }

    /// Fresh writable memory of `len` zero bytes: page aligned, huge pages advised, left out of
    /// core dumps, not yet backed by pages ([`Region::prefault`] does that).
    pub fn allocate(len: usize) -> io::Result<Self> {
        let allocation = Allocation::new(len)?;
        let address = allocation.address();
        // SAFETY: the allocation is `len` bytes, writable, and unmapped when it is dropped.
        Ok(unsafe { Self::from_raw(address, len, true, Arc::new(allocation)) })
    }

    /// A fresh region with the given content.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let region = Self::allocate(bytes.len())?;
        region.write_at(0, bytes).expect("as long as the bytes");
        Ok(region)
    }

    /// The same bytes, no longer writable through this clone.
    pub fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }

    /// Where it begins; 0 if its bytes have no address.
    pub fn address(&self) -> u64 {
        if self.is_computed() {
            return 0;
        }
        self.address.as_ptr().addr() as u64
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
        if self.is_computed() { MemoryKind::Computed } else { MemoryKind::Host }
    }

    /// True if its bytes are made when they are read.
    pub fn is_computed(&self) -> bool {
        self.compute.is_some()
    }

    /// True if transfers may write to it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Backs the region with pages now, so that no copy pays for it: a copy into untouched pages
    /// takes up to ten times as long. Content stays. Best effort.
    pub fn prefault(&self) {
        if self.writable {
            crate::memory::allocation::populate(self.address.as_ptr(), self.len);
        }
    }

    /// Copies bytes out.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RegionError> {
        if let Some(compute) = &self.compute {
            self.check(offset, bytes.len())?;
            compute.fill(offset, bytes);
            return Ok(());
        }
        let from = self.range(offset, bytes.len())?;
        // SAFETY: the range lies in the region, which the owner keeps readable; the slice is ours.
        unsafe { racy::copy(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes in.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), RegionError> {
        if !self.writable {
            return Err(RegionError::ReadOnly);
        }
        let to = self.range(offset, bytes.len())?;
        // SAFETY: the range lies in the region, which the owner keeps writable.
        unsafe { racy::copy(bytes.as_ptr(), to, bytes.len()) };
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
        if source.is_computed() {
            let mut done = 0;
            return source.chunks(from, len, |bytes| {
                self.write_at(offset + done, bytes)?;
                done += bytes.len();
                Ok(())
            });
        }
        let (from, to) = (source.range(from, len)?, self.range(offset, len)?);
        if from.addr().abs_diff(to.addr()) < len {
            return Err(RegionError::Overlap);
        }
        // SAFETY: both ranges lie in their regions, whose owners keep them readable and writable;
        // they do not overlap.
        unsafe { stream_copy(from, to, len) };
        Ok(())
    }

    /// A copy of the whole content.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read_at(0, &mut bytes).expect("as long as the region");
        bytes
    }

    /// The digest of a range that lies `position` bytes into its logical tensor.
    pub fn digest(&self, offset: usize, len: usize, position: u64) -> Result<Digest, RegionError> {
        if self.is_computed() {
            let (mut sum, mut position) = (Digest::ZERO, position);
            self.chunks(offset, len, |bytes| {
                sum += digest_at(position, bytes);
                position += bytes.len() as u64;
                Ok(())
            })?;
            return Ok(sum);
        }
        let from = self.range(offset, len)?;
        // SAFETY: the range lies in the region, which the owner keeps readable.
        Ok(unsafe { digest_raw(position, from, len) })
    }

    /// Hands out a range chunk by chunk, each a copy that stays in the cache: [`CHUNK_BYTES`]
    /// or what is left.
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
        let mut chunk = Chunk::new();
        let mut at = offset;
        while at < offset + len {
            let step = CHUNK_BYTES.min(offset + len - at);
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

    /// The address of a range, checked.
    pub(crate) fn range(&self, offset: usize, len: usize) -> Result<*mut u8, RegionError> {
        self.check(offset, len)?;
        if self.is_computed() {
            return Err(RegionError::Computed);
        }
        Ok(self.address.as_ptr().wrapping_add(offset))
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
mod tests {
    use super::*;
    use crate::memory::digest::digest_at;

    #[test]
    fn accesses_are_checked() {
        let region = Region::from_bytes(&[1, 2, 3, 4, 5]).unwrap();
        let mut two = [0; 2];
        region.read_at(3, &mut two).unwrap();
        assert_eq!(two, [4, 5]);
        let error = RegionError::OutOfBounds { offset: 4, len: 2, region: 5 };
        assert_eq!(region.read_at(4, &mut two), Err(error));
        assert_eq!(region.write_at(4, &two), Err(error));
        assert!(region.read_at(usize::MAX, &mut two).is_err());
        assert!(region.digest(5, 0, 0).is_ok());
        assert!(region.digest(6, 0, 0).is_err());
        let fixed = region.clone().read_only();
        assert_eq!(fixed.write_at(0, &two), Err(RegionError::ReadOnly));
        assert_eq!(region.to_vec(), [1, 2, 3, 4, 5]);
        assert_eq!(region.digest(1, 3, 9).unwrap(), digest_at(9, &[2, 3, 4]));
    }

    #[test]
    fn copies_between_regions_are_checked() {
        let source = Region::from_bytes(&(0..=255).collect::<Vec<u8>>()).unwrap();
        let target = Region::allocate(300).unwrap();
        target.copy_from(7, &source, 3, 253).unwrap();
        assert_eq!(target.to_vec()[7..260], source.to_vec()[3..]);
        assert_eq!(target.to_vec()[..7], [0; 7]);
        assert_eq!(target.to_vec()[260..], [0; 40]);
        assert!(target.copy_from(50, &source, 0, 251).is_err());
        assert!(target.copy_from(0, &source, 4, 253).is_err());
        assert_eq!(source.copy_from(9, &source, 0, 10), Err(RegionError::Overlap));
        assert_eq!(source.copy_from(10, &source, 0, 10), Ok(()));
        assert_eq!(source.read_only().copy_from(0, &target, 0, 1), Err(RegionError::ReadOnly));
    }

    #[test]
    fn empty_and_huge_allocations() {
        let empty = Region::allocate(0).unwrap();
        assert!(empty.is_empty() && empty.to_vec().is_empty());
        empty.prefault();
        let big = Region::allocate((4 << 20) + 123).unwrap();
        big.prefault();
        assert_eq!(big.address() % 4096, 0);
        assert_eq!(big.digest(0, big.len(), 0).unwrap(), Digest::ZERO);
        assert!(Region::allocate(usize::MAX).is_err());
    }

    #[test]
    fn the_owner_lives_as_long_as_any_clone() {
        let owner: Arc<Vec<u8>> = Arc::new(vec![7; 10]);
        let address = owner.as_ptr().cast_mut();
        // SAFETY: the vector is not resized and outlives the region through the Arc.
        let region = unsafe { Region::from_raw(address, 10, false, owner.clone()) };
        let clone = region.clone();
        drop(region);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(clone.to_vec(), vec![7; 10]);
        drop(clone);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn a_range_may_end_with_its_region_and_no_later() {
        let region = Region::from_bytes(&[7; 5]).unwrap();
        let numbers = || [0, 1, 2, 4, 5, 6, usize::MAX - 1, usize::MAX];
        for (offset, len) in numbers().into_iter().flat_map(|a| numbers().map(|b| (a, b))) {
            let fits = offset.checked_add(len).is_some_and(|end| end <= 5);
            let expected = if fits {
                Ok(())
            } else {
                Err(RegionError::OutOfBounds { offset, len, region: 5 })
            };
            assert_eq!(region.range(offset, len).map(drop), expected);
            assert_eq!(region.digest(offset, len, 0).map(drop), expected);
            assert_eq!(region.chunks(offset, len, |_| Ok(())), expected);
            if fits {
                let address = region.range(offset, len).unwrap() as u64;
                assert_eq!(address, region.address() + offset as u64);
            }
        }
        let said = format!("{:?}", region.read_only());
        assert_eq!(said, "Region { len: 5, writable: false, computed: false, .. }");
    }

    #[test]
    fn chunks_are_the_bytes_in_order_and_none_of_a_range_that_leaves() {
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES + 99).map(|i| (i % 251) as u8).collect();
        let region = Region::from_bytes(&bytes).unwrap();
        let all = |offset, len| {
            let (mut lens, mut found) = (Vec::new(), Vec::new());
            let done = region.chunks(offset, len, |chunk| {
                lens.push(chunk.len());
                found.extend_from_slice(chunk);
                Ok(())
            });
            (done.is_ok(), lens, found)
        };
        let most = CHUNK_BYTES;
        let table = [
            (0, 0, vec![]),
            (5, 1, vec![1]),
            (0, most, vec![most]),
            (1, most + 1, vec![most, 1]),
            (7, most - 1, vec![most - 1]),
            (3, 3 * most + 96, vec![most, most, most, 96]),
            (100, 2 * most, vec![most, most]),
        ];
        for (offset, len, lens) in table {
            let expected = (true, lens, bytes[offset..offset + len].to_vec());
            assert!(all(offset, len) == expected, "{len} at {offset}");
        }
        assert_eq!(all(most, 2 * most + 100), (false, vec![], vec![]), "not even its beginning");
        let mut calls = 0;
        let failed = region.chunks(0, 2 * most, |_| {
            calls += 1;
            Err(RegionError::Overlap)
        });
        assert_eq!((failed, calls), (Err(RegionError::Overlap), 1));
    }

    #[test]
    fn a_copy_within_a_region_must_not_touch_its_source() {
        let region = Region::from_bytes(&[0; 12]).unwrap();
        for (from, to) in (0..=12).flat_map(|from| (0..=12).map(move |to| (from, to))) {
            for len in 0..=12 - from.max(to) {
                let shared = (from..from + len).any(|at| (to..to + len).contains(&at));
                let expected = if shared { Err(RegionError::Overlap) } else { Ok(()) };
                assert_eq!(region.copy_from(to, &region, from, len), expected, "{from} {to} {len}");
            }
        }
    }

    /// Whoever makes the bytes is only asked for those that there are.
    struct Counted;

    impl Compute for Counted {
        fn fill(&self, offset: usize, bytes: &mut [u8]) {
            assert!(offset + bytes.len() <= 10);
            (offset..).zip(bytes).for_each(|(at, byte)| *byte = at as u8);
        }
    }

    #[test]
    fn a_computed_region_has_bytes_and_no_address() {
        let region = Region::computed(10, Arc::new(Counted));
        assert!(region.is_computed() && !region.is_writable() && !region.is_empty());
        assert_eq!((region.len(), region.address(), region.to_vec()), (10, 0, (0..10).collect()));
        assert_eq!(region.range(0, 1), Err(RegionError::Computed));
        let mut three = [0; 3];
        assert_eq!(region.read_at(7, &mut three), Ok(()));
        assert_eq!(three, [7, 8, 9]);
        assert!(region.read_at(8, &mut three).is_err());
        assert_eq!(region.digest(2, 5, 40), Ok(digest_at(40, &[2, 3, 4, 5, 6])));
        region.prefault();
        let target = Region::allocate(6).unwrap();
        assert_eq!(target.copy_from(1, &region, 4, 5), Ok(()));
        assert_eq!(target.to_vec(), [0, 4, 5, 6, 7, 8]);
        assert!(target.copy_from(2, &region, 4, 5).is_err(), "no room");
        assert!(Region::computed(0, Arc::new(Counted)).is_empty());
        let said = format!("{region:?}");
        assert_eq!(said, "Region { len: 10, writable: false, computed: true, .. }");
    }

    #[test]
    fn raw_memory_is_as_writable_as_its_owner_says() {
        let owner: Arc<Vec<u8>> = Arc::new(vec![7; 10]);
        for writable in [false, true] {
            let address = owner.as_ptr().cast_mut();
            // SAFETY: the vector outlives the region through the Arc; nothing is written.
            let region = unsafe { Region::from_raw(address, 10, writable, owner.clone()) };
            assert_eq!(region.is_writable(), writable);
            assert_eq!(region.write_at(0, &[]).is_ok(), writable);
        }
    }

    /// Pages that were made for reading only would each cost the first write a fault all the same.
    #[test]
    fn whoever_writes_to_prefaulted_memory_waits_for_no_page() {
        const PAGES: usize = 256;
        let faults = || -> usize {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let behind_name = stat.rsplit_once(')').unwrap().1;
            behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
        };
        let bytes = vec![1; PAGES << 12];
        let region = Region::allocate(bytes.len()).unwrap();
        region.prefault();
        let before = faults();
        region.write_at(0, &bytes).unwrap();
        let cost = faults() - before;
        // AddressSanitizer may look at its own eighth for the first time.
        assert!(cost < PAGES / 4, "{cost} faults");
    }
}
