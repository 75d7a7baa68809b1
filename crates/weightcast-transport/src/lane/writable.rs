//! Targets that were found to be writable.

use crate::base::error::TransportError;
use crate::memory::region::Region;
use std::collections::HashSet;

/// Targets that are remembered.
const MAX_TARGETS: usize = 1 << 20;

/// First byte and length of a target.
type TriedTarget = (u64, usize);

#[derive(Default)]
pub(super) struct WritableTargets {
    known: HashSet<TriedTarget>,
    /// Those of the last read, in order: most often the next read has the same.
    last: Vec<TriedTarget>,
}

impl WritableTargets {
    /// Tries those targets that were not tried before.
    ///
    /// # Errors
    /// [`TransportError::UnwritableTarget`].
    pub(super) fn try_all(&mut self, targets: &[Region]) -> Result<(), TransportError> {
        let places = || {
            let writable = targets.iter().filter(|target| target.is_writable());
            writable.map(|target| ((target.address(), target.len()), target))
        };
        if places().map(|(place, _)| place).eq(self.last.iter().copied()) {
            return Ok(());
        }
        self.last.clear();
        if self.known.len() + targets.len() > MAX_TARGETS {
            self.known.clear();
        }
        for (place, target) in places() {
            if self.known.contains(&place) {
                continue;
            }
            if let Some(address) = target.unwritable() {
                return Err(TransportError::UnwritableTarget { address });
            }
            self.known.insert(place);
        }
        self.last.extend(places().map(|(place, _)| place));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A target that cannot be written is found whenever it is among those of a read, whatever was read before.
    #[test]
    fn each_target_is_tried_before_it_is_known() {
        let good = [10, 20].map(|len| Region::allocate(len).unwrap());
        let text: &'static [u8] = b"not to be written";
        let (first, owner) = (text.as_ptr().cast_mut(), Arc::new(()));
        // SAFETY: nobody writes: the kernel is asked whether the memory can be written, and says no.
        let bad = unsafe { Region::from_raw(first, text.len(), true, owner) };
        let mut writable = WritableTargets::default();
        let mut tried = |targets: &[&Region]| {
            let targets: Vec<Region> = targets.iter().map(|target| (*target).clone()).collect();
            let tried = writable.try_all(&targets);
            (tried, writable.known.len(), writable.last.len())
        };
        let refused = Err(TransportError::UnwritableTarget { address: bad.address() });
        assert_eq!(tried(&[&good[0]]), (Ok(()), 1, 1));
        for _ in 0..2 {
            assert_eq!(tried(&[&bad]), (refused.clone(), 1, 0), "though it is as many as before");
            assert_eq!(tried(&[&good[0], &bad]), (refused.clone(), 1, 0));
            assert_eq!(tried(&[&good[0], &bad.clone().read_only()]), (Ok(()), 1, 1));
        }
        assert_eq!(tried(&[&good[1], &good[0]]), (Ok(()), 2, 2));
        assert_eq!(tried(&[&good[0], &good[1]]), (Ok(()), 2, 2));
        assert_eq!(tried(&[]), (Ok(()), 2, 0));
    }
}
