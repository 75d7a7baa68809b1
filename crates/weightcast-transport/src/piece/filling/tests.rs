use super::*;
use crate::base::limits::MIN_UNIT_BYTES;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

fn region(len: usize) -> Region {
    Region::allocate(len).unwrap()
}

const UNIT: usize = MIN_UNIT_BYTES as usize;

#[test]
fn a_unit_is_final_once_all_its_planned_bytes_are_there() {
    let filling = Filling::new(&[region(UNIT + 10), region(UNIT)]);
    assert_eq!(filling.progress(), (0, 3));
    // Nothing is brought to the last ten bytes of the first region.
    let copies = [
        StridedCopy::contiguous(0, 0, 0, 0, UNIT as u64),
        StridedCopy::contiguous(0, 0, 1, 0, UNIT as u64),
    ];
    let missing = filling.begin([copies.as_slice()].into_iter());
    assert_eq!(missing[0].iter().map(StridedCopy::bytes).sum::<u64>(), 2 * UNIT as u64);
    filling.arrived(0, 0, UNIT as u64 - 1);
    assert_eq!(filling.progress(), (0, 3));
    filling.arrived(0, UNIT as u64 - 1, 1);
    assert_eq!(filling.progress(), (1, 3));
    filling.arrived(1, 0, UNIT as u64);
    assert_eq!(filling.progress(), (3, 3));
    assert_eq!(filling.bits(), [0b111]);
}

#[test]
fn what_is_final_is_not_asked_for_again() {
    let filling = Filling::new(&[region(4 * UNIT)]);
    let copies = [StridedCopy::contiguous(0, 0, 0, 0, 4 * UNIT as u64)];
    filling.begin([copies.as_slice()].into_iter());
    filling.arrived(0, UNIT as u64, UNIT as u64);
    // Half of a unit counts for nothing.
    filling.arrived(0, 2 * UNIT as u64, UNIT as u64 / 2);
    let missing = filling.begin([copies.as_slice()].into_iter());
    let ranges: Vec<_> = missing[0].iter().map(|c| (c.target_offset, c.bytes())).collect();
    assert_eq!(ranges, [(0, UNIT as u64), (2 * UNIT as u64, 2 * UNIT as u64)]);
}

