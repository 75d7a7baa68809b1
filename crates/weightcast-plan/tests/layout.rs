//! What a layout accepts and what it refuses.

use proptest::prelude::*;
use weightcast_plan::{DType, Entry, Layout, LayoutError, Slice, Tensor, limits};

fn tensor(name: &str, dtype: DType, shape: &[u64]) -> Tensor {
    Tensor::new(name, dtype, shape).unwrap()
}

fn entry(tensor: u32, start: &[u64], len: &[u64], offset: u64, strides: &[u64]) -> Entry {
    Entry { tensor, slice: Slice::new(start, len), buffer: 0, offset, strides: strides.to_vec() }
}

/// A layout of one buffer and two bf16 matrices `a` and `b` of 4 x 4.
fn squares(bytes: u64, entries: Vec<Entry>) -> Result<Layout, LayoutError> {
    let square = |name| tensor(name, DType::BF16, &[4, 4]);
    Layout::new(vec![bytes], vec![square("a"), square("b")], entries)
}

#[test]
fn holds_packed_and_interleaved_tensors() {
    let layout = squares(
        64,
        vec![entry(0, &[0, 0], &[4, 4], 0, &[8, 2]), entry(1, &[0, 0], &[4, 4], 32, &[8, 2])],
    );
    assert_eq!(layout.unwrap().bytes(), 64);
    let columns = squares(
        64,
        vec![entry(0, &[0, 0], &[4, 4], 0, &[16, 2]), entry(1, &[0, 0], &[4, 4], 8, &[16, 2])],
    );
    assert_eq!(columns.unwrap().bytes(), 64);
    // Columns of different height: apart, but not by one period.
    let ragged = squares(
        64,
        vec![entry(0, &[0, 0], &[4, 4], 0, &[16, 2]), entry(1, &[0, 0], &[3, 4], 8, &[16, 2])],
    );
    assert_eq!(ragged.unwrap().bytes(), 56);
}

#[test]
fn refuses_shared_memory() {
    let clash = |entries| match squares(256, entries) {
        Err(LayoutError::SharedMemory { first, second, from, to, .. }) => {
            assert!(from < to);
            (first, second, from..to)
        }
        other => panic!("{other:?}"),
    };
    let whole = |tensor, offset, pitch| entry(tensor, &[0, 0], &[4, 4], offset, &[pitch, 2]);
    let names = clash(vec![whole(0, 0, 8), whole(1, 24, 8)]);
    assert_eq!(names, ("a [0:4, 0:4]".into(), "b [0:4, 0:4]".into(), 24..32));
    clash(vec![whole(0, 0, 16), whole(1, 4, 16)]); // columns overlap
    clash(vec![whole(0, 0, 16), whole(1, 20, 16)]); // columns overlap from the second row on
    clash(vec![whole(0, 0, 16), whole(1, 8, 24)]); // pitches drift into each other
    let rows = clash(vec![whole(0, 0, 16), whole(1, 0, 8)]); // same start, other rows
    assert_eq!(rows.2, 0..8);
    clash(vec![whole(0, 0, 16), entry(1, &[1, 0], &[3, 4], 0, &[16, 2])]); // no tie: another slice
}

#[test]
fn ties_equal_slices_only() {
    let whole = |tensor| entry(tensor, &[0, 0], &[4, 4], 0, &[8, 2]);
    let tied = squares(32, vec![whole(1), whole(0)]).unwrap();
    assert_eq!(tied.bytes(), 32);
    assert_eq!((tied.primary(0), tied.primary(1)), (0, 0));
    assert!(!tied.is_alias(0) && tied.is_alias(1));
    let types = vec![tensor("a", DType::BF16, &[4]), tensor("b", DType::F16, &[4])];
    let both = vec![entry(0, &[0], &[4], 0, &[2]), entry(1, &[0], &[4], 0, &[2])];
    assert!(matches!(Layout::new(vec![8], types, both), Err(LayoutError::SharedMemory { .. })));
}

#[test]
fn refuses_an_element_held_twice() {
    let parts =
        vec![entry(0, &[0, 0], &[3, 4], 0, &[8, 2]), entry(0, &[2, 0], &[2, 4], 24, &[8, 2])];
    let error = squares(64, parts).unwrap_err();
    assert!(matches!(error, LayoutError::HeldTwice { .. }), "{error}");
    let twice = vec![entry(0, &[0, 0], &[4, 4], 0, &[8, 2]); 2];
    assert!(matches!(squares(64, twice), Err(LayoutError::HeldTwice { .. })));
}

