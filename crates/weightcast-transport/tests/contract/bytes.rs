//! What arrives is what was asked for, and so are its digests.

use crate::ways::{Way, arrived, noise};
use weightcast_transport::*;

for_every_way!(
    whole_regions,
    empty_copies,
    strided_to_strided,
    thousands_of_tiny_copies,
    unaligned_everywhere,
    rows_longer_than_a_piece,
    several_sources,
    random_plans,
    digests_can_be_left_out,
);

fn target(len: usize) -> Region {
    Region::allocate(len).unwrap()
}

fn whole_regions<W: Way>() {
    let (way, bytes) = (W::new(), noise(3_000_001, 1));
    let export = way.expose(&[&bytes]);
    let to = target(bytes.len());
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, bytes.len() as u64)];
    let digests = way.read(export, copies, std::slice::from_ref(&to), 1).unwrap();
    assert!(to.to_vec() == bytes);
    assert_eq!(digests, [digest_at(0, &bytes)]);
    way.came(export);
}

fn empty_copies<W: Way>() {
    let way = W::new();
    let export = way.expose(&[b"abc", b""]);
    let to = [target(2), target(0)];
    let copies = vec![
        StridedCopy::contiguous(0, 3, 0, 2, 0),
        StridedCopy::contiguous(1, 0, 1, 0, 0),
        StridedCopy { rows: 0, ..StridedCopy::contiguous(0, 3, 0, 2, 9) },
    ];
    assert_eq!(way.read(export, copies, &to, 1).unwrap(), [Digest::ZERO]);
    assert_eq!(way.read(export, Vec::new(), &[], 0).unwrap(), []);
    assert_eq!(to[0].to_vec(), [0, 0]);
}

/// A column shard of a 64 x 5,000 byte matrix into a narrower one.
fn strided_to_strided<W: Way>() {
    let (way, tensor) = (W::new(), noise(64 * 5_000, 2));
    let export = way.expose(&[&tensor]);
    let to = target(64 * 1_700);
    let copy = StridedCopy {
        source_offset: 1_000,
        source_pitch: 5_000,
        target_offset: 100,
        target_pitch: 1_700,
        row_bytes: 1_500,
        rows: 64,
        slot: 1,
        position: 1_000,
        position_pitch: 5_000,
        ..StridedCopy::contiguous(0, 0, 0, 0, 0)
    };
    let digests = way.read(export, vec![copy], std::slice::from_ref(&to), 2).unwrap();
    let got = to.to_vec();
    let mut expected = Digest::ZERO;
    for row in 0..64 {
        let from = &tensor[row * 5_000 + 1_000..][..1_500];
        assert_eq!(&got[row * 1_700 + 100..][..1_500], from);
        assert!(got[row * 1_700..][..100].iter().all(|byte| *byte == 0), "nothing beside");
        expected += digest_at((row * 5_000 + 1_000) as u64, from);
    }
    assert_eq!(digests, [Digest::ZERO, expected]);
}

fn thousands_of_tiny_copies<W: Way>() {
    let (way, count) = (W::new(), 5_000_usize);
    let regions: Vec<Vec<u8>> = (0..count).map(|i| noise(37 + i % 200, i as u64)).collect();
    let (whole, mut parts, mut end) = (W::holding(&regions.concat()), Vec::new(), 0);
    for region in &regions {
        parts.push(whole.part(end, region.len()).unwrap());
        end += region.len();
    }
    let export = way.exports().expose(1, parts);
    let (mut copies, mut at) = (Vec::new(), 0);
    // Backwards, so that nothing merges.
    for (i, region) in regions.iter().enumerate().rev() {
        let copy = StridedCopy::contiguous(i as u32, 0, 0, at, region.len() as u64);
        copies.push(StridedCopy { slot: i as u32, position: 0, ..copy });
        at += region.len() as u64;
    }
    let to = target(at as usize);
    let digests = way.read(export, copies, std::slice::from_ref(&to), count).unwrap();
    assert!(to.to_vec() == regions.iter().rev().flatten().copied().collect::<Vec<u8>>());
    assert!(digests.iter().zip(&regions).all(|(got, region)| *got == digest_at(0, region)));
    way.came(export);
}

