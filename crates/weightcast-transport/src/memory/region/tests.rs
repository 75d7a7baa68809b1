//! What a region allows, and what it does not.

use super::*;
use crate::memory::digest::digest_at;

#[test]
fn accesses_are_checked() {
    let region = Region::from_bytes(&[1, 2, 3, 4, 5]).unwrap();
    let mut two = [0; 2];
    region.read_at(3, &mut two).unwrap();
    assert_eq!(two, [4, 5]);
    let error = RegionError::OutOfBounds { offset: 4, len: 2, region: 5 };
    assert_eq!(region.read_at(4, &mut two), Err(error));
    assert_eq!(region.write_at(4, &two), Err(error));
    assert!(region.read_at(usize::MAX, &mut two).is_err());
    assert!(region.digest(5, 0, 0).is_ok());
    assert!(region.digest(6, 0, 0).is_err());
    let fixed = region.clone().read_only();
    assert_eq!(fixed.write_at(0, &two), Err(RegionError::ReadOnly));
    assert_eq!(region.to_vec(), [1, 2, 3, 4, 5]);
    assert_eq!(region.digest(1, 3, 9).unwrap(), digest_at(9, &[2, 3, 4]));
}

#[test]
fn copies_between_regions_are_checked() {
    let source = Region::from_bytes(&(0..=255).collect::<Vec<u8>>()).unwrap();
    let target = Region::allocate(300).unwrap();
    target.copy_from(7, &source, 3, 253).unwrap();
    assert_eq!(target.to_vec()[7..260], source.to_vec()[3..]);
    assert_eq!(target.to_vec()[..7], [0; 7]);
    assert_eq!(target.to_vec()[260..], [0; 40]);
    assert!(target.copy_from(50, &source, 0, 251).is_err());
    assert!(target.copy_from(0, &source, 4, 253).is_err());
    assert_eq!(source.copy_from(9, &source, 0, 10), Err(RegionError::Overlap));
    assert_eq!(source.copy_from(10, &source, 0, 10), Ok(()));
    assert_eq!(source.read_only().copy_from(0, &target, 0, 1), Err(RegionError::ReadOnly));
}

#[test]
fn empty_and_huge_allocations() {
    let empty = Region::allocate(0).unwrap();
    assert!(empty.is_empty() && empty.to_vec().is_empty());
    empty.prefault();
    let big = Region::allocate((4 << 20) + 123).unwrap();
    big.prefault();
    assert_eq!(big.address() % 4096, 0);
    assert_eq!(big.digest(0, big.len(), 0).unwrap(), Digest::ZERO);
    assert!(Region::allocate(usize::MAX).is_err());
}

#[test]
fn the_owner_lives_as_long_as_any_clone() {
    let owner: Arc<Vec<u8>> = Arc::new(vec![7; 10]);
    let address = owner.as_ptr().cast_mut();
    // SAFETY: the vector is not resized and outlives the region through the Arc.
    let region = unsafe { Region::from_raw(address, 10, false, owner.clone()) };
    let clone = region.clone();
    drop(region);
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(clone.to_vec(), vec![7; 10]);
    drop(clone);
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn a_range_may_end_with_its_region_and_no_later() {
    let region = Region::from_bytes(&[7; 5]).unwrap();
    let numbers = || [0, 1, 2, 4, 5, 6, usize::MAX - 1, usize::MAX];
    for (offset, len) in numbers().into_iter().flat_map(|a| numbers().map(|b| (a, b))) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= 5);
        let expected =
            if fits { Ok(()) } else { Err(RegionError::OutOfBounds { offset, len, region: 5 }) };
        assert_eq!(region.range(offset, len).map(drop), expected);
        assert_eq!(region.digest(offset, len, 0).map(drop), expected);
        assert_eq!(region.chunks(offset, len, |_| Ok(())), expected);
        if fits {
            let address = region.range(offset, len).unwrap() as u64;
            assert_eq!(address, region.address() + offset as u64);
        }
    }
    let said = format!("{:?}", region.read_only());
    assert_eq!(said, "Region { len: 5, writable: false, computed: false, .. }");
}

