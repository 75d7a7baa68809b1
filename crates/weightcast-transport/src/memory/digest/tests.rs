//! The kernels against the definition, and the accidents that must be seen.

use super::*;
use proptest::prelude::*;

/// The definition, word by word, with no blocks of code in common with the kernels but the keys.
fn by_definition(position: u64, bytes: &[u8]) -> Digest {
    let mut lanes = [0_u64; 2];
    for (i, byte) in bytes.iter().enumerate() {
        let at = position + i as u64;
        let word = u64::from(*byte) << (8 * (at % 4));
        let multipliers = keys::block_keys(at / 4 / 1024);
        for lane in 0..2 {
            let key = u64::from(keys::WORD_KEYS[lane].here[(at / 4 % 1024) as usize]);
            lanes[lane] =
                lanes[lane].wrapping_add(multipliers[lane].wrapping_mul(word.wrapping_mul(key)));
        }
    }
    Digest(lanes)
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_kernel_equals_the_definition(
        position in prop_oneof![0_u64..20_000, any::<u32>().prop_map(|p| u64::from(p) << 11)],
        len in 0_usize..20_000,
        skew in 0_usize..64,
        seed in any::<u64>(),
    ) {
        let bytes = noise(len + skew, seed);
        let bytes = &bytes[skew..];
        let expected = by_definition(position, bytes);
        for (name, DigestForm { words, .. }) in forms() {
            // SAFETY: the slice is readable; `forms` lists what this CPU runs.
            let got = unsafe { digest_by(words, position, bytes.as_ptr(), bytes.len()) };
            prop_assert_eq!(got, expected, "{}", name);
        }
        prop_assert_eq!(digest_at(position, bytes), expected);
    }

    #[test]
    fn parts_add_up_however_they_are_cut(
        position in 0_u64..10_000,
        len in 1_usize..30_000,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        seed in any::<u64>(),
    ) {
        let bytes = noise(len, seed);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(len)).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        let parts: Digest = cuts
            .windows(2)
            .map(|cut| digest_at(position + cut[0] as u64, &bytes[cut[0]..cut[1]]))
            .sum();
        prop_assert_eq!(parts, digest_at(position, &bytes));
    }

    #[test]
    fn every_swap_is_seen(
        len in 8_usize..40_000,
        one in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let bytes = noise(len, seed);
        let mut swapped = bytes.clone();
        swapped.swap(one.index(len), other.index(len));
        prop_assert_eq!(digest_at(0, &bytes) == digest_at(0, &swapped), bytes == swapped);
    }
}

