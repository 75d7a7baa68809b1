//! A plan spread over several sources of one layout: each is asked for other ranges.

use weightcast_plan::{Copy, Plan};
use weightcast_transport::{RowRange, Rows, Units};

/// The same copies, cut at the borders of the target's units; the units go round the sources. All
/// bytes of a unit come from one source: if a source is lost, the units of the others are kept, and
/// readers of this reader never wait for two sources. Each source has `each` shards, and the plan
/// is made for the shards of the first source.
pub(super) fn spread(plan: Plan, sources: usize, each: usize, units: &Units) -> Plan {
    if sources < 2 {
        return plan;
    }
    let mut copies = Vec::with_capacity(plan.copies.len());
    for copy in &plan.copies {
        let rows = Rows {
            region: copy.target_buffer,
            offset: copy.target_offset,
            pitch: copy.target_pitch,
            row_bytes: copy.row_bytes,
            rows: copy.rows,
        };
        let parts = units.parts(rows, |unit, _| Some((unit % sources * each) as u32));
        copies.extend(parts.into_iter().map(|(first, part)| of(copy, copy.source + first, part)));
    }
    Plan { copies, ..plan }
}

/// A part of a copy, asked of this source.
fn of(copy: &Copy, source: u32, part: RowRange) -> Copy {
    Copy {
        source,
        source_offset: part.at(copy.source_offset, copy.source_pitch),
        target_offset: part.at(copy.target_offset, copy.target_pitch),
        position: part.at(copy.position, copy.position_pitch),
        row_bytes: part.len,
        rows: part.rows,
        ..*copy
    }
}

#[cfg(test)]
mod tests {
    use weightcast_plan::Codec;

    use super::*;

    /// The smallest unit.
    const UNIT: u64 = 64 << 10;

    /// Two shards of a source give halves of a buffer: rows at a pitch.
    fn plan(rows: u64, row_bytes: u64) -> (Plan, Units) {
        let half = rows * (row_bytes + 5);
        let copy = |source: u32| Copy {
            source,
            source_buffer: 0,
            source_offset: 3,
            source_pitch: row_bytes + 1,
            target_buffer: 0,
            target_offset: u64::from(source) * half,
            target_pitch: row_bytes + 5,
            row_bytes,
            rows,
            cell: source,
            position: u64::from(source) * rows * row_bytes,
            position_pitch: row_bytes,
        };
        (
            Plan { copies: vec![copy(0), copy(1)], echoes: Vec::new(), codec: Codec::Raw },
            Units::new([2 * half].into_iter()),
        )
    }

    /// Where each byte comes from and goes to, but for the source: shard, source, target, position.
    fn bytes(copies: &[Copy]) -> Vec<[u64; 4]> {
        let place = |c: &Copy, row: u64, byte: u64| {
            [
                u64::from(c.source % 2),
                c.source_offset + row * c.source_pitch + byte,
                c.target_offset + row * c.target_pitch + byte,
                c.position + row * c.position_pitch + byte,
            ]
        };
        let of = |c: &Copy| {
            let c = *c;
            (0..c.rows).flat_map(move |row| (0..c.row_bytes).map(move |byte| place(&c, row, byte)))
        };
        copies.iter().flat_map(of).collect()
    }

    #[test]
    fn one_source_gives_all_as_it_is() {
        let (whole, units) = plan(9, UNIT / 2);
        assert_eq!(spread(whole.clone(), 1, 2, &units).copies, whole.copies);
    }

    #[test]
    fn every_byte_is_asked_of_one_source_and_all_have_their_share() {
        for (rows, row_bytes) in [(40, UNIT / 3), (3, UNIT * 5 + 7), (900, 500), (UNIT, 8)] {
            let (whole, units) = plan(rows, row_bytes);
            for sources in 2..5 {
                let parts = spread(whole.clone(), sources, 2, &units).copies;
                assert!(bytes(&parts) == bytes(&whole.copies), "{rows} of {row_bytes}: {sources}");
                assert!(parts.iter().all(|part| part.source < 2 * sources as u32));
                for source in 0..sources as u32 {
                    let own = parts.iter().filter(|part| part.source / 2 == source);
                    let share = whole.bytes() / sources as u64;
                    assert!(own.map(Copy::bytes).sum::<u64>().abs_diff(share) <= UNIT);
                }
            }
        }
    }

    #[test]
    fn what_lies_in_a_unit_comes_from_one_source() {
        let (whole, units) = plan(900, 500);
        for part in spread(whole, 3, 2, &units).copies {
            for row in 0..part.rows {
                let target = part.target_offset + row * part.target_pitch;
                let touched: Vec<_> = units.cut(0, target, part.row_bytes).collect();
                assert_eq!(touched.len(), 1);
                assert_eq!(touched[0].0 % 3, part.source as usize / 2);
            }
        }
    }

    #[test]
    fn rows_of_a_unit_stay_together() {
        let (whole, units) = plan(UNIT, 8);
        let parts = spread(whole, 2, 2, &units).copies;
        // One for each unit, and what its borders cut.
        assert!(parts.len() < 3 * 2 * 13 + 4, "{}", parts.len());
    }

    #[test]
    fn nothing_is_left_of_nothing() {
        let (whole, units) = plan(0, 8);
        assert!(spread(whole, 3, 2, &units).copies.is_empty());
    }
}
