//! What a group's shards count, hold and note adds up to what the whole does, however it is cut.

use weightcast_plan::{DType, LayoutBuilder, Part};

use super::*;

const ROWS: u64 = 6;
const COLUMNS: u64 = 8;

fn byte(row: u64, column: u64) -> u8 {
    (row * 37 + column * 11 + 5) as u8
}

/// Columns `shard` of `of` of a matrix, and of a vector everything.
fn shard_of(shard: u64, of: u64) -> (Arc<Layout>, Vec<Region>) {
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

#[test]
fn memory_that_may_not_be_written_is_named() {
    let (layout, regions) = shard_of(0, 1);
    let of = |fixed: [bool; 2]| {
        let regions = regions.iter().zip(fixed);
        let regions =
            regions.map(|(of, fixed)| if fixed { of.clone().read_only() } else { of.clone() });
        let made = RegisteredShard::new(&[Arc::clone(&layout)], 0, regions.collect()).unwrap();
        made.read_only().map(str::to_owned)
    };
    assert_eq!(of([false, false]), None);
    assert_eq!(of([true, false]).as_deref(), Some("matrix"));
    assert_eq!(of([false, true]).as_deref(), Some("vector"));
}

/// A shard that holds ranges of vectors of eight elements.
fn ranges(of: &[(&str, u64, u64)]) -> Arc<Layout> {
    let mut builder = LayoutBuilder::new();
    for (number, (name, start, len)) in of.iter().enumerate() {
        let part = Part::new(*name).shape([8]).range(0, *start, *len);
        builder.add(format!("{name}{number}"), DType::U8, &[*len], vec![part], 0);
    }
    Arc::new(builder.build().unwrap())
}

#[test]
fn what_nobody_holds_is_told() {
    for (held, lacks) in [
        (&[("a", 0, 8)][..], None),
        (&[("a", 0, 4), ("a", 4, 4)], None),
        (&[("a", 0, 5)], Some("[5:8] of a")),
        (&[("a", 2, 4)], Some(" and more of a")),
        (&[("a", 0, 5), ("b", 0, 8)], Some("[5:8] of a")),
        (&[("a", 0, 5), ("b", 0, 6)], Some("[5:8] of a, nor all of 1 other tensors")),
        (&[("a", 0, 5), ("b", 0, 6), ("c", 0, 7)], Some(", nor all of 2 other tensors")),
    ] {
        let layouts = [ranges(held)];
        let buffers = layouts[0].buffers().iter();
        let regions = buffers.map(|bytes| Region::allocate(*bytes as usize).unwrap()).collect();
        let made = RegisteredShard::new(&layouts, 0, regions).unwrap();
        match (made.lacking(&layouts), lacks) {
            (None, None) => {}
            (Some(said), Some(part)) => {
                // Shown as [`Tensor`] and as text, whichever the planner has.
                let said = said.replace(&made.tensors["a"].to_string(), "a");
                assert!(said.contains(part), "{part:?} in {said:?}");
                assert_eq!(said.contains("nor all"), part.contains("nor all"), "{said}");
                assert_eq!(said.contains("and more"), part.contains("and more"), "{said}");
            }
            other => panic!("{held:?}: {other:?}"),
        }
    }
}

#[test]
fn shards_must_agree_on_each_tensor() {
    let of = |dtype, size: u64| {
        let mut builder = LayoutBuilder::new();
        builder.add("w", dtype, &[size], vec![Part::new("w").shape([size])], 0);
        Arc::new(builder.build().unwrap())
    };
    let known = of(DType::U8, 4);
    assert!(union(&[Arc::clone(&known), Arc::clone(&known)]).is_ok());
    for other in [of(DType::U8, 5), of(DType::BF16, 4)] {
        let refused = union(&[Arc::clone(&known), Arc::clone(&known), other]).unwrap_err();
        assert!(refused.to_string().contains("shard 2 registers w as"), "{refused}");
    }
}
