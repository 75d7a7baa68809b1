use super::*;
use crate::limits::MIN_UNIT_BYTES;
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
    let copies =
        [Copy::contiguous(0, 0, 0, 0, UNIT as u64), Copy::contiguous(0, 0, 1, 0, UNIT as u64)];
    let missing = filling.begin([copies.as_slice()].into_iter());
    assert_eq!(missing[0].iter().map(Copy::bytes).sum::<u64>(), 2 * UNIT as u64);
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
    let copies = [Copy::contiguous(0, 0, 0, 0, 4 * UNIT as u64)];
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
    let copy = Copy {
        target_pitch: 2 * UNIT as u64,
        source_pitch: 0,
        ..Copy::contiguous(0, 0, 0, 0, 4 * UNIT as u64)
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
        let copy = Copy {
            source_pitch: row_bytes + 3,
            target_pitch: pitch,
            position_pitch: row_bytes,
            rows,
            row_bytes,
            ..Copy::contiguous(0, 5, 0, 7, 0)
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
        prop_assert_eq!(missing.iter().map(Copy::bytes).sum::<u64>(), bytes);
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
