//! What can be said of an export, and what nobody may say.

use super::*;
use crate::base::limits::MAX_ANSWER_BYTES;
use crate::wire::frames::HEADER_BYTES;
use MemoryKind::{Computed, Host};
use proptest::prelude::*;

fn region(len: u64, kind: Option<MemoryKind>) -> RegionDescription {
    RegionDescription { len, kind }
}

fn encoded(description: &ExportDescription) -> Vec<u8> {
    let mut body = Vec::new();
    put_description(&mut body, description);
    body
}

/// Both ends know it: it is a format.
#[test]
fn a_description_is_these_bytes() {
    let description = ExportDescription {
        filling: true,
        regions: vec![region(258, Some(Host)), region(3, Some(Computed))],
        descriptors: vec![
            LaneDescriptor { lane: 2, bytes: b"abc".to_vec() },
            LaneDescriptor { lane: 9, bytes: Vec::new() },
        ],
    };
    let number = |number: u64| number.to_le_bytes();
    let body = [
        &[1][..],
        &number(2),
        &number(258),
        &[1],
        &number(3),
        &[2],
        &number(2),
        &number(3),
        b"abc",
        &number(9),
        &number(0),
    ]
    .concat();
    assert_eq!(encoded(&description), body);
    assert_eq!(decode_description(&body), Ok(description.clone()));
    assert_eq!(description.descriptor(2), Some(&b"abc"[..]));
    assert_eq!((description.descriptor(9), description.descriptor(1)), (Some(&[][..]), None));
    // Each descriptor can be left out; nothing else can end early.
    let whole = [27, 46, 62];
    for len in 0..body.len() {
        assert_eq!(decode_description(&body[..len]).is_ok(), whole.contains(&len), "{len}");
    }
}

/// Nobody's memory is larger, and sums over it are safe.
#[test]
fn descriptions_are_of_memory_that_there_can_be() {
    const MOST: u64 = i64::MAX as u64;
    let decode = |lens: &[u64]| {
        let regions = lens.iter().map(|len| region(*len, Some(Host))).collect();
        decode_description(&encoded(&ExportDescription { regions, ..Default::default() }))
    };
    assert!(decode(&[]).is_ok() && decode(&[MOST]).is_ok() && decode(&[MOST - 1, 1]).is_ok());
    for lens in [&[MOST + 1][..], &[MOST, 1], &[u64::MAX, 2], &[1, u64::MAX]] {
        assert_eq!(decode(lens), Err(BEYOND), "{lens:?}");
    }
    assert_eq!(decode(&vec![0; MAX_REGIONS]).unwrap().regions.len(), MAX_REGIONS);
    assert!(decode(&vec![0; MAX_REGIONS + 1]).is_err());
    let mut neither = encoded(&ExportDescription::default());
    neither[0] = 2;
    assert!(decode_description(&neither).is_err());
    neither[0] = 0;
    neither[8] = 0xff;
    assert!(decode_description(&neither).is_err(), "more regions than there are bytes");
}

/// A later release has lanes and kinds of memory of its own.
#[test]
fn what_a_reader_does_not_know_is_skipped_and_bounded() {
    let mut body = encoded(&ExportDescription::default());
    body[1] = 1;
    body.extend([7, 0, 0, 0, 0, 0, 0, 0, 200]);
    assert_eq!(decode_description(&body).unwrap().regions, [region(7, None)]);
    let with = |lanes: &[u64]| {
        let descriptor = |lane: &u64| LaneDescriptor { lane: *lane, bytes: vec![1; 5] };
        let descriptors = lanes.iter().map(descriptor).collect();
        decode_description(&encoded(&ExportDescription { descriptors, ..Default::default() }))
    };
    assert_eq!(with(&[u64::MAX, 2]).unwrap().descriptor(2), Some(&[1; 5][..]));
    let lanes: Vec<u64> = (0..=MAX_DESCRIPTORS as u64).collect();
    assert!(with(&lanes[1..]).is_ok() && with(&lanes).is_err());
    assert!(with(&[4, 5, 4]).is_err(), "one lane, one descriptor");
    let mut longer = encoded(&ExportDescription::default());
    put(&mut longer, &[4, u64::MAX]);
    assert!(decode_description(&longer).is_err());
}

/// With what the lanes of this release say of each.
#[test]
fn as_many_regions_as_allowed_fit_into_a_frame() {
    const { assert!(HEADER_BYTES + 9 + MAX_REGIONS * (REGION_BYTES + 8) + 24 <= MAX_ANSWER_BYTES) };
}

proptest! {
    #[test]
    fn what_decodes_is_encoded_again_the_same(bytes in prop::collection::vec(0_u8..4, 0..120)) {
        if let Ok(description) = decode_description(&bytes) {
            let again = encoded(&description);
            prop_assert_eq!(decode_description(&again), Ok(description));
            prop_assert_eq!(again.len(), bytes.len());
        }
    }
}
