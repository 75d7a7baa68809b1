//! The same bytes give the same proof in any layout, and other bytes another one.

use std::sync::Arc;

use weightcast_plan::{DType, Entry, Layout, LayoutBuilder, Part, Slice, Tensor};
use weightcast_protocol::Nonce;
use weightcast_transport::Region;

use super::super::registration::RegisteredShard;
use super::{mix, rows, sample};
use crate::limits::{PROOF_WINDOW, PROOF_WINDOWS};

const ROWS: u64 = 3_000;
const COLUMNS: u64 = 1_024;

/// A group whose shards hold these boxes of one tensor of bytes, filled from `content`.
fn group(boxes: &[Slice], content: impl Fn(u64, u64) -> u8) -> Vec<RegisteredShard> {
    let tensor = Tensor::new("w".to_owned(), DType::U8, vec![ROWS, COLUMNS]).unwrap();
    let layout = |slice: &Slice| {
        let bytes: u64 = slice.len.iter().product();
        let entry = Entry {
            tensor: 0,
            slice: slice.clone(),
            buffer: 0,
            offset: 0,
            strides: vec![slice.len[1], 1],
        };
        Arc::new(Layout::new(vec![bytes], vec![tensor.clone()], vec![entry]).unwrap())
    };
    let layouts: Vec<Arc<Layout>> = boxes.iter().map(layout).collect();
    let memory = |slice: &Slice| -> Vec<u8> {
        let (rows, columns) = (slice.start[0]..slice.end(0), slice.start[1]..slice.end(1));
        rows.flat_map(|row| columns.clone().map(move |column| (row, column)))
            .map(|(row, column)| content(row, column))
            .collect()
    };
    let shards = boxes.iter().enumerate();
    shards
        .map(|(shard, slice)| {
            let region = Region::from_bytes(&memory(slice)).unwrap();
            RegisteredShard::new(&layouts, shard, vec![region]).unwrap()
        })
        .collect()
}

fn slice(rows: (u64, u64), columns: (u64, u64)) -> Slice {
    let len = vec![rows.1 - rows.0, columns.1 - columns.0];
    Slice { start: vec![rows.0, columns.0], len }
}

fn proof(group: &[RegisteredShard], nonce: u64) -> u64 {
    let parts = group.iter().map(|shard| shard.prove(Nonce(nonce)));
    parts.fold(0, |sum: u64, part| sum.wrapping_add(part))
}

fn weights(row: u64, column: u64) -> u8 {
    (row * 31 + column * 7 + row * column % 11) as u8
}

#[test]
fn layouts_and_copies_make_no_difference_and_bytes_do() {
    let whole = group(&[slice((0, ROWS), (0, COLUMNS))], weights);
    // Columns, some of them twice; and rows.
    let columns = [(0, 300), (200, 700), (700, COLUMNS)].map(|of| slice((0, ROWS), of));
    let rows = [(0, 1_001), (1_001, ROWS)].map(|of| slice(of, (0, COLUMNS)));
    let (columns, rows) = (group(&columns, weights), group(&rows, weights));
    let empty = group(&[slice((0, ROWS), (0, COLUMNS))], |_, _| 0);
    let shifted = group(&[slice((0, ROWS), (0, COLUMNS))], |r, c| weights(r, c).wrapping_add(1));
    for nonce in [1, 7, u64::MAX] {
        let shown = proof(&whole, nonce);
        assert_eq!(proof(&columns, nonce), shown);
        assert_eq!(proof(&rows, nonce), shown);
        assert_ne!(proof(&empty, nonce), shown);
        assert_ne!(proof(&shifted, nonce), shown);
        assert_ne!(proof(&whole, nonce ^ 2), shown, "what is shown once is of no use later");
    }
}