#[test]
fn refuses_bad_entries() {
    let refused = |e: Entry| squares(32, vec![e]).unwrap_err();
    let outside = refused(entry(0, &[1, 0], &[4, 4], 0, &[8, 2]));
    assert!(matches!(outside, LayoutError::OutsideTensor { .. }));
    let overflow = refused(entry(0, &[u64::MAX, 0], &[1, 4], 0, &[8, 2]));
    assert!(matches!(overflow, LayoutError::OutsideTensor { .. }));
    let lopsided = refused(entry(0, &[0, 0], &[4], 0, &[8, 2]));
    assert!(matches!(lopsided, LayoutError::OutsideTensor { .. }));
    for (offset, pitch) in [(2, 8), (0, 9), (u64::MAX, 8), (0, u64::MAX / 3)] {
        let past = refused(entry(0, &[0, 0], &[4, 4], offset, &[pitch, 2]));
        assert!(matches!(past, LayoutError::OutsideBuffer { .. } | LayoutError::Strides { .. }));
    }
    for strides in [&[8][..], &[0, 2], &[6, 2], &[8, 2, 1]] {
        let rows = refused(entry(0, &[0, 0], &[4, 4], 0, strides));
        assert!(matches!(rows, LayoutError::Strides { .. }), "{strides:?}");
    }
    let transposed = refused(entry(0, &[0, 0], &[4, 4], 0, &[2, 8]));
    assert!(matches!(transposed, LayoutError::NotContiguous { expected: 2, .. }));
    assert!(matches!(refused(entry(2, &[], &[], 0, &[])), LayoutError::NoTensor { .. }));
    let elsewhere = Entry { buffer: 1, ..entry(0, &[0, 0], &[4, 4], 0, &[8, 2]) };
    assert!(matches!(refused(elsewhere), LayoutError::NoBuffer { .. }));
}

#[test]
fn refuses_bad_lists() {
    let twice = vec![tensor("a", DType::U8, &[1]), tensor("a", DType::I8, &[1])];
    assert!(matches!(Layout::new(vec![], twice, vec![]), Err(LayoutError::TensorTwice { .. })));
    let huge = Layout::new(vec![limits::MAX_BYTES, 1], vec![], vec![]);
    assert!(matches!(huge, Err(LayoutError::BufferBytes { buffer: 1 })));
    let many = Layout::new(vec![0; limits::MAX_BUFFERS + 1], vec![], vec![]);
    assert!(matches!(many, Err(LayoutError::TooMany { .. })));
    // As many and as much as may be.
    assert!(Layout::new(vec![0; limits::MAX_BUFFERS], vec![], vec![]).is_ok());
    assert!(Layout::new(vec![limits::MAX_BYTES - 1, 1], vec![], vec![]).is_ok());
}

#[test]
fn four_bit_elements_come_in_pairs() {
    let fp4 = |start: u64, len: u64| {
        let slice = entry(0, &[0, start], &[3, len], 0, &[4, 1]);
        Layout::new(vec![12], vec![tensor("a", DType::F4, &[3, 8])], vec![slice])
    };
    assert_eq!(fp4(0, 8).unwrap().bytes(), 12);
    assert_eq!(fp4(2, 4).unwrap().bytes(), 6);
    assert!(matches!(fp4(1, 4), Err(LayoutError::SplitsByte { .. })));
    assert!(matches!(fp4(0, 3), Err(LayoutError::SplitsByte { .. })));
}

#[test]
fn nothing_is_something() {
    let layout = Layout::new(
        vec![0, 4],
        vec![tensor("none", DType::F32, &[0, 8]), tensor("scalar", DType::F32, &[])],
        vec![
            entry(0, &[0, 0], &[0, 8], 0, &[u64::MAX, 7]),
            Entry { buffer: 1, ..entry(1, &[], &[], 0, &[]) },
        ],
    );
    assert_eq!(layout.unwrap().bytes(), 4);
}

