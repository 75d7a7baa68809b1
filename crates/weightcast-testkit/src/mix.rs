//! A hash of numbers.

/// A hash of numbers, for tags and for choices that must not depend on order.
pub fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x5bd1_e995, |hash, n| scramble(hash ^ n.wrapping_add(0x9e37_79b9)))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a permutation of all numbers.
pub fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
