//! The sums and notes of a group's shards add up to those of the whole, however the tensors are
//! cut.

use std::sync::Arc;

use weightcast_plan::{DType, Layout, LayoutBuilder, Part};
use weightcast_transport::Region;

use super::*;

const ROWS: u64 = 6;
const COLUMNS: u64 = 8;

fn byte(row: u64, column: u64) -> u8 {
    (row * 37 + column * 11 + 5) as u8
}

/// Share `shard` of `of` of a matrix's columns, and a whole vector.
pub(in crate::client::memory) fn shard_of(shard: u64, of: u64) -> (Arc<Layout>, Vec<Region>) {
    let columns = shard * COLUMNS / of..(shard + 1) * COLUMNS / of;
    let mut builder = LayoutBuilder::new();
    let part = Part::new("matrix").shape([ROWS, COLUMNS]).dim(1, shard, of);
    builder.add("matrix", DType::U8, &[ROWS, COLUMNS / of], vec![part], 0);
    builder.add("vector", DType::U8, &[COLUMNS], vec![Part::new("vector").shape([COLUMNS])], 0);
    let matrix: Vec<u8> =
        (0..ROWS).flat_map(|row| columns.clone().map(move |column| byte(row, column))).collect();
    let vector: Vec<u8> = (0..COLUMNS).map(|at| byte(99, at)).collect();
    let regions = [matrix, vector].map(|bytes| Region::from_bytes(&bytes).unwrap());
    (Arc::new(builder.build().unwrap()), regions.into())
}

fn group(of: u64) -> Vec<RegisteredShard> {
    let (layouts, regions): (Vec<_>, Vec<_>) = (0..of).map(|shard| shard_of(shard, of)).unzip();
    let regions = regions.into_iter().enumerate();
    regions
        .map(|(shard, regions)| RegisteredShard::new(&layouts, shard, regions).unwrap())
        .collect()
}

fn sums(group: &[RegisteredShard]) -> ShardSums {
    let each = group.iter().map(|shard| shard.fold(&shard.digest_all()));
    each.fold(ShardSums::default(), |all, shard| all + shard)
}

#[test]
fn all_cuts_add_up_to_the_same() {
    let whole = sums(&group(1));
    assert_eq!((whole.held, whole.expected), (whole.counted, whole.counted));
    assert_ne!(whole.counted, Sum::default());
    for of in [2, 4, 8] {
        let group = group(of);
        let cut = sums(&group);
        assert_eq!(cut.counted, whole.counted, "{of}");
        // The vector once for each shard.
        assert_ne!(cut.held, whole.held, "{of}");
        assert_eq!(cut.expected, cut.held, "{of}");
        // One who holds another vector holds what is not expected, whether it counts or not.
        for shard in &group {
            let other = shard.regions[1].to_vec();
            shard.regions[1].write_at(0, &[other[0] ^ 1]).unwrap();
            let changed = sums(&group);
            assert_ne!(changed.expected, changed.held, "{of}");
            shard.regions[1].write_at(0, &other).unwrap();
        }
        assert_eq!(sums(&group), cut);
    }
}

/// The same bytes under two names are not the same content.
#[test]
fn each_tensor_counts_for_itself() {
    let of = |names: [&str; 2]| {
        let mut builder = LayoutBuilder::new();
        for name in names {
            builder.add(name, DType::U8, &[4], vec![Part::new(name).shape([4])], 0);
        }
        let regions = [[1; 4], [2; 4]].map(|bytes| Region::from_bytes(&bytes).unwrap());
        let layout = Arc::new(builder.build().unwrap());
        sums(&[RegisteredShard::new(&[layout], 0, regions.into()).unwrap()]).counted
    };
    assert_ne!(of(["a", "b"]), of(["b", "a"]));
}

#[test]
fn the_note_has_each_entry_and_each_cell() {
    for of in [1, 2, 4] {
        for shard in group(of) {
            let digests = shard.digest_all();
            let note = shard.note(&digests);
            let entries = shard.layout.entries().len();
            let noted = manifest::decode_parts(&note, entries).unwrap();
            for (entry, noted) in noted.iter().enumerate() {
                let cells = shard.cells.iter().zip(&digests);
                let cells = cells.filter(|(cell, _)| cell.entry as usize == entry);
                let sum: Digest = cells.map(|(_, digest)| *digest).sum();
                assert_eq!(*noted, sum, "entry {entry} of {of}");
            }
            assert_eq!(manifest::decode_cells(&note, digests.len()), Some(digests));
        }
    }
}

fn covered(run: Run) -> Vec<(u64, u64)> {
    let row = |row: u64| (run.offset + row * run.pitch, run.position + row * run.position_pitch);
    (0..run.rows)
        .map(row)
        .flat_map(|(offset, position)| (0..run.row_bytes).map(move |i| (offset + i, position + i)))
        .collect()
}

#[test]
fn pieces_cover_a_run_once() {
    let run = Run {
        buffer: 1,
        offset: 5,
        pitch: 12,
        row_bytes: 9,
        rows: 7,
        cell: 2,
        position: 100,
        position_pitch: 50,
    };
    for limit in 1..80 {
        let parts: Vec<Run> = pieces(run, limit).collect();
        assert!(parts.iter().all(|part| part.row_bytes * part.rows <= limit));
        let mut together: Vec<_> = parts.into_iter().flat_map(covered).collect();
        together.sort_unstable();
        assert_eq!(together, covered(run));
    }
}