#[test]
fn digests_name_every_field() {
    let base = || (vec![40, 8], vec![entry(0, &[0, 0], &[4, 4], 0, &[8, 2])]);
    let of = |buffers: Vec<u64>, entries: Vec<Entry>, dtype| {
        let tensors = vec![tensor("a", dtype, &[4, 4]), tensor("z", dtype, &[4, 4])];
        Layout::new(buffers, tensors, entries).unwrap().digest()
    };
    let (buffers, entries) = base();
    let digest = of(buffers.clone(), entries.clone(), DType::BF16);
    assert_eq!(digest.to_string().len(), 32);
    let mut others = vec![of(buffers.clone(), entries.clone(), DType::F16)];
    others.push(of(vec![40, 9], entries.clone(), DType::BF16));
    let mut changed = |change: &dyn Fn(&mut Entry)| {
        let mut entries = entries.clone();
        change(&mut entries[0]);
        others.push(of(buffers.clone(), entries, DType::BF16));
    };
    changed(&|e| e.tensor = 1);
    changed(&|e| e.offset = 8);
    changed(&|e| e.slice = Slice::new([0, 0], [3, 4]));
    changed(&|e| (e.slice, e.strides) = (Slice::new([0, 0], [4, 2]), vec![10, 2]));
    others.sort();
    others.dedup();
    assert_eq!(others.len(), 6);
    assert!(!others.contains(&digest));
    // A stride that no one steps along does not matter.
    let row = |pitch| vec![entry(0, &[0, 0], &[1, 4], 0, &[pitch, 2])];
    assert_eq!(of(buffers.clone(), row(8), DType::BF16), of(buffers, row(77), DType::BF16));
}

/// Rows side by side that fill their pitch, in more pieces than are looked at one by one.
#[test]
fn columns_of_any_height_lie_side_by_side() {
    let rows = limits::MAX_FRAGMENTS + 1;
    let columns = |widths: &[u64], pitch: u64| {
        let (mut tensors, mut entries, mut offset) = (Vec::new(), Vec::new(), 0);
        for (number, &width) in (0..).zip(widths) {
            tensors.push(tensor(&format!("t{number}"), DType::U8, &[rows, width]));
            entries.push(entry(number, &[0, 0], &[rows, width], offset, &[pitch, 1]));
            offset += width;
        }
        Layout::new(vec![rows * pitch], tensors, entries)
    };
    assert_eq!(columns(&[1, 2], 3).unwrap().bytes(), 3 * rows);
    assert_eq!(columns(&[2, 1, 1], 5).unwrap().bytes(), 4 * rows);
    // One that is higher than the others is not settled by a look at one row.
    let mut ragged = vec![entry(0, &[0, 0], &[rows, 1], 0, &[2, 1])];
    ragged.push(entry(1, &[0, 0], &[rows - 1, 1], 1, &[2, 1]));
    let tensors = || vec![tensor("t0", DType::U8, &[rows, 1]), tensor("t1", DType::U8, &[rows, 1])];
    let refused = Layout::new(vec![rows * 2], tensors(), ragged.clone());
    assert!(matches!(refused, Err(LayoutError::TooFragmented { buffer: 0 })), "{refused:?}");
    // As many pieces as may be looked at are.
    let half = limits::MAX_FRAGMENTS / 2;
    ragged[0].slice.len[0] = half + 1;
    ragged[1].slice.len[0] = half - 1;
    assert_eq!(Layout::new(vec![rows * 2], tensors(), ragged).unwrap().bytes(), 2 * half);
}

/// Each byte of memory that a layout needs beside its fields belongs to one of the things it has.
#[test]
fn a_layouts_footprint_grows_with_what_it_has() {
    let of = |buffers: usize, names: &[&str], tied: bool| {
        let tensors: Vec<Tensor> =
            names.iter().map(|name| tensor(name, DType::U8, &[4, 4])).collect();
        let entries = (0..names.len() as u32).map(|number| {
            let at = if tied { 0 } else { u64::from(number) * 16 };
            entry(number, &[0, 0], &[4, 4], at, &[4, 1])
        });
        let bytes = [vec![64], vec![0; buffers - 1]].concat();
        Layout::new(bytes, tensors, entries.collect()).unwrap().footprint()
    };
    let one = of(1, &["a"], false);
    assert_eq!(of(3, &["a"], false) - one, 2 * 8, "a number for each buffer");
    // A tensor with its name and its shape, where its entries begin; an entry and where it is.
    let (tensor, entry) = (size_of::<Tensor>() + 1 + 2 * 8 + 4, 10 + 4);
    assert_eq!(of(1, &["a", "b"], false) - one, tensor + entry);
    assert_eq!(of(1, &["a", "bcd"], false) - of(1, &["a", "b"], false), 2);
    assert_eq!(of(1, &["a", "b"], true) - of(1, &["a", "b"], false), 2 * 4, "whose bytes each has");
}

