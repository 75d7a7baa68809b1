//! Proofs: a sample of the registered memory, summed under keys that nobody knew before the
//! challenge.
//!
//! The sample is windows of the group's logical tensors at places drawn from the challenge's
//! number, so it is the same in every layout; a small group is summed whole. Each sampled byte that
//! this shard counts for its group is multiplied by a key of its tensor and position. Only the
//! bytes give the sum: the digests in other shards' notes do not help, and nothing shorter than the
//! bytes does.

use std::collections::BTreeMap;
use std::ops::Range;

use weightcast_plan::Run;
use weightcast_protocol::Nonce;

use super::registration::RegisteredShard;
use crate::limits::{PROOF_WINDOW, PROOF_WINDOWS};

/// Ranges of bytes of each tensor, by its name.
type Sample = BTreeMap<String, Vec<Range<u64>>>;

/// Mixes two numbers into one that looks random: the finaliser of splitmix64.
fn mix(seed: u64, number: u64) -> u64 {
    let mut x = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The ranges that are summed, of tensors with these names and sizes.
fn sample(tensors: &[(String, u64)], nonce: Nonce) -> Sample {
    let total: u64 = tensors.iter().map(|(_, bytes)| bytes).sum();
    let mut sample = Sample::new();
    if total <= PROOF_WINDOW * PROOF_WINDOWS {
        for (name, bytes) in tensors {
            sample.entry(name.clone()).or_default().push(0..*bytes);
        }
        return sample;
    }
    for window in 0..PROOF_WINDOWS {
        let mut place = mix(nonce.0, window) % total;
        for (name, bytes) in tensors {
            if place < *bytes {
                let end = (place + PROOF_WINDOW).min(*bytes);
                sample.entry(name.clone()).or_default().push(place..end);
                break;
            }
            place -= bytes;
        }
    }
    sample
}

/// The rows of a run that may have bytes in a range of their tensor.
fn rows(run: &Run, range: &Range<u64>) -> Range<u64> {
    if run.rows <= 1 || run.position_pitch == 0 {
        return 0..run.rows;
    }
    let first = row_at(run, range.start.saturating_sub(run.row_bytes));
    first.min(run.rows)..(row_at(run, range.end) + 1).min(run.rows)
}

/// The last row that begins at or before a position of the tensor, as if the run had no end.
fn row_at(run: &Run, position: u64) -> u64 {
    position.saturating_sub(run.position) / run.position_pitch
}

impl RegisteredShard {
    /// This shard's part of the sum for a challenge; the parts of all shards add up to the group's
    /// sum.
    pub(crate) fn prove(&self, nonce: Nonce) -> u64 {
        let tensors: Vec<(String, u64)> =
            self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.nbytes())).collect();
        let sample = sample(&tensors, nonce);
        let numbers: BTreeMap<&str, u64> =
            tensors.iter().zip(1..).map(|((name, _), number)| (name.as_str(), number)).collect();
        let (mut sum, mut buffer) = (0_u64, Vec::new());
        for run in &self.runs {
            let cell = &self.cells[run.cell as usize];
            let name = self.layout.tensor_of(cell.entry).name();
            let Some(ranges) = sample.get(name).filter(|_| cell.counted) else { continue };
            let key = mix(!nonce.0, numbers[name]);
            for range in ranges {
                for row in rows(run, range) {
                    sum = sum.wrapping_add(self.prove_row(run, row, range, key, &mut buffer));
                }
            }
        }
        sum
    }

    fn prove_row(
        &self,
        run: &Run,
        row: u64,
        range: &Range<u64>,
        key: u64,
        buffer: &mut Vec<u8>,
    ) -> u64 {
        let position = run.position + row * run.position_pitch;
        let (start, end) = (position.max(range.start), (position + run.row_bytes).min(range.end));
        let mut sum = 0_u64;
        let mut at = start;
        while at < end {
            let len = (end - at).min(PROOF_WINDOW);
            buffer.resize(len as usize, 0);
            let offset = run.offset + row * run.pitch + (at - position);
            let region = &self.regions[run.buffer as usize];
            region.read_at(offset as usize, buffer).expect("a layout lies within its regions");
            for (byte, place) in buffer.iter().zip(at..) {
                sum = sum.wrapping_add(u64::from(*byte).wrapping_mul(mix(key, place)));
            }
            at += len;
        }
        sum
    }
}

#[cfg(test)]
mod tests;