fn unaligned_everywhere<W: Way>() {
    let (way, bytes) = (W::new(), noise(10_000, 3));
    let export = way.expose(&[&bytes]);
    for (from, at, len, position) in [(1, 2, 3, 5), (7, 1, 4_099, 4_095), (4_097, 63, 5_000, 3)] {
        let to = target(at + len);
        let copy = StridedCopy::contiguous(0, from as u64, 0, at as u64, len as u64);
        let copy = StridedCopy { position, ..copy };
        let digests = way.read(export, vec![copy], std::slice::from_ref(&to), 1).unwrap();
        assert_eq!(&to.to_vec()[at..], &bytes[from..from + len]);
        assert_eq!(digests, [digest_at(position, &bytes[from..from + len])]);
    }
}

fn rows_longer_than_a_piece<W: Way>() {
    let row = 1_000_003;
    let (way, bytes) = (W::new(), noise(3 * row, 4));
    let export = way.expose(&[&bytes]);
    let to = target(3 * row + 20);
    let copy = StridedCopy {
        source_pitch: row as u64,
        target_pitch: row as u64 + 10,
        position_pitch: row as u64,
        rows: 3,
        ..StridedCopy::contiguous(0, 0, 0, 0, row as u64)
    };
    let digests = way.read(export, vec![copy], std::slice::from_ref(&to), 1).unwrap();
    let got = to.to_vec();
    assert!((0..3).all(|i| got[i * (row + 10)..][..row] == bytes[i * row..][..row]));
    assert_eq!(digests, [digest_at(0, &bytes)]);
}

fn several_sources<W: Way>() {
    let ways = [W::new(), W::new(), W::new()];
    let bytes: Vec<Vec<u8>> = (0..3).map(|i| noise(700_000, i)).collect();
    let to = target(2_100_000);
    let job = |i: usize| {
        let copy = StridedCopy::contiguous(0, 0, 0, i as u64 * 700_000, 700_000);
        ways[i].job(ways[i].expose(&[&bytes[i]]), vec![copy])
    };
    let jobs = [job(0), job(1), job(2)];
    let options = TransferOptions::default();
    let digests = read(&jobs, std::slice::from_ref(&to), &options).unwrap();
    assert!(to.to_vec() == bytes.concat());
    assert_eq!(digests, [digest_at(0, &bytes.concat())]);
    assert_eq!(arrived(&options), 2_100_000);
}

/// Random cuts of a tensor, scattered at the source and gathered at the target.
fn random_plans<W: Way>() {
    let way = W::new();
    for seed in 0..8_u64 {
        let tensor = noise(200_000, seed);
        let dice = noise(4_000, seed + 100);
        let (mut copies, mut source, mut at, mut i) = (Vec::new(), Vec::new(), 0, 0);
        while at < tensor.len() {
            let len = (usize::from(dice[i]) * (1 + usize::from(dice[i + 1] % 8))).max(1);
            let len = len.min(tensor.len() - at);
            source.extend(noise(usize::from(dice[i + 2] % 32), 0));
            let copy = StridedCopy::contiguous(0, source.len() as u64, 0, at as u64, len as u64);
            copies.push(StridedCopy { slot: u32::from(dice[i] % 3), ..copy });
            source.extend(&tensor[at..at + len]);
            (at, i) = (at + len, i + 3);
        }
        let export = way.expose(&[&source]);
        let to = target(tensor.len());
        let digests = way.read(export, copies, std::slice::from_ref(&to), 3).unwrap();
        assert!(to.to_vec() == tensor, "seed {seed}");
        assert_eq!(digests.into_iter().sum::<Digest>(), digest_at(0, &tensor));
        assert!(way.exports().withdraw(export, std::time::Duration::from_secs(5)));
    }
}

fn digests_can_be_left_out<W: Way>() {
    let way = W::new();
    let export = way.expose(&[b"weights"]);
    let to = target(7);
    let jobs = [way.job(export, vec![StridedCopy::contiguous(0, 0, 0, 0, 7)])];
    let options = TransferOptions { digests: false, ..Default::default() };
    let digests = read(&jobs, std::slice::from_ref(&to), &options).unwrap();
    assert_eq!((digests, to.to_vec()), (vec![Digest::ZERO], b"weights".to_vec()));
}