#[test]
fn what_is_in_order_is_taken_as_it_is_and_nothing_else() {
    let tensors = || vec![tensor("a", DType::BF16, &[4, 4]), tensor("b", DType::BF16, &[4, 4])];
    let entries =
        || vec![entry(0, &[0, 0], &[4, 4], 0, &[8, 2]), entry(1, &[0, 0], &[4, 4], 32, &[8, 2])];
    let taken = |tensors: Vec<Tensor>, entries: Vec<Entry>| {
        let entries = entries.into_iter().map(Ok::<Entry, LayoutError>);
        Layout::in_order(vec![64], tensors, entries, (2, 20))
    };
    let layout = taken(tensors(), entries()).unwrap();
    assert_eq!(layout, Layout::new(vec![64], tensors(), entries()).unwrap());
    let out_of_order = |found: Result<Layout, LayoutError>, what: &str, at: usize| {
        let named = matches!(&found, Err(LayoutError::OutOfOrder { what: found, number })
            if *found == what && *number == at);
        assert!(named, "{what} {at}: {found:?}");
    };
    let reversed = |mut tensors: Vec<Tensor>| {
        tensors.reverse();
        tensors
    };
    out_of_order(taken(reversed(tensors()), entries()), "tensor", 1);
    out_of_order(taken(vec![tensors()[0].clone(); 2], entries()), "tensor", 1);
    out_of_order(taken(tensors(), entries().into_iter().rev().collect()), "entry", 1);
    // A stride that means nothing has one form.
    let row = entry(0, &[0, 0], &[1, 4], 0, &[77, 2]);
    out_of_order(taken(tensors(), vec![row]), "entry", 0);
    let nowhere = taken(tensors(), vec![entry(2, &[0, 0], &[4, 4], 0, &[8, 2])]);
    assert!(matches!(nowhere, Err(LayoutError::NoTensor { tensor: 2, tensors: 2 })));
}

/// One byte each, by the definition of an entry.
fn bytes_of(entry: &Entry) -> Vec<u64> {
    let mut bytes = vec![entry.offset];
    for (len, stride) in entry.slice.len.iter().zip(&entry.strides) {
        bytes = bytes.iter().flat_map(|at| (0..*len).map(move |i| at + i * stride)).collect();
    }
    bytes
}

/// A box of three dimensions, whose pitches leave some room.
fn boxes() -> impl Strategy<Value = (u64, [u64; 3], [u64; 2])> {
    (0..60_u64, [1..4_u64, 1..4, 1..4], [0..6_u64, 0..6])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_shares_a_byte_is_found(boxes in proptest::collection::vec(boxes(), 2..5)) {
        let (mut tensors, mut entries) = (Vec::new(), Vec::new());
        for (number, (offset, len, slack)) in (0..).zip(boxes) {
            let inner = len[2] + slack[0];
            let strides = [inner * len[1] + slack[1], inner, 1];
            // None alike, so that none are tied.
            tensors.push(tensor(&format!("t{number}"), DType::U8, &[9, 9, 9 + u64::from(number)]));
            entries.push(entry(number, &[0, 0, 0], &len, offset, &strides));
        }
        let mut held: Vec<u64> = entries.iter().flat_map(bytes_of).collect();
        let all = held.len();
        held.sort_unstable();
        let twice = held.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
        held.dedup();
        match Layout::new(vec![500], tensors, entries.clone()) {
            Ok(layout) => prop_assert_eq!((layout.bytes() as usize, twice), (all, None)),
            Err(LayoutError::SharedMemory { from, to, .. }) => {
                prop_assert!(from < to && held.len() < all);
                for at in from..to {
                    let holders = entries.iter().filter(|entry| bytes_of(entry).contains(&at));
                    prop_assert!(holders.count() > 1, "byte {}", at);
                }
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
