//! A plan cut into parcels: what one sender writes, and a target counts.

use weightcast_plan::{Copy, Plan};

use crate::client::mismatch::ranges::split;
use crate::limits::PUSH_PARCELS;

/// Bytes of a parcel at least, but for the last one of a sender: small enough that a sender that is lost has little to
/// write again, and large enough that words about parcels cost nothing beside their bytes.
const PARCEL_BYTES: u64 = 4 << 20;

/// Copies of a plan from one shard of its source, in the plan's order; or parts of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parcel {
    /// Which shard.
    pub(super) source: u32,
    pub(super) copies: Vec<Copy>,
    pub(super) bytes: u64,
}

/// The parcels of a plan, in order of their numbers: the same wherever they are made. Each byte of the plan is in one; copies
/// that are larger than a parcel are cut.
pub(super) fn parcels(plan: &Plan) -> Vec<Parcel> {
    let least = PARCEL_BYTES.max(plan.bytes().div_ceil(PUSH_PARCELS as u64 / 2));
    let mut parcels: Vec<Parcel> = Vec::new();
    let mut copies: Vec<Copy> = plan.copies.iter().flat_map(|copy| split(copy, least)).collect();
    // Stable: copies of one shard stay in the plan's order.
    copies.sort_by_key(|copy| copy.source);
    for copy in copies {
        match parcels.last_mut() {
            Some(last) if last.source == copy.source && last.bytes < least => {
                last.bytes += copy.bytes();
                last.copies.push(copy);
            }
            _ => {
                let (source, bytes) = (copy.source, copy.bytes());
                parcels.push(Parcel { source, bytes, copies: vec![copy] });
            }
        }
    }
    parcels
}

/// A number that differs where parcels differ: two releases may make others of one plan.
pub(super) fn fingerprint(parcels: &[Parcel]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for parcel in parcels {
        let copies = parcel.copies.len() as u64;
        for number in [u64::from(parcel.source), parcel.bytes, copies] {
            hasher.update(&number.to_le_bytes());
        }
        for copy in &parcel.copies {
            let buffers = u64::from(copy.source_buffer) << 32 | u64::from(copy.target_buffer);
            for number in
                [buffers, copy.source_offset, copy.target_offset, copy.row_bytes, copy.rows]
            {
                hasher.update(&number.to_le_bytes());
            }
        }
    }
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightcast_plan::Codec;

    fn copy(source: u32, target_offset: u64, row_bytes: u64) -> Copy {
        Copy {
            source,
            source_buffer: 0,
            source_offset: 0,
            source_pitch: row_bytes,
            target_buffer: 0,
            target_offset,
            target_pitch: row_bytes,
            row_bytes,
            rows: 1,
            cell: 0,
            position: target_offset,
            position_pitch: row_bytes,
        }
    }

    fn plan(copies: Vec<Copy>) -> Plan {
        Plan { copies, echoes: Vec::new(), codec: Codec::Raw }
    }

    #[test]
    fn every_byte_is_in_one_parcel_and_each_parcel_is_of_one_shard() {
        let half = PARCEL_BYTES / 2;
        let sizes = [half, half, half, 1, PARCEL_BYTES * 3, 1, half];
        let mut at = 0;
        let copies: Vec<Copy> = (0..70)
            .map(|number| {
                let bytes = sizes[number % sizes.len()];
                at += bytes;
                copy(number as u32 % 3, at - bytes, bytes)
            })
            .collect();
        let made = parcels(&plan(copies.clone()));
        let mut parts: Vec<Copy> = made.iter().flat_map(|parcel| parcel.copies.clone()).collect();
        parts.sort_by_key(|copy| copy.target_offset);
        let mut next = 0;
        for part in &parts {
            let whole = copies.iter().rfind(|copy| copy.target_offset <= part.target_offset);
            let whole = whole.expect("a part of a copy");
            assert_eq!((part.target_offset, part.source), (next, whole.source));
            assert_eq!(part.position, part.target_offset);
            assert_eq!(part.source_offset, part.target_offset - whole.target_offset);
            next += part.bytes();
        }
        assert_eq!(next, at);
        for (parcel, next) in made.iter().zip(made.iter().skip(1)) {
            assert!(parcel.copies.iter().all(|copy| copy.source == parcel.source));
            assert_eq!(parcel.bytes, parcel.copies.iter().map(Copy::bytes).sum::<u64>());
            let last = parcel.copies.last().unwrap().bytes();
            assert!(parcel.bytes - last < PARCEL_BYTES, "it ends once it has enough");
            assert!(parcel.bytes < 2 * PARCEL_BYTES, "and no copy is too large for it");
            let ends = parcel.source < next.source || parcel.bytes >= PARCEL_BYTES;
            assert!(ends && parcel.source <= next.source);
        }
    }

    #[test]
    fn there_are_as_many_parcels_as_words_can_name() {
        let copies = (0..4 * PUSH_PARCELS as u64).map(|n| copy(n as u32 % 2, n, PARCEL_BYTES));
        let made = parcels(&plan(copies.collect()));
        assert!(made.len() <= PUSH_PARCELS && made.len() >= PUSH_PARCELS / 4, "{}", made.len());
        assert!(parcels(&plan(Vec::new())).is_empty());
    }

    #[test]
    fn parcels_that_differ_have_other_fingerprints() {
        let of = |copies: Vec<Copy>| fingerprint(&parcels(&plan(copies)));
        let own = of(vec![copy(0, 0, 8), copy(1, 8, 8)]);
        assert_eq!(own, of(vec![copy(0, 0, 8), copy(1, 8, 8)]));
        for other in [
            vec![copy(0, 0, 8)],
            vec![copy(0, 0, 8), copy(0, 8, 8)],
            vec![copy(0, 0, 8), copy(1, 9, 8)],
            vec![copy(0, 0, 8), copy(1, 8, 9)],
            vec![copy(0, 0, 8), Copy { source_offset: 1, ..copy(1, 8, 8) }],
            vec![copy(0, 0, 8), Copy { source_buffer: 1, ..copy(1, 8, 8) }],
            vec![copy(0, 0, 8), Copy { target_buffer: 1, ..copy(1, 8, 8) }],
            vec![copy(0, 0, 8), Copy { rows: 2, row_bytes: 4, ..copy(1, 8, 8) }],
            vec![copy(1, 0, 8), copy(1, 8, 8)],
        ] {
            assert_ne!(own, of(other));
        }
    }
}
