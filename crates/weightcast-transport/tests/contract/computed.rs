//! Regions whose bytes are made when they are read: the same contract, nothing of them in memory.

use crate::ways::{Way, noise, soon, token};
use std::sync::Arc;
use weightcast_transport::*;

for_every_way!(computed_bytes_arrive, computed_and_held_bytes_mix, a_fenced_one_is_not_read);

/// Each byte of the source twice, the second time inverted.
struct Doubled(Region);

impl Compute for Doubled {
    fn fill(&self, offset: usize, bytes: &mut [u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let mut one = [0];
            self.0.read_at(at / 2, &mut one).unwrap();
            *byte = if at % 2 == 0 { one[0] } else { !one[0] };
        }
    }
}

fn doubled(source: &[u8]) -> (Region, Vec<u8>) {
    let region = Region::from_bytes(source).unwrap();
    let bytes = source.iter().flat_map(|byte| [*byte, !*byte]).collect();
    (Region::computed(2 * source.len(), Arc::new(Doubled(region))), bytes)
}

/// More than a batch of the data port, in pieces that begin anywhere.
fn computed_bytes_arrive<W: Way>() {
    let way = W::new();
    let (region, bytes) = doubled(&noise((3 << 20) / 2 + 77, 1));
    let export = way.exports().expose(1, vec![region]);
    let to = Region::allocate(bytes.len()).unwrap();
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, bytes.len() as u64)];
    let digests = way.read(export, copies, std::slice::from_ref(&to), 1).unwrap();
    assert!(to.to_vec() == bytes);
    assert_eq!(digests, [digest_at(0, &bytes)]);
}

/// Rows of a computed region between rows of a held one, batches ending in the middle of either.
fn computed_and_held_bytes_mix<W: Way>() {
    let way = W::new();
    let (region, made) = doubled(&noise(1 << 20, 2));
    let held = noise(2 << 20, 3);
    let export = way.exports().expose(1, vec![region, Region::from_bytes(&held).unwrap()]);
    let to = Region::allocate(2 * (2 << 20)).unwrap();
    let row = |at: u64, len: u64| [(0_u32, at, len), (1, at, len)];
    let (mut copies, mut expected, mut target) = (Vec::new(), Vec::new(), 0);
    for (index, len) in [1_u64, 700_001, 13, 300_000, 4_095, 8_193, 999_983].into_iter().enumerate()
    {
        for (region, at, len) in row(7 * index as u64, len) {
            copies.push(StridedCopy::contiguous(region, at, 0, target, len));
            let from = if region == 0 { &made } else { &held };
            expected.extend_from_slice(&from[at as usize..(at + len) as usize]);
            target += len;
        }
    }
    way.read(export, copies, std::slice::from_ref(&to), 1).unwrap();
    assert!(to.to_vec()[..expected.len()] == expected);
}

fn a_fenced_one_is_not_read<W: Way>() {
    let way = W::new();
    let (region, bytes) = doubled(b"abc");
    let export = way.exports().expose(1, vec![region]);
    way.exports().fence(export);
    let to = Region::allocate(bytes.len()).unwrap();
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 6)];
    let error = way.read(export, copies, std::slice::from_ref(&to), 1).unwrap_err();
    assert_eq!(error.kind, TransportError::Refused(RequestRefusal::StaleGeneration));
}

#[test]
fn digests_of_a_computed_region_are_those_of_its_bytes() {
    let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), token()).unwrap();
    let (region, bytes) = doubled(&noise(40_000, 4));
    let export = server.exports().expose(1, vec![region.clone()]);
    let peer = Peer::connect(server.addr(), &token(), soon()).unwrap();
    let extent = Extent { region: 0, offset: 11, row_bytes: 20_000, rows: 3, pitch: 25_001 };
    let placed = PlacedExtent { extent, position: 5, position_pitch: 30_000 };
    let digests = peer.digests(export, 1, &[placed], soon()).unwrap();
    let row = |row: usize| &bytes[11 + row * 25_001..][..20_000];
    let expected = (0..3).map(|r| digest_at(5 + r as u64 * 30_000, row(r))).sum::<Digest>();
    assert_eq!(digests, [expected]);
    assert_eq!(region.digest(0, bytes.len(), 9).unwrap(), digest_at(9, &bytes));
}

#[test]
fn a_computed_region_can_be_read_and_copied_not_written() {
    let (region, bytes) = doubled(&noise(30_000, 5));
    assert_eq!((region.address(), region.is_writable()), (0, false));
    assert_eq!(region.to_vec(), bytes);
    assert_eq!(region.write_at(0, b"x"), Err(RegionError::ReadOnly));
    let copy = Region::allocate(bytes.len() + 3).unwrap();
    copy.copy_from(3, &region, 100, 59_000).unwrap();
    assert_eq!(copy.to_vec()[3..59_003], bytes[100..59_100]);
    let outside = RegionError::OutOfBounds { offset: 59_999, len: 2, region: 60_000 };
    assert_eq!(region.read_at(59_999, &mut [0; 2]), Err(outside));
    assert_eq!(copy.copy_from(0, &region, 59_999, 2), Err(outside));
    assert_eq!(region.chunks(59_999, 2, |_| Ok(())), Err(outside));
}
