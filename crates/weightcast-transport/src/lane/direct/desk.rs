//! Where the kernel puts what a worker reads of another process, and from where the worker copies it on.

use crate::base::lock::lock;
use crate::memory::region::Region;
use std::io;
use std::sync::Mutex;

/// Bytes of a desk. What a call has put there is still in the second cache when it is copied on.
pub(super) const DESK_BYTES: usize = 512 << 10;

/// Desks that nobody uses, for later reads: the kernel takes a tenth of a millisecond to back one with pages. As many as
/// workers have read from the source at once.
#[derive(Default)]
pub(super) struct FreeDesks(Mutex<Vec<Region>>);

impl FreeDesks {
    /// A desk that nobody else uses.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn take(&self) -> io::Result<ReadDesk<'_>> {
        let free = lock(&self.0).pop();
        let region = free.map_or_else(|| Region::allocate(DESK_BYTES), Ok)?;
        Ok(ReadDesk { region, home: self })
    }
}

/// Memory of [`DESK_BYTES`] that one worker uses.
pub(super) struct ReadDesk<'a> {
    region: Region,
    home: &'a FreeDesks,
}

impl ReadDesk<'_> {
    pub(super) fn region(&self) -> &Region {
        &self.region
    }
}

impl Drop for ReadDesk<'_> {
    fn drop(&mut self) {
        lock(&self.home.0).push(self.region.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_workers_have_one_desk_and_the_next_read_has_the_same_ones() {
        let free = FreeDesks::default();
        let places = || {
            let desks = [free.take().unwrap(), free.take().unwrap()];
            let mut places = desks.map(|desk| desk.region().address());
            places.sort_unstable();
            places
        };
        let first = places();
        assert_ne!(first[0], first[1]);
        assert_eq!(places(), first);
    }
}
