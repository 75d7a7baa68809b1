//! Overlaps of buffers in one address space, against an oracle that looks at every byte.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use weightcast_plan::{DType, Entry, Layout, LayoutBuilder, Part, Placed, Slice, Tensor, overlap};

/// A strided matrix of bytes in a buffer of its own: rows, row bytes, pitch, where in the buffer, and
/// where the buffer begins.
type Block = (u64, u64, u64, u64, Option<u64>);

fn layout(blocks: &[Block]) -> (Layout, Vec<Option<u64>>) {
    let (mut buffers, mut tensors, mut entries, mut starts) = (vec![], vec![], vec![], vec![]);
    for (at, &(rows, row, pitch, offset, start)) in blocks.iter().enumerate() {
        tensors.push(Tensor::new(format!("t{at}"), DType::U8, [rows, row]).unwrap());
        let slice = Slice::full(&[rows, row]);
        let buffer = at as u32;
        entries.push(Entry { tensor: buffer, slice, buffer, offset, strides: vec![pitch, 1] });
        buffers.push(offset + rows * pitch);
        starts.push(start);
    }
    (Layout::new(buffers, tensors, entries).unwrap(), starts)
}

fn bytes_of(&(rows, row, pitch, offset, start): &Block) -> Vec<u64> {
    let Some(start) = start else { return Vec::new() };
    (0..rows).flat_map(|r| (0..row).map(move |b| start + offset + r * pitch + b)).collect()
}

fn block() -> impl Strategy<Value = Block> {
    let shape = (1_u64..5, 1_u64..9, 0_u64..7, 0_u64..5);
    let start = prop_oneof![1 => Just(None), 9 => (0_u64..160).prop_map(Some)];
    (shape, start)
        .prop_map(|((rows, row, gap, offset), start)| (rows, row, row + gap, offset, start))
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(12),
        failure_persistence: None,
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn finds_what_looking_at_every_byte_finds(
        one in proptest::collection::vec(block(), 0..5),
        two in proptest::collection::vec(block(), 0..3),
    ) {
        let blocks: Vec<(usize, usize, &Block)> = one.iter().enumerate().map(|(b, block)| (0, b, block))
            .chain(two.iter().enumerate().map(|(b, block)| (1, b, block)))
            .collect();
        let mut holders = BTreeMap::<u64, Vec<(usize, u32)>>::new();
        for &(layout, buffer, block) in &blocks {
            for byte in bytes_of(block) {
                holders.entry(byte).or_default().push((layout, buffer as u32));
            }
        }
        let (first, second) = (layout(&one), layout(&two));
        let placed = [
            Placed { layout: &first.0, starts: &first.1 },
            Placed { layout: &second.0, starts: &second.1 },
        ];
        let found = overlap(&placed);
        let expected = holders.values().any(|holders| holders.len() > 1);
        prop_assert_eq!(found.is_some(), expected);
        let Some(found) = found else { return Ok(()) };
        let place = |share: &weightcast_plan::OverlapShare| {
            let layout = placed[share.layout];
            let buffer = layout.layout.entry(share.entry).buffer;
            (layout.starts[buffer as usize].unwrap() + share.offset, (share.layout, buffer))
        };
        let ((from, a), (also_from, b)) = (place(&found.first), place(&found.second));
        prop_assert!(a < b && from == also_from);
        for byte in from..from + found.bytes.unwrap() {
            prop_assert!(holders[&byte].contains(&a) && holders[&byte].contains(&b), "{:?}", found);
        }
    }
}

#[test]
fn says_which_bytes_of_which_tensors() {
    let (layout, starts) = layout(&[(4, 8, 8, 0, Some(1000)), (2, 8, 8, 0, Some(1024))]);
    let found = overlap(&[Placed { layout: &layout, starts: &starts }]).unwrap();
    assert_eq!(
        found.to_string(),
        "t0 [0:4, 0:8] and t1 [0:2, 0:8] overlap in memory: bytes 24..32 of the memory of \
         t0 [0:4, 0:8] are bytes 0..8 of the memory of t1 [0:2, 0:8]"
    );
}

#[test]
fn tied_names_are_one_and_padding_is_nobodys() {
    let mut builder = LayoutBuilder::new();
    builder.add("a", DType::U8, &[8], vec![Part::new("a").shape([6])], 0);
    builder.pad().also(vec![Part::new("tied").shape([6])], 0);
    builder.add("b", DType::U8, &[2], vec![Part::new("b").shape([2])], 0);
    let layout = builder.build().unwrap();
    let at = |b| overlap(&[Placed { layout: &layout, starts: &[Some(0), Some(b)] }]);
    assert_eq!(at(6), None);
    assert_eq!(at(5).map(|found| found.bytes), Some(Some(1)));
}

#[test]
fn what_is_too_fragmented_to_tell_is_an_overlap() {
    let rows = 1 << 22;
    let (layout, starts) = layout(&[(rows, 1, 2, 0, Some(0)), (rows - 1, 1, 2, 0, Some(1))]);
    let found = overlap(&[Placed { layout: &layout, starts: &starts }]).unwrap();
    assert_eq!(found.bytes, None);
    assert!(found.to_string().contains("too many pieces"), "{found}");
}
