//! How much of a generation a shard serves: one word that readers can load at once (S4).

use crate::Generation;

/// The smallest and the largest progress unit, in bytes.
const UNIT: std::ops::RangeInclusive<u64> = 256 << 10..=16 << 20;

/// Units of a shard whose unit is neither the smallest nor the largest.
const UNITS: u64 = 256;

/// The bytes of one chunk of a shard's memory: what a chain adds in latency for each of its links.
/// Shards of the same layout have the same number of bytes, and so the same chunks.
pub fn progress_unit(shard_bytes: u64) -> u64 {
    (shard_bytes / UNITS).clamp(*UNIT.start(), *UNIT.end())
}

/// The first so many chunks of a generation, in one word: a count without its generation would be
/// taken for that of another (S4, F13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress(u64);

/// What a progress word says of the generation that a reader was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// So many chunks can be read.
    Count(u32),
    /// It is of an earlier generation: the source has not begun to tell.
    Stale,
    /// It is of a later generation: the source has moved on.
    Gone,
}

impl Progress {
    /// The first `count` chunks of a generation are there.
    pub fn new(generation: Generation, count: u32) -> Self {
        Self(u64::from(tag(generation)) << 32 | u64::from(count))
    }

    /// As it was loaded from a source's memory.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// As it is stored: after the chunks that it counts are visible.
    pub fn word(self) -> u64 {
        self.0
    }

    /// The count, whatever the generation.
    pub fn count(self) -> u32 {
        self.0 as u32
    }

    /// What it says of a generation. Generations are told apart by their low 32 bits: a reader and
    /// its source are never half of that apart.
    pub fn of(self, generation: Generation) -> Reading {
        match tag(generation).wrapping_sub((self.0 >> 32) as u32) {
            0 => Reading::Count(self.count()),
            ahead if ahead < 1 << 31 => Reading::Stale,
            _ => Reading::Gone,
        }
    }
}

fn tag(generation: Generation) -> u32 {
    generation.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_of_one_generation_only() {
        let word = Progress::from_word(Progress::new(Generation(7), 3).word());
        assert_eq!(word.of(Generation(7)), Reading::Count(3));
        assert_eq!(word.of(Generation(8)), Reading::Stale);
        assert_eq!(word.of(Generation(6)), Reading::Gone);
    }

    #[test]
    fn generations_are_compared_around_the_end_of_the_tag() {
        let word = Progress::new(Generation(u64::from(u32::MAX)), 9);
        assert_eq!(word.of(Generation(1 << 32)), Reading::Stale);
        let word = Progress::new(Generation(1 << 32), 9);
        assert_eq!(word.of(Generation(u64::from(u32::MAX))), Reading::Gone);
    }

    #[test]
    fn units_stay_within_their_bounds() {
        assert_eq!(progress_unit(0), 256 << 10);
        assert_eq!(progress_unit(1 << 30), 4 << 20);
        assert_eq!(progress_unit(1 << 40), 16 << 20);
    }
}