#[test]
fn every_single_bit_flip_is_seen() {
    let mut bytes = noise(9_001, 7);
    let whole = digest_at(3, &bytes);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(digest_at(3, &bytes), whole, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_swap_of_rows_is_seen() {
    let bytes = noise(64 * 512, 11);
    let whole = digest_at(0, &bytes);
    for one in 0..64 {
        for other in one + 1..64 {
            let mut swapped = bytes.clone();
            let (head, tail) = swapped.split_at_mut(other * 512);
            head[one * 512..(one + 1) * 512].swap_with_slice(&mut tail[..512]);
            assert_ne!(digest_at(0, &swapped), whole, "rows {one} and {other}");
        }
    }
}

#[test]
fn row_and_column_shards_sum_to_the_whole() {
    let (rows, row_bytes) = (37_usize, 1_234_usize);
    let tensor = noise(rows * row_bytes, 5);
    let whole = digest_at(0, &tensor);
    let cuts = [0, 1, 6, 410, 411, 1_000, row_bytes];
    let columns: Digest = cuts
        .windows(2)
        .flat_map(|cut| {
            (0..rows).map(move |row| row * row_bytes + cut[0]..row * row_bytes + cut[1])
        })
        .map(|range| digest_at(range.start as u64, &tensor[range]))
        .sum();
    assert_eq!(columns, whole);
}

/// The keys are a format: a change of this number is a change of every stored digest.
#[test]
fn the_format_does_not_move() {
    let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let digest = digest_at(0, &bytes);
    assert_eq!(digest, Digest([0xcc0a_cd65_2745_f798, 0xf4cc_252c_7a41_bf88]));
    assert_eq!(Digest::from_bytes(digest.to_bytes()), digest);
}

#[test]
fn scaling_is_linear() {
    let (one, other) = (digest_at(0, b"weights"), digest_at(7, b"of a layer"));
    assert_eq!((one + other).mul([3, 5]), one.mul([3, 5]) + other.mul([3, 5]));
    assert_eq!(one.scale(7), one.mul([7, 7]));
}

#[test]
fn each_lane_is_counted_by_itself() {
    let (one, other) = (Digest([3, 5]), Digest([7, 11]));
    assert_eq!(one.mul([13, 17]), Digest([39, 85]));
    assert_eq!(one.scale(100), Digest([300, 500]));
    assert_eq!(one + other, Digest([10, 16]));
    assert_eq!([one, other, one].into_iter().sum::<Digest>(), Digest([13, 21]));
    assert_eq!(Vec::new().into_iter().sum::<Digest>(), Digest::ZERO);
    let mut sum = one;
    sum += other;
    assert_eq!(sum, Digest([10, 16]));
    // Modulo 2^64.
    let most = Digest([u64::MAX, u64::MAX - 1]);
    assert_eq!(most + one, Digest([2, 3]));
    assert_eq!(most.mul([2, 3]), Digest([u64::MAX - 1, u64::MAX - 5]));
}

#[test]
fn a_digest_is_sixteen_bytes_the_first_lane_first_the_low_byte_first() {
    let digest = Digest([0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09]);
    let bytes: [u8; 16] = std::array::from_fn(|i| i as u8 + 1);
    assert_eq!(digest.to_bytes(), bytes);
    assert_eq!(Digest::from_bytes(bytes), digest);
}

/// Edges of words, of vectors and of blocks, each with the byte before and behind.
#[test]
fn every_kernel_equals_the_definition_at_every_edge() {
    let block = 4 * keys::BLOCK_WORDS;
    let bytes = noise(2 * block + 200, 3);
    let positions = [0, 1, 2, 3, block - 5, block - 4, block - 1, block, block + 1, 77 * block - 2];
    let words: &[usize] = match cfg!(miri) {
        false => &[1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1_023, 1_024, 1_025, 2_048],
        // Which is slow; edges of blocks lie in short ranges too.
        true => &[1, 9, 17],
    };
    let lens = words.iter().flat_map(|words| (0..4).map(move |more| 4 * words - 1 + more));
    for len in [0, 1, 2].into_iter().chain(lens) {
        for position in positions {
            let expected = by_definition(position as u64, &bytes[..len]);
            for (name, DigestForm { words, .. }) in forms() {
                // SAFETY: the slice is readable; `forms` lists what this CPU runs.
                let got = unsafe { digest_by(words, position as u64, bytes.as_ptr(), len) };
                assert_eq!(got, expected, "{name}: {len} bytes at {position}");
            }
        }
    }
}

/// Steps in front of, across and behind the edge of a block at every place of the widest, from words of which none lies
/// as a vector does; and whole blocks, of which the source is asked for ahead.
#[test]
fn every_copy_equals_the_scalar_kernel_and_writes_what_it_digests() {
    let block = 4 * keys::BLOCK_WORDS;
    let source = noise(2 * block + 5, 13);
    let from = &source[5..];
    let zeros = vec![0_u8; 2 * block + 2 * STREAMED];
    let names: Vec<_> = forms().iter().map(|(name, _)| *name).collect();
    assert!(!cfg!(miri) || names == ["scalar", "avx2", "avx512"], "{names:?}: see `make miri`");
    let starts = (block - 2 * STREAMED..=block).step_by(WORD);
    let short = starts.flat_map(|start| [1, 5].map(|steps| (start, steps * STREAMED)));
    for (position, len) in short.chain([(0, 2 * block), (77 * block - 36, 2 * block)]) {
        let index = (position / WORD) as u64;
        // SAFETY: the slice is longer.
        let expected = unsafe { scalar::words(index, from.as_ptr(), len / WORD) };
        for (name, form) in forms() {
            let Some(copy) = form.copy else { continue };
            let mut target = zeros[..len + 2 * STREAMED].to_vec();
            let to = target.as_ptr().align_offset(STREAMED);
            let at = target[to..].as_mut_ptr();
            // SAFETY: both ranges lie in vectors that are longer; `forms` lists what this CPU runs.
            let got = unsafe { copy(index, from.as_ptr(), at, len, from.as_ptr()) };
            assert_eq!(got, expected, "{name}: {len} bytes at {position}");
            let (copied, behind) = target[to..].split_at(len);
            assert!(copied == &from[..len], "{name}: {len} bytes at {position}");
            assert!(target[..to] == zeros[..to], "{name}: {len} bytes at {position}");
            assert!(behind == &zeros[..behind.len()], "{name}: {len} bytes at {position}");
        }
    }
}
