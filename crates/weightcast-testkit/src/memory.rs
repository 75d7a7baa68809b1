//! A shard's memory: one tag per chunk, so that torn and foreign bytes show.

use std::ops::Range;

use weightcast_protocol::{Nonce, ShardSums, Sum, Version};

use crate::mix::mix;

/// Chunks of one shard, by their place in the whole version. New memory holds no version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaggedMemory {
    first: u32,
    tags: Vec<u64>,
    /// The chunks that this shard counts for its group.
    counted: Range<u32>,
    /// How many shards hold each chunk.
    copies: u64,
}

/// The range of `chunks` that a shard holds: shards share them as evenly as possible.
pub fn chunks_of(shard: u32, num_shards: u32, chunks: u32) -> Range<u32> {
    shard * chunks / num_shards..(shard + 1) * chunks / num_shards
}

/// The tag that a trainer writes into a chunk of a version.
pub fn tag(version: Version, chunk: u32) -> u64 {
    mix(&[version.epoch.0, version.number, chunk.into()])
}

impl TaggedMemory {
    /// The memory of a shard that holds these chunks.
    pub fn new(range: Range<u32>) -> Self {
        Self { first: range.start, tags: vec![0; range.len()], counted: range, copies: 1 }
    }

    /// The memory of a shard that holds all chunks, as every shard of its group does.
    pub fn replicated(shard: u32, num_shards: u32, chunks: u32) -> Self {
        let counted = chunks_of(shard, num_shards, chunks);
        Self { counted, copies: num_shards.into(), ..Self::new(0..chunks) }
    }

    /// Memory for the same chunks, which holds no version.
    pub fn anew(&self) -> Self {
        Self { tags: vec![0; self.tags.len()], ..self.clone() }
    }

    /// Whether other shards of the group hold the same chunks.
    pub fn is_replicated(&self) -> bool {
        self.copies > 1
    }

    /// The chunks that the shard holds.
    pub fn range(&self) -> Range<u32> {
        self.first..self.first + self.tags.len() as u32
    }

    /// A chunk's place among those of this shard.
    pub fn place(&self, chunk: u32) -> u32 {
        chunk - self.first
    }

    /// Whether the shard holds no chunk.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// How many chunks the shard holds.
    pub fn len(&self) -> u32 {
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

    /// The memory's proof for a challenge with this nonce, of what the shard counts for its group.
    pub fn proof(&self, nonce: Nonce) -> u64 {
        let shown = |chunk: u32| mix(&[nonce.0, chunk.into(), self.get(chunk)]);
        self.counted.clone().map(shown).fold(0, u64::wrapping_add)
    }

    /// The memory's digests: additive in the chunks, as the real ones are in the elements.
    pub fn sums(&self) -> ShardSums {
        let lanes = |chunk: u32| {
            let lane = |n: u64| mix(&[n, chunk.into(), self.get(chunk)]);
            Sum([lane(1), lane(2)])
        };
        let sum = |range: Range<u32>| range.map(lanes).fold(Sum::default(), |a, b| a + b);
        let counted = sum(self.counted.clone());
        let expected = Sum(counted.0.map(|lane| lane.wrapping_mul(self.copies)));
        ShardSums { counted, held: sum(self.range()), expected }
    }
}
