//! Memory that is being filled and served at once: which units of it are final.
//!
//! A relay serves what it has (pipelined replication, §4.3 of the paper). Its memory, all regions
//! one behind the other, is cut into units; a unit is final once every byte that the transfer
//! brings there has arrived and was served (S4: only then is it advertised). A final unit is not
//! written again under the same export. Progress hangs on the export, and so on its generation:
//! nobody can take one generation's progress for another's.

use crate::copy::Copy;
use crate::limits::{MAX_UNIT_BYTES, MIN_UNIT_BYTES, PIECE_BYTES, UNITS};
use crate::region::Region;
use crate::unit::Unit;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How memory is cut into units of progress: the same at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    bytes: u64,
    /// Where each region starts in the whole, and the end.
    starts: Vec<u64>,
}

impl Units {
    /// Of regions of these lengths, in bytes.
    pub fn new(lengths: impl Iterator<Item = u64>) -> Self {
        let mut end = 0_u64;
        let mut starts = vec![0];
        for length in lengths {
            end = end.saturating_add(length);
            starts.push(end);
        }
        Self { bytes: (end / UNITS).clamp(MIN_UNIT_BYTES, MAX_UNIT_BYTES), starts }
    }

    pub(crate) fn count(&self) -> usize {
        let total = self.starts.last().expect("never empty");
        total.div_ceil(self.bytes) as usize
    }

    /// Bytes of a piece that fills about one unit: a power of two, so that digests keep their
    /// blocks whole.
    pub(crate) fn piece(&self) -> usize {
        (1 << self.bytes.ilog2()).min(PIECE_BYTES)
    }

    /// The units that a range of a region touches.
    pub(crate) fn touched(&self, region: u32, offset: u64, len: u64) -> Range<usize> {
        let start = self.starts[region as usize] + offset;
        match len {
            0 => 0..0,
            _ => (start / self.bytes) as usize..((start + len - 1) / self.bytes) as usize + 1,
        }
    }

    /// A range of a region cut at the borders of units: unit, offset in the region, length.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn cut(
        &self,
        region: u32,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = (usize, u64, u64)> + use<> {
        let base = self.starts[region as usize];
        let (mut at, end, bytes) = (base + offset, base + offset + len, self.bytes);
        std::iter::from_fn(move || {
            let unit = at / bytes;
            let part = ((unit + 1) * bytes).min(end).checked_sub(at).filter(|part| *part > 0)?;
            at += part;
            Some((unit as usize, at - part - base, part))
        })
    }
}

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
    pub(crate) fn begin<'a>(&self, jobs: impl Iterator<Item = &'a [Copy]>) -> Vec<Vec<Copy>> {
        let mut planned = vec![0_u64; self.left.len()];
        let missing = jobs.map(|copies| self.missing(copies, &mut planned)).collect();
        for (left, planned) in self.left.iter().zip(planned) {
            left.plan(planned);
        }
        self.wake();
        missing
    }

    fn missing(&self, copies: &[Copy], planned: &mut [u64]) -> Vec<Copy> {
        let mut missing: Vec<Copy> = Vec::with_capacity(copies.len());
        for copy in copies.iter().filter(|copy| copy.bytes() > 0) {
            let mut part: Option<Copy> = None;
            for row in 0..copy.rows {
                let target = copy.target_offset + row * copy.target_pitch;
                for (unit, at, len) in self.units.cut(copy.target_region, target, copy.row_bytes) {
                    if self.left[unit].is_final() {
                        continue;
                    }
                    planned[unit] += len;
                    let from = at - target;
                    part = extend(part, copy, row, from, len, &mut missing);
                }
            }
            missing.extend(part);
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

    /// Waits a while for progress, unless these units are final already.
    pub(crate) fn wait(&self, units: Range<usize>, at_most: Duration) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_final(units) {
            drop(self.moved.wait_timeout(waiting, at_most));
        }
    }

    /// Whoever waits looks again.
    pub(crate) fn wake(&self) {
        // Under the lock, so that nobody falls asleep between its look and this.
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

/// Adds `len` bytes from byte `from` of a row to the part being built, if they continue it; else
/// the part is done and a new one begins.
fn extend(
    part: Option<Copy>,
    copy: &Copy,
    row: u64,
    from: u64,
    len: u64,
    done: &mut Vec<Copy>,
) -> Option<Copy> {
    let new = Copy {
        source_offset: copy.source_offset + row * copy.source_pitch + from,
        target_offset: copy.target_offset + row * copy.target_pitch + from,
        position: copy.position + row * copy.position_pitch + from,
        row_bytes: len,
        rows: 1,
        ..*copy
    };
    let Some(mut part) = part else { return Some(new) };
    let next_row = part.target_offset + part.rows * copy.target_pitch == new.target_offset;
    if next_row && part.row_bytes == len {
        part.rows += 1;
    } else if part.rows == 1 && part.target_offset + part.row_bytes == new.target_offset && from > 0
    {
        part.row_bytes += len; // the next unit of the same row
    } else {
        done.push(part);
        part = new;
    }
    Some(part)
}

#[cfg(test)]
mod tests;