#[test]
fn a_sample_is_bounded_and_of_a_small_group_whole() {
    let large = [("a".to_owned(), 1 << 30), ("b".to_owned(), 3), ("c".to_owned(), 1 << 34)];
    let bytes = |sample: super::Sample| -> u64 {
        sample.values().flatten().map(|range| range.end - range.start).sum()
    };
    for nonce in 0..50 {
        let of = sample(&large, Nonce(nonce));
        assert!(of["c"].iter().all(|range| range.end <= 1 << 34));
        assert!(bytes(of) <= PROOF_WINDOW * PROOF_WINDOWS);
    }
    assert_ne!(sample(&large, Nonce(1)), sample(&large, Nonce(2)));
    let small = [("a".to_owned(), 1 << 20), ("b".to_owned(), 3)];
    assert_eq!(bytes(sample(&small, Nonce(5))), (1 << 20) + 3);
}

#[test]
fn no_row_with_bytes_in_a_range_is_passed_over() {
    let whole = group(&[slice((5, 2_000), (100, 400))], weights);
    let run = whole[0].runs[0];
    for start in [0, 5_219, 5_220, 5_519, 5_520, 6_244, 1_000_000, 2_047_000] {
        let range = start..start + 777;
        let has = |row: &u64| {
            let position = run.position + row * run.position_pitch;
            position < range.end && position + run.row_bytes > range.start
        };
        let looked_at = rows(&run, &range);
        assert!((0..run.rows).filter(has).all(|row| looked_at.contains(&row)), "{range:?}");
        assert!(looked_at.end - looked_at.start < 5);
    }
}

#[test]
fn windows_are_drawn_over_all_tensors_one_after_another() {
    let (window, windows) = (PROOF_WINDOW, PROOF_WINDOWS);
    let named = |sizes: &[u64]| -> Vec<(String, u64)> {
        sizes.iter().enumerate().map(|(at, bytes)| (format!("t{at}"), *bytes)).collect()
    };
    for sizes in [
        vec![window * windows + 1],
        vec![1, window * windows, 0, 7],
        vec![window; 100],
        // So many that some windows begin where a tensor ends.
        vec![40; 110_000],
        vec![1 << 20; 9],
        vec![3 << 30, 5, 1 << 34],
    ] {
        let tensors = named(&sizes);
        for nonce in [0, 1, 77, u64::MAX] {
            let mut seen: Vec<(u64, u64)> = Vec::new();
            let drawn = sample(&tensors, Nonce(nonce));
            let mut before = 0;
            for (name, bytes) in &tensors {
                for range in drawn.get(name).into_iter().flatten() {
                    assert!(range.start < range.end && range.end <= *bytes, "{range:?}");
                    seen.push((before + range.start, before + range.end));
                }
                before += bytes;
            }
            // Where they begin in all bytes, each with as many as its tensor still has.
            let end = |place: u64| {
                let mut end = 0;
                sizes
                    .iter()
                    .map(|bytes| {
                        end += bytes;
                        end
                    })
                    .find(|end| place < *end)
                    .unwrap()
            };
            let places = (0..windows).map(|number| mix(nonce, number) % before);
            let mut expected: Vec<_> = places.map(|at| (at, (at + window).min(end(at)))).collect();
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(seen, expected, "{sizes:?} {nonce}");
        }
    }
    // As much as the windows would be is shown whole, each tensor once.
    let whole = sample(&named(&[window * windows - 5, 0, 5]), Nonce(3));
    let ranges: Vec<_> = whole.into_values().flatten().collect();
    assert_eq!(ranges, [0..window * windows - 5, 0..0, 0..5]);
}

