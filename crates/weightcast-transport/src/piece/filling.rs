//! Memory that is being filled and served at once: which units of it are final.
//!
//! A relay serves what it has (pipelined replication, §4.3 of the paper). Its memory, all regions
//! one behind the other, is cut into units; a unit is final once every byte that the transfer
//! brings there has arrived and was served (S4: only then is it advertised). A final unit is not
//! written again under the same export. Progress hangs on the export, and so on its generation:
//! the progress of one generation cannot be taken for another's.

use crate::memory::region::Region;
use crate::piece::copy::StridedCopy;
use crate::piece::unit::Unit;
use crate::piece::units::Units;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The progress of one exposure of memory that is being filled. Shared by the transfer that fills
/// it and the data port that serves it.
#[derive(Debug)]
pub struct Filling {
    units: Units,
    /// Bytes that are still to come, by unit; a unit with none is final.
    left: Vec<Unit>,
    waiting: Mutex<()>,
    moved: Condvar,
}

impl Filling {
    /// Of these regions, in which nothing is final yet.
    pub fn new(regions: &[Region]) -> Self {
        let units = Units::new(regions.iter().map(|region| region.len() as u64));
        let left = (0..units.count()).map(|_| Unit::new()).collect();
        Self { units, left, waiting: Mutex::new(()), moved: Condvar::new() }
    }

    /// Units that are final, and all.
    pub fn progress(&self) -> (usize, usize) {
        (self.left.iter().filter(|left| left.is_final()).count(), self.left.len())
    }

    pub(crate) fn units(&self) -> &Units {
        &self.units
    }

    /// A transfer begins: what of its copies is still missing, in the order of the memory. Final
    /// units are kept: their bytes were served by a source that stood, and are not read again.
    pub(crate) fn begin<'a>(
        &self,
        jobs: impl Iterator<Item = &'a [StridedCopy]>,
    ) -> Vec<Vec<StridedCopy>> {
        let mut planned = vec![0_u64; self.left.len()];
        let missing = jobs.map(|copies| self.missing(copies, &mut planned)).collect();
        for (left, planned) in self.left.iter().zip(planned) {
            left.plan(planned);
        }
        self.wake();
        missing
    }

    fn missing(&self, copies: &[StridedCopy], planned: &mut [u64]) -> Vec<StridedCopy> {
        let mut missing: Vec<StridedCopy> = Vec::with_capacity(copies.len());
        let mut parts = Vec::new();
        for copy in copies {
            self.units.parts_into(&mut parts, copy.rows_at_target(), |unit, len| {
                planned[unit] += len;
                (!self.left[unit].is_final()).then_some(())
            });
            missing.extend(parts.drain(..).map(|((), part)| copy.part(part)));
        }
        missing.sort_by_key(|copy| (copy.target_region, copy.target_offset));
        missing
    }

    /// Bytes have arrived and were served.
    pub(crate) fn arrived(&self, region: u32, offset: u64, len: u64) {
        let mut moved = false;
        for (unit, _, len) in self.units.cut(region, offset, len) {
            moved |= self.left[unit].arrived(len);
        }
        if moved {
            self.wake();
        }
    }

    pub(crate) fn is_final(&self, units: Range<usize>) -> bool {
        self.left[units].iter().all(Unit::is_final)
    }

    /// Whether all units are final.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.iter().all(Unit::is_final)
    }

    /// Whether more than so many units are final, or all.
    pub(crate) fn has_news(&self, known: u64) -> bool {
        let (done, all) = self.progress();
        done as u64 > known || done == all
    }

    /// Waits a while for progress, unless these units are final already.
    pub(crate) fn wait(&self, units: Range<usize>, at_most: Duration) {
        self.wait_for(at_most, || self.is_final(units.clone()));
    }

    /// Waits a while for progress, unless this is so already.
    pub(crate) fn wait_for(&self, at_most: Duration, is_so: impl Fn() -> bool) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_so() {
            drop(self.moved.wait_timeout(waiting, at_most));
        }
    }

    /// All waiting threads look again.
    pub(crate) fn wake(&self) {
        // Under the lock, so that no thread falls asleep between its look and this.
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.moved.notify_all();
    }

    /// One bit a unit, set if it is final.
    pub(crate) fn bits(&self) -> Vec<u8> {
        let mut bits = vec![0_u8; self.left.len().div_ceil(8)];
        for (unit, left) in self.left.iter().enumerate() {
            bits[unit / 8] |= u8::from(left.is_final()) << (unit % 8);
        }
        bits
    }
}

/// Whether such bits say of all of these units that they are final; they say nothing of those beyond.
pub(crate) fn are_final(bits: &[u8], mut units: Range<usize>) -> bool {
    units.all(|unit| bits.get(unit / 8).is_some_and(|bits| bits >> (unit % 8) & 1 == 1))
}

#[cfg(test)]
mod tests;
