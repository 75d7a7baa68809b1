//! The keys of the digest: what makes a word's place count.
//!
//! They are part of the format: two processes compare digests only because both use these.

/// Words of 32 bits that share one multiplier.
pub(super) const BLOCK_WORDS: usize = 1024;

/// Vector kernels load up to 16 keys at once, starting at any word of the block.
const PADDED: usize = BLOCK_WORDS + 16;

/// Seeds of the per-block multipliers, one a lane (digits of pi: nothing up the sleeve).
const BLOCK_SEEDS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344];

/// Seeds of the per-word keys, one a lane.
const WORD_SEEDS: [u64; 2] = [0xA409_3822_299F_31D0, 0x082E_FA98_EC4E_6C89];

/// The per-word keys of one lane, twice: as they are, and one word further on. A 32 by 32 bit
/// vector multiplication sees every other word, so kernels need both at the same alignment.
#[repr(C, align(64))]
pub(super) struct WordKeys {
    /// `here[i]` is the key of word `i` of a block.
    pub(super) here: [u32; PADDED],
    /// `next[i]` is the key of word `i + 1`.
    pub(super) next: [u32; PADDED],
}

/// The per-word keys of both lanes.
pub(super) type LaneKeys = [WordKeys; 2];

/// The per-word keys of both lanes, for whoever only reads.
pub(super) const WORD_KEYS: &LaneKeys = &PLACED.first;

/// The same keys twice, half a page apart by their places in a page: see [`keys_apart_from`].
#[repr(C, align(64))]
struct PlacedKeys {
    first: LaneKeys,
    apart: [u8; APART],
    second: LaneKeys,
}

static PLACED: PlacedKeys =
    PlacedKeys { first: lane_keys(), apart: [0; APART], second: lane_keys() };

/// Bytes after which processors take addresses for the same until they have looked closer.
const PAGE: usize = 4 << 10;

/// Fills the first keys up to half a page.
const APART: usize = (PAGE + PAGE / 2 - size_of::<LaneKeys>() % PAGE) % PAGE;

/// The keys for whoever writes word `place` of a block to `to`, and the next ones behind.
///
/// A processor that reads just after it has written to the same place of another page waits for that write, which it takes
/// for one of the bytes that it is to read (4 KiB aliasing). Keys and target advance in step, so keys that
/// begin at the target's place meet it in each step of the block: the copy took 2.3 times as long on an AMD EPYC. Of the two
/// copies of the keys at least one lies elsewhere.
#[inline]
pub(super) fn keys_apart_from(to: *const u8, place: usize) -> &'static LaneKeys {
    let begun = to.addr().wrapping_sub(place * size_of::<u32>());
    let before = begun.wrapping_sub((&raw const PLACED.first).addr()) % PAGE;
    match (PAGE / 4..PAGE / 4 * 3).contains(&before) {
        true => &PLACED.first,
        false => &PLACED.second,
    }
}

/// The odd multipliers of block `block`, one a lane.
#[inline(always)]
pub(super) fn block_keys(block: u64) -> [u64; 2] {
    BLOCK_SEEDS.map(|seed| splitmix64(seed.wrapping_add(block)) | 1)
}

/// Sebastiano Vigna's SplitMix64: a bijection of 64 bits that mixes well.
#[inline(always)]
const fn splitmix64(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

const fn lane_keys() -> LaneKeys {
    [word_keys(WORD_SEEDS[0]), word_keys(WORD_SEEDS[1])]
}

const fn word_keys(seed: u64) -> WordKeys {
    let mut keys = WordKeys { here: [0; PADDED], next: [0; PADDED] };
    let mut i = 0;
    while i < BLOCK_WORDS {
        keys.here[i] = (splitmix64(seed.wrapping_add(i as u64)) >> 32) as u32 | 1;
        if i > 0 {
            keys.next[i - 1] = keys.here[i];
        }
        i += 1;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distinct keys are why two swapped words of a block are always seen.
    #[test]
    fn word_keys_are_odd_and_distinct() {
        for keys in WORD_KEYS {
            let mut seen: Vec<u32> = keys.here[..BLOCK_WORDS].to_vec();
            assert!(seen.iter().all(|key| key % 2 == 1));
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), BLOCK_WORDS);
        }
    }

    #[test]
    fn shifted_table_is_the_table_shifted() {
        for keys in WORD_KEYS {
            assert_eq!(keys.here[1..BLOCK_WORDS], keys.next[..BLOCK_WORDS - 1]);
        }
    }

    /// All four tables of the keys that are chosen, wherever the target lies: what the processor reads of them lies lines
    /// away from what it has just written.
    #[test]
    fn keys_lie_at_other_places_of_a_page_than_their_target() {
        for (to, place) in
            (0..2 * PAGE).step_by(4).flat_map(|to| [0, 1, 256, 512, 1_023].map(|p| (to, p)))
        {
            let keys = keys_apart_from(std::ptr::without_provenance(to), place);
            for table in keys.iter().flat_map(|lane| [&lane.here, &lane.next]) {
                let behind = (&raw const table[place]).addr().wrapping_sub(to) % PAGE;
                assert!((512..=PAGE - 512).contains(&behind), "{to} {place}: {behind}");
            }
            for (chosen, known) in keys.iter().zip(WORD_KEYS) {
                assert!(chosen.here == known.here && chosen.next == known.next);
            }
        }
    }
}