#[test]
fn what_is_shown_is_each_byte_times_the_key_of_its_tensor_and_place() {
    // Two shards: each holds all of a small tensor and half of another.
    let sizes = [("a", 300_u64, false), ("b", 70_000, true), ("c", 9, false)];
    let byte = |tensor: usize, at: u64| (at * 7 + at / 251 + tensor as u64 * 13 + 1) as u8;
    let mut layouts = Vec::new();
    let mut contents = Vec::new();
    for shard in 0..2 {
        let mut builder = LayoutBuilder::new();
        let mut buffers = Vec::new();
        for (number, (name, bytes, cut)) in sizes.iter().enumerate() {
            let (start, len) = if *cut { (shard * bytes / 2, bytes / 2) } else { (0, *bytes) };
            let part = Part::new(*name).shape([*bytes]);
            let part = if *cut { part.dim(0, shard, 2) } else { part };
            builder.add(*name, DType::U8, &[len], vec![part], 0);
            buffers.push((start..start + len).map(|at| byte(number, at)).collect::<Vec<u8>>());
        }
        layouts.push(Arc::new(builder.build().unwrap()));
        contents.push(buffers);
    }
    let shards = contents.iter().enumerate().map(|(shard, buffers)| {
        let regions = buffers.iter().map(|bytes| Region::from_bytes(bytes).unwrap()).collect();
        RegisteredShard::new(&layouts, shard, regions).unwrap()
    });
    let shards: Vec<RegisteredShard> = shards.collect();
    for nonce in [0, 5, u64::MAX - 1] {
        let mut expected = 0_u64;
        for (number, (_, bytes, _)) in sizes.iter().enumerate() {
            let key = mix(!nonce, number as u64 + 1);
            for at in 0..*bytes {
                let weighed = u64::from(byte(number, at)).wrapping_mul(mix(key, at));
                expected = expected.wrapping_add(weighed);
            }
        }
        assert_eq!(proof(&shards, nonce), expected);
    }
}

/// The proof of a large group covers the windows alone, each byte times its key.
#[test]
fn of_a_large_group_the_windows_are_shown_and_nothing_else() {
    const ALL: u64 = 2 * PROOF_WINDOW * PROOF_WINDOWS;
    let tensor = Tensor::new("w".to_owned(), DType::U8, vec![ALL]).unwrap();
    let slice = Slice { start: vec![0], len: vec![ALL] };
    let entry = Entry { tensor: 0, slice, buffer: 0, offset: 3, strides: vec![1] };
    let layout = Layout::new(vec![ALL + 3], vec![tensor], vec![entry]).unwrap();
    let memory: Vec<u8> = (0..ALL + 3).map(|at| mix(1, at) as u8).collect();
    let region = Region::from_bytes(&memory).unwrap();
    let whole = RegisteredShard::new(&[Arc::new(layout)], 0, vec![region]).unwrap();
    for nonce in [0, 1, u64::MAX] {
        let sample = sample(&[("w".to_owned(), ALL)], Nonce(nonce));
        let key = mix(!nonce, 1);
        let byte = |at: u64| u64::from(memory[at as usize + 3]).wrapping_mul(mix(key, at));
        let bytes = sample["w"].iter().flat_map(Clone::clone).map(byte);
        let expected = bytes.fold(0, u64::wrapping_add);
        assert_eq!(whole.prove(Nonce(nonce)), expected, "{nonce}");
    }
}

/// Shards may hold different tensors, as stages of a pipeline do, or ranks with experts of their
/// own.
#[test]
fn shards_that_hold_different_tensors_show_what_one_shard_of_all_shows() {
    let group = |shards: &[&[&str]]| -> Vec<RegisteredShard> {
        let layout = |names: &&[&str]| {
            let mut layout = LayoutBuilder::new();
            for name in *names {
                layout.add(*name, DType::U8, &[64], vec![Part::new(*name).shape([64])], 0);
            }
            Arc::new(layout.build().unwrap())
        };
        let layouts: Vec<Arc<Layout>> = shards.iter().map(layout).collect();
        let filled = |name: &&str| Region::from_bytes(&[name.as_bytes()[0]; 64]).unwrap();
        let shards = shards.iter().enumerate().map(|(shard, names)| {
            RegisteredShard::new(&layouts, shard, names.iter().map(filled).collect()).unwrap()
        });
        shards.collect()
    };
    let whole = group(&[&["a", "b", "c"]]);
    for nonce in [1, 9] {
        let shown = proof(&whole, nonce);
        for shards in [&[&["a"][..], &["b", "c"]][..], &[&["c"], &["b"], &["a"]]] {
            assert_eq!(proof(&group(shards), nonce), shown, "{shards:?}");
        }
    }
}