#[test]
fn chunks_are_the_bytes_in_order_and_none_of_a_range_that_leaves() {
    let bytes: Vec<u8> = (0..3 * TAKEN_BYTES + 99).map(|i| (i % 251) as u8).collect();
    let region = Region::from_bytes(&bytes).unwrap();
    let all = |offset, len| {
        let (mut lens, mut found) = (Vec::new(), Vec::new());
        let done = region.chunks(offset, len, |chunk| {
            lens.push(chunk.len());
            found.extend_from_slice(chunk);
            Ok(())
        });
        (done.is_ok(), lens, found)
    };
    let most = TAKEN_BYTES;
    let table = [
        (0, 0, vec![]),
        (5, 1, vec![1]),
        (0, most, vec![most]),
        (1, most + 1, vec![most, 1]),
        (7, most - 1, vec![most - 1]),
        (3, 3 * most + 96, vec![most, most, most, 96]),
        (100, 2 * most, vec![most, most]),
    ];
    for (offset, len, lens) in table {
        let expected = (true, lens, bytes[offset..offset + len].to_vec());
        assert!(all(offset, len) == expected, "{len} at {offset}");
    }
    assert_eq!(all(most, 2 * most + 100), (false, vec![], vec![]), "not even its beginning");
    let mut calls = 0;
    let failed = region.chunks(0, 2 * most, |_| {
        calls += 1;
        Err(RegionError::Overlap)
    });
    assert_eq!((failed, calls), (Err(RegionError::Overlap), 1));
}

#[test]
fn a_copy_within_a_region_must_not_touch_its_source() {
    let region = Region::from_bytes(&[0; 12]).unwrap();
    for (from, to) in (0..=12).flat_map(|from| (0..=12).map(move |to| (from, to))) {
        for len in 0..=12 - from.max(to) {
            let shared = (from..from + len).any(|at| (to..to + len).contains(&at));
            let expected = if shared { Err(RegionError::Overlap) } else { Ok(()) };
            assert_eq!(region.copy_from(to, &region, from, len), expected, "{from} {to} {len}");
        }
    }
}

/// Whoever makes the bytes is only asked for those that there are.
struct CountedCompute;

impl Compute for CountedCompute {
    fn fill(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= 10);
        (offset..).zip(bytes).for_each(|(at, byte)| *byte = at as u8);
    }
}

#[test]
fn a_computed_region_has_bytes_and_no_address() {
    let region = Region::computed(10, Arc::new(CountedCompute));
    assert!(region.is_computed() && !region.is_writable() && !region.is_empty());
    assert_eq!((region.len(), region.address(), region.to_vec()), (10, 0, (0..10).collect()));
    assert_eq!(region.range(0, 1), Err(RegionError::Computed));
    let mut three = [0; 3];
    assert_eq!(region.read_at(7, &mut three), Ok(()));
    assert_eq!(three, [7, 8, 9]);
    assert!(region.read_at(8, &mut three).is_err());
    assert_eq!(region.digest(2, 5, 40), Ok(digest_at(40, &[2, 3, 4, 5, 6])));
    region.prefault();
    let target = Region::allocate(6).unwrap();
    assert_eq!(target.copy_from(1, &region, 4, 5), Ok(()));
    assert_eq!(target.to_vec(), [0, 4, 5, 6, 7, 8]);
    assert!(target.copy_from(2, &region, 4, 5).is_err(), "no room");
    assert!(Region::computed(0, Arc::new(CountedCompute)).is_empty());
    let said = format!("{region:?}");
    assert_eq!(said, "Region { len: 10, writable: false, computed: true, .. }");
}

#[test]
fn raw_memory_is_as_writable_as_its_owner_says() {
    let owner: Arc<Vec<u8>> = Arc::new(vec![7; 10]);
    for writable in [false, true] {
        let address = owner.as_ptr().cast_mut();
        // SAFETY: the vector outlives the region through the Arc; nothing is written.
        let region = unsafe { Region::from_raw(address, 10, writable, owner.clone()) };
        assert_eq!(region.is_writable(), writable);
        assert_eq!(region.write_at(0, &[]).is_ok(), writable);
    }
}

/// Pages that were made for reading only would each cost the first write a fault all the same.
#[test]
fn whoever_writes_to_prefaulted_memory_waits_for_no_page() {
    const PAGES: usize = 256;
    let faults = || -> usize {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(7).unwrap().parse().unwrap()
    };
    let bytes = vec![1; PAGES << 12];
    let region = Region::allocate(bytes.len()).unwrap();
    region.prefault();
    let before = faults();
    region.write_at(0, &bytes).unwrap();
    let cost = faults() - before;
    // AddressSanitizer may look at its own eighth for the first time.
    assert!(cost < PAGES / 4, "{cost} faults");
}
