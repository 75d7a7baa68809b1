//! More bytes than 32 bits count. Ten gigabytes of memory: `make large`.

use crate::ways::{Way, noise};
use std::time::{Duration, Instant};
use weightcast_transport::*;

const LEN: usize = (5 << 30) + 4_099;
const CHUNK: usize = 1 << 20;
/// Where the second of two rows begins.
const FAR: u64 = (4 << 30) + 12_345;

/// What lies in each mebibyte: noise, and its number.
fn chunk(noise: &mut [u8], number: usize) -> &[u8] {
    noise[..8].copy_from_slice(&(number as u64).to_le_bytes());
    let len = CHUNK.min(LEN - number * CHUNK);
    &noise[..len]
}

fn five_gigabytes_arrive<W: Way>() {
    let (way, mut noise) = (W::new(), noise(CHUNK, 7));
    let source = W::memory(LEN);
    for number in 0..LEN.div_ceil(CHUNK) {
        source.write_at(number * CHUNK, chunk(&mut noise, number)).unwrap();
    }
    let whole = source.digest(0, LEN, 0).unwrap();
    let export = way.exports().expose(1, vec![source.clone()]);
    let target = [Region::allocate(LEN).unwrap()];
    let read = |copies: Vec<StridedCopy>| {
        let deadline = Some(Instant::now() + Duration::from_secs(300));
        let options = TransferOptions { deadline, ..TransferOptions::default() };
        weightcast_transport::read(&[way.job(export, copies)], &target, &options).unwrap()
    };
    let digests = read(vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)]);
    assert_eq!(digests, [whole]);
    let mut came = vec![0; CHUNK];
    for number in 0..LEN.div_ceil(CHUNK) {
        let expected = chunk(&mut noise, number);
        target[0].read_at(number * CHUNK, &mut came[..expected.len()]).unwrap();
        assert!(came[..expected.len()] == *expected, "mebibyte {number}");
    }
    // Two rows of which the second lies beyond 32 bits, at the source and at the target.
    let (rows, row_bytes) = (2, 5_000);
    let far = StridedCopy {
        rows,
        source_pitch: FAR,
        target_pitch: FAR,
        position_pitch: FAR,
        ..StridedCopy::contiguous(0, 3, 0, 7, row_bytes)
    };
    let digests = read(vec![far]);
    let rows = [0, FAR as usize].map(|at| {
        let (mut row, mut expected) = (vec![0; row_bytes as usize], vec![0; row_bytes as usize]);
        target[0].read_at(at + 7, &mut row).unwrap();
        source.read_at(at + 3, &mut expected).unwrap();
        assert!(row == expected, "the row at {at}");
        digest_at(at as u64 + 7, &row)
    });
    assert_eq!(digests, [rows.into_iter().sum()]);
    way.came(export);
}

#[test]
#[ignore = "ten gigabytes: make large"]
fn by_the_reference() {
    five_gigabytes_arrive::<crate::ways::Reference>();
}

#[test]
#[ignore = "ten gigabytes: make large"]
fn directly() {
    five_gigabytes_arrive::<crate::ways::Direct>();
}

#[test]
#[ignore = "ten gigabytes: make large"]
fn over_tcp() {
    five_gigabytes_arrive::<crate::ways::Tcp>();
}

#[test]
#[ignore = "ten gigabytes: make large"]
fn out_of_shared_memory() {
    five_gigabytes_arrive::<crate::ways::Shared>();
}
