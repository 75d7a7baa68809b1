//! The places found in a tensor do not depend on the other tensors of the search: each tensor has a
//! whole budget of its own.

use std::collections::BTreeSet;

use weightcast_plan::{DType, Slice, Tensor};
use weightcast_transport::Digest;

use crate::verify::atoms::{Atom, HeldEntry};
use crate::verify::search::{Found, Search};

/// A tensor that two shards hold in the same boxes, and where the shards differ.
struct Searched {
    tensor: Tensor,
    boxes: Vec<Slice>,
    differs: Box<dyn Fn(&Slice) -> bool>,
}

const ROWS: u64 = 4_096;
/// Distance of rows: more than the height of a box before it is cut into single rows.
const APART: u64 = 120;
const WIDTH: u64 = 16;

/// Rows that differ, far from each other.
fn tall(differ: u64, first: u64) -> Searched {
    let tensor = Tensor::new("w", DType::U8, [ROWS, 2]).unwrap();
    let rows: BTreeSet<u64> = (0..differ).map(|row| first + row * APART).collect();
    assert!(rows.last().is_none_or(|last| *last < ROWS));
    let differs = move |slice: &Slice| rows.range(slice.start[0]..slice.end(0)).next().is_some();
    Searched { boxes: vec![Slice::full(tensor.shape())], tensor, differs: Box::new(differs) }
}

/// One row in many boxes, of each of which the first column differs.
fn wide(boxes: u64) -> Searched {
    let tensor = Tensor::new("w", DType::U8, [1, boxes * WIDTH]).unwrap();
    let boxes = (0..boxes).map(|at| Slice::new([0, at * WIDTH], [1, WIDTH])).collect();
    let differs = |slice: &Slice| slice.start[1].next_multiple_of(WIDTH) < slice.end(1);
    Searched { tensor, boxes, differs: Box::new(differs) }
}

/// All places of a search of these tensors.
fn found(all: &[&Searched]) -> Vec<Found> {
    let suspects = all.iter().zip(0..).map(|(of, entry)| {
        let held = [0, 1].map(|holder| HeldEntry { holder, entry }).to_vec();
        let atom = |slice: &Slice| Atom { slice: slice.clone(), held: held.clone() };
        (of.tensor.clone(), of.boxes.iter().map(atom).collect())
    });
    let mut search = Search::new(suspects.collect());
    while !search.questions().is_empty() {
        let digests = search.questions().into_iter().map(|question| {
            let differs = (all[question.held.entry as usize].differs)(&question.slice);
            Digest([u64::from(differs) * question.held.holder as u64, 0])
        });
        let digests: Vec<Digest> = digests.collect();
        search.answer(&digests);
    }
    search.end()
}

/// The places of one tensor, and whether every row of each differs.
fn places(found: &[Found], tensor: usize) -> Vec<(&Slice, bool)> {
    let of_it = found.iter().filter(|place| place.tensor == tensor);
    of_it.map(|place| (&place.slice, place.exact)).collect()
}

fn same_as_alone(all: &[Searched]) {
    let together = found(&all.iter().collect::<Vec<_>>());
    for (number, one) in all.iter().enumerate() {
        let alone = found(&[one]);
        assert!(places(&together, number) == places(&alone, 0), "tensor {number}");
    }
}

#[test]
fn each_of_many_tensors_has_its_rows_named() {
    // 32 ranges of rows of one tensor are looked into.
    let counts = [33, 31, 32, 1, 33, 32, 20];
    let all: Vec<Searched> = counts.into_iter().zip(0..).map(|(n, at)| tall(n, 7 * at)).collect();
    same_as_alone(&all);
    let together = found(&all.iter().collect::<Vec<_>>());
    for (number, count) in counts.into_iter().enumerate() {
        let places = places(&together, number);
        assert_eq!(places.len() as u64, count, "tensor {number}");
        let exact = places.iter().filter(|(slice, exact)| *exact && slice.len[0] == 1).count();
        assert_eq!(exact as u64, count.min(32), "tensor {number}");
    }
}

#[test]
fn each_of_many_tensors_has_its_boxes_looked_into() {
    // 4096 boxes of one tensor are.
    let all = [wide(3_000), wide(4_097), wide(2_000)];
    same_as_alone(&all);
    let together = found(&all.iter().collect::<Vec<_>>());
    for (number, fine) in [3_000, 4_096, 2_000].into_iter().enumerate() {
        let columns =
            places(&together, number).iter().filter(|(slice, _)| slice.len[1] == 1).count();
        assert_eq!(columns, fine, "tensor {number}");
    }
}

/// A suspect without a place is reported as moving, whatever is found in the others.
#[test]
fn a_tensor_that_does_not_differ_any_more_has_changed() {
    let (same, other) = (tall(0, 0), tall(2, 5));
    for all in [[&same, &other], [&other, &same]] {
        let quiet = usize::from(std::ptr::eq(all[1], &raw const same));
        let found = found(&all);
        let moving: Vec<_> = found.iter().filter(|place| place.moving).collect();
        assert_eq!(moving.len(), 1);
        assert_eq!((moving[0].tensor, &moving[0].slice), (quiet, &same.boxes[0]));
        assert_eq!(places(&found, 1 - quiet).len(), 2);
    }
}
