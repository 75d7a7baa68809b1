//! A shard's memory: a tag per chunk, so that a torn copy shows.

use std::ops::Range;

use weightcast_protocol::{ShardSums, Sum, Version};

/// Chunks of a whole version: two, so that half of one can be old.
const CHUNKS: u32 = 2;

/// The chunks that one shard holds.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    first: u32,
    tags: Vec<u64>,
}

/// What a trainer writes into a chunk; never zero.
fn tag(version: Version, chunk: u32) -> u64 {
    (version.epoch.0 << 32) + (version.number << 8) + u64::from(chunk) + 1
}

/// Which chunks a shard holds: rows, as evenly as they go.
pub(crate) fn chunks_of(shard: u32, num_shards: u32) -> Range<u32> {
    shard * CHUNKS / num_shards..(shard + 1) * CHUNKS / num_shards
}

impl Memory {
    pub(crate) fn new(shard: u32, num_shards: u32) -> Self {
        let chunks = chunks_of(shard, num_shards);
        Self { first: chunks.start, tags: vec![0; chunks.len()] }
    }

    pub(crate) fn chunks(&self) -> Range<u32> {
        self.first..self.first + self.tags.len() as u32
    }

    pub(crate) fn get(&self, chunk: u32) -> u64 {
        self.tags[(chunk - self.first) as usize]
    }

    pub(crate) fn set(&mut self, chunk: u32, tag: u64) {
        self.tags[(chunk - self.first) as usize] = tag;
    }

    /// Writes a version.
    pub(crate) fn fill(&mut self, version: Version) {
        self.chunks().for_each(|chunk| self.set(chunk, tag(version, chunk)));
    }

    /// Writes something else.
    pub(crate) fn scribble(&mut self) {
        self.tags.fill(0);
    }

    /// Whether it holds this version and nothing else.
    pub(crate) fn is(&self, version: Version) -> bool {
        self.chunks().all(|chunk| self.get(chunk) == tag(version, chunk))
    }

    /// Additive in the chunks, as the real digests are in the elements.
    pub(crate) fn sums(&self) -> ShardSums {
        let lane = |key: u64, chunk: u32| {
            (self.get(chunk) ^ (u64::from(chunk) << 56)).wrapping_mul(key).rotate_left(29)
        };
        let sum = self.chunks().fold(Sum::default(), |sum, chunk| {
            sum + Sum([lane(0x9e37_79b9_7f4a_7c15, chunk), lane(0xd1b5_4a32_d192_ed03, chunk)])
        });
        ShardSums { counted: sum, held: sum, expected: sum }
    }
}
