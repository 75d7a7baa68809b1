//! A shard's memory: one tag per chunk, so that torn and foreign bytes are seen.

use std::ops::Range;

use weightcast_protocol::{Generation, Nonce, ShardSums, Sum, Version};

use crate::base::rng::mix;

/// Chunks of one shard, by their place in the whole version. Empty of any version at first.
#[derive(Clone, Debug, Default)]
pub struct TaggedMemory {
    first: u32,
    tags: Vec<u64>,
}

/// What a data port serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The generation of the memory.
    pub generation: Generation,
    /// The first so many chunks, if the memory is being filled.
    pub filled: Option<u32>,
}

impl Exposure {
    /// Whether the chunk at this place of the shard is served.
    pub fn has(&self, place: u32) -> bool {
        self.filled.is_none_or(|filled| place < filled)
    }
}

/// Which of `chunks` the shard holds: rows, as evenly as they go.
pub fn chunks_of(shard: u32, num_shards: u32, chunks: u32) -> Range<u32> {
    shard * chunks / num_shards..(shard + 1) * chunks / num_shards
}

/// What a trainer writes into a chunk of a version.
pub(crate) fn tag(version: Version, chunk: u32) -> u64 {
    mix(&[version.epoch.0, version.number, chunk.into()])
}

impl TaggedMemory {
    /// The memory of a shard that holds these chunks.
    pub fn new(range: Range<u32>) -> Self {
        Self { first: range.start, tags: vec![0; range.len()] }
    }

    /// The chunks that the shard holds.
    pub fn range(&self) -> Range<u32> {
        self.first..self.first + self.tags.len() as u32
    }

    /// A chunk's place among those of this shard.
    pub fn place(&self, chunk: u32) -> u32 {
        chunk - self.first
    }

    /// How many chunks the shard holds.
    pub(crate) fn len(&self) -> u32 {
        self.tags.len() as u32
    }

    /// What a chunk holds.
    ///
    /// # Panics
    /// If the shard does not hold it.
    pub fn get(&self, chunk: u32) -> u64 {
        self.tags[(chunk - self.first) as usize]
    }

    /// Writes a chunk.
    ///
    /// # Panics
    /// If the shard does not hold it.
    pub fn set(&mut self, chunk: u32, tag: u64) {
        self.tags[(chunk - self.first) as usize] = tag;
    }

    /// Writes a version.
    pub fn fill(&mut self, version: Version) {
        self.range().for_each(|chunk| self.set(chunk, tag(version, chunk)));
    }

    /// The first chunk that is not of this version.
    pub fn foreign(&self, version: Version) -> Option<u32> {
        self.range().find(|chunk| self.get(*chunk) != tag(version, *chunk))
    }

    /// What is shown of it when that is asked for with this number.
    pub(crate) fn proof(&self, nonce: Nonce) -> u64 {
        let shown = |chunk: u32| mix(&[nonce.0, chunk.into(), self.get(chunk)]);
        self.range().map(shown).fold(0, u64::wrapping_add)
    }

    /// Additive in the chunks, as the real digests are in the elements.
    pub fn sums(&self) -> ShardSums {
        let lanes = |chunk: u32| {
            let lane = |n: u64| mix(&[n, chunk.into(), self.get(chunk)]);
            Sum([lane(1), lane(2)])
        };
        let sum = self.range().map(lanes).fold(Sum::default(), |a, b| a + b);
        ShardSums { counted: sum, held: sum, expected: sum }
    }
}