#[test]
fn one_row_is_one_row_whatever_pitch_it_has() {
    let filling = Filling::new(&[region(4 * UNIT)]);
    // The pitch of a single row means nothing.
    let copy = StridedCopy {
        target_pitch: 2 * UNIT as u64,
        source_pitch: 0,
        ..StridedCopy::contiguous(0, 0, 0, 0, 4 * UNIT as u64)
    };
    filling.begin([[copy].as_slice()].into_iter());
    filling.arrived(0, UNIT as u64, UNIT as u64);
    let missing = filling.begin([[copy].as_slice()].into_iter());
    let ranges = missing[0].iter().map(|c| (c.source_offset, c.target_offset, c.rows, c.row_bytes));
    let unit = UNIT as u64;
    assert!(ranges.eq([(0, 0, 1, unit), (2 * unit, 2 * unit, 1, 2 * unit)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Against bytes in a map: whatever is final already, the missing copies are the rest, once
    /// each, from the same places.
    #[test]
    fn missing_copies_are_the_rest_of_the_copies(
        row_bytes in 1_u64..700_000, rows in 1_u64..6, gap in 0_u64..300_000, kept in any::<u8>(),
    ) {
        let pitch = row_bytes + gap;
        let copy = StridedCopy {
            source_pitch: row_bytes + 3,
            target_pitch: pitch,
            position_pitch: row_bytes,
            rows,
            row_bytes,
            ..StridedCopy::contiguous(0, 5, 0, 7, 0)
        };
        let filling = Filling::new(&[region((7 + pitch * rows) as usize)]);
        filling.begin([[copy].as_slice()].into_iter());
        for unit in 0..filling.left.len() {
            if kept >> (unit % 8) & 1 == 1 {
                filling.left[unit].plan(0);
            }
        }
        let missing = filling.begin([[copy].as_slice()].into_iter()).remove(0);
        let unit = filling.units.bytes;
        let wanted = |at: u64| !filling.left[(at / unit) as usize].is_final();
        let mut bytes = 0;
        for row in 0..rows {
            let start = 7 + row * pitch;
            bytes += (start..start + row_bytes).filter(|at| wanted(*at)).count() as u64;
        }
        prop_assert_eq!(missing.iter().map(StridedCopy::bytes).sum::<u64>(), bytes);
        let mut last = 0;
        for part in &missing {
            for row in 0..part.rows {
                let target = part.target_offset + row * part.target_pitch;
                prop_assert!(target >= last && wanted(target));
                prop_assert!(wanted(target + part.row_bytes - 1));
                last = target + part.row_bytes;
                // The same byte of the same row, on all three sides.
                let (row, from) = ((target - 7) / pitch, (target - 7) % pitch);
                let source = part.source_offset + (target - part.target_offset) / pitch * part.source_pitch;
                prop_assert_eq!(source, 5 + row * (row_bytes + 3) + from);
                prop_assert!(from + part.row_bytes <= row_bytes);
            }
        }
        let left: u64 = filling.left.iter().map(|left| left.0.load(Ordering::Acquire)).sum();
        prop_assert_eq!(left, bytes);
    }
}

/// Everything that is said of progress, for every set of final units.
#[test]
fn bits_and_counts_and_ranges_say_the_same() {
    const UNITS: usize = 11;
    for seed in 0..300_usize {
        let set = ((seed * 2_654_435_761) >> 7) & ((1 << UNITS) - 1);
        let filling = Filling::new(&[region(3 * UNIT), region(8 * UNIT - 1)]);
        let is_in = |unit: &usize| set >> unit & 1 == 1;
        (0..UNITS).filter(is_in).for_each(|unit| filling.left[unit].plan(0));
        assert_eq!(filling.progress(), (set.count_ones() as usize, UNITS));
        let bits = filling.bits();
        assert_eq!(bits, [set as u8, (set >> 8) as u8]);
        for (from, to) in (0..=UNITS).flat_map(|from| (from..=UNITS).map(move |to| (from, to))) {
            let all = (from..to).all(|unit| is_in(&unit));
            assert_eq!(filling.is_final(from..to), all, "{set:b}: {from}..{to}");
            assert_eq!(are_final(&bits, from..to), all, "{set:b}: {from}..{to}");
        }
        assert!(!are_final(&bits, 16..17) && !are_final(&bits, 0..17), "nothing is known of those");
        assert!(are_final(&[], 5..5) && !are_final(&[], 0..1));
    }
}

/// What two jobs bring to one unit is counted together, and each gets its own back, in the order of
/// the memory.
#[test]
fn jobs_share_a_unit_and_keep_their_copies() {
    let filling = Filling::new(&[region(2 * UNIT), region(UNIT)]);
    let (half, unit) = (UNIT as u64 / 2, UNIT as u64);
    let first =
        [StridedCopy::contiguous(0, 0, 1, 0, unit), StridedCopy::contiguous(0, 0, 0, unit, half)];
    let second = [
        StridedCopy::contiguous(0, 9, 0, unit + half, half),
        StridedCopy::contiguous(0, 7, 0, 5, 10),
    ];
    let missing = filling.begin([&first[..], &second[..]].into_iter());
    assert_eq!(missing, [vec![first[1], first[0]], vec![second[1], second[0]]]);
    filling.arrived(0, unit, half);
    assert_eq!(filling.bits(), [0b000]);
    filling.arrived(0, unit + half, half);
    assert_eq!(filling.bits(), [0b010]);
    filling.arrived(0, 5, 10);
    assert_eq!(filling.bits(), [0b011]);
    let missing = filling.begin([&first[..], &second[..]].into_iter());
    assert_eq!(missing, [vec![first[0]], vec![]]);
    // Over the end of a unit, and all of it.
    filling.arrived(1, 0, unit - 1);
    filling.arrived(1, unit - 1, 1);
    assert_eq!(filling.bits(), [0b111]);
}

#[test]
fn what_no_transfer_was_planned_for_is_not_final_and_what_brings_nothing_is() {
    let filling = Filling::new(&[region(UNIT)]);
    assert_eq!((filling.progress(), filling.bits()), ((0, 1), vec![0]));
    filling.begin(std::iter::empty());
    assert_eq!((filling.progress(), filling.bits()), ((1, 1), vec![1]));
    assert_eq!((Filling::new(&[]).progress(), Filling::new(&[]).bits()), ((0, 0), vec![]));
}

/// Whoever waits is woken by what arrives, by a transfer that brings nothing, and by a fence, after
/// which it looks again. Each waits already when it happens.
#[test]
fn who_waits_is_woken() {
    use crate::ExportId;
    use crate::export::served::Export;
    use std::sync::{Arc, mpsc};
    let acts: [fn(&Filling, &Export); 4] = [
        |filling, _| filling.arrived(0, 0, UNIT as u64),
        |filling, _| filling.arrived(0, 0, UNIT as u64 + 1),
        |filling, _| drop(filling.begin(std::iter::empty())),
        |_, export| export.fence(),
    ];
    for (number, act) in acts.into_iter().enumerate() {
        let filling = Arc::new(Filling::new(&[region(2 * UNIT)]));
        filling.begin([&[StridedCopy::contiguous(0, 0, 0, 0, 2 * UNIT as u64)][..]].into_iter());
        let export = Export::new(ExportId(5), 1, Vec::new()).filling(Arc::clone(&filling));
        let (waits, waiting) = mpsc::channel();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| {
                let lock = filling.waiting.lock().unwrap();
                waits.send(()).unwrap();
                let (_lock, late) =
                    filling.moved.wait_timeout(lock, Duration::from_secs(20)).unwrap();
                !late.timed_out()
            });
            waiting.recv().unwrap();
            // Its lock is free once it sleeps.
            drop(filling.waiting.lock().unwrap());
            act(&filling, &export);
            assert!(woken.join().unwrap(), "{number}");
        });
    }
}

/// Nobody would wake it any more.
#[test]
fn whoever_finds_all_final_does_not_wait() {
    let filling = Filling::new(&[region(UNIT)]);
    filling.begin(std::iter::empty());
    let forever = Duration::from_secs(3600);
    filling.wait(0..1, forever);
    filling.wait(0..0, forever);
}
