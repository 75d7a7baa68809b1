//! Where the kernel puts what a worker reads of another process, and from where the worker copies it on.

use crate::base::lock::lock;
use crate::memory::region::Region;
use std::sync::Mutex;

/// Bytes of a desk. What a call has put there is still in the second cache when it is copied on.
pub(super) const DESK_BYTES: usize = 512 << 10;

/// Desks that are kept for later reads. The kernel takes a tenth of a millisecond to back one with pages.
const KEPT: usize = 16;

/// Desks that nobody uses.
static FREE: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// Memory of [`DESK_BYTES`] that nobody else uses.
pub(super) struct ReadDesk(Region);

impl ReadDesk {
    /// # Errors
    /// If there is no memory.
    pub(super) fn take() -> std::io::Result<Self> {
        let free = lock(&FREE).pop();
        Ok(Self(free.map_or_else(|| Region::allocate(DESK_BYTES), Ok)?))
    }

    pub(super) fn region(&self) -> &Region {
        &self.0
    }
}

impl Drop for ReadDesk {
    fn drop(&mut self) {
        let mut free = lock(&FREE);
        if free.len() < KEPT {
            free.push(self.0.clone());
        }
    }
}
