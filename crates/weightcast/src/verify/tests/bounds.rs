//! What a search asks and finds if much differs, or if memory is written meanwhile.

use std::sync::Arc;

use weightcast_plan::{DType, Entry, Layout, Slice, Tensor};
use weightcast_transport::Digest;

use super::{Shard, compare, held};
use crate::verify::atoms::{Atom, HeldEntry, atoms};
use crate::verify::search::{Found, Search};

/// Two shards with half of the rows each, and a shard that holds all: `[rows, 8]` of four bytes.
fn halves(rows: u64) -> Vec<Shard> {
    let tensor = Tensor::new("w", DType::F32, [rows, 8]).unwrap();
    let part = |side, start, len| {
        let slice = Slice::new([start, 0], [len, 8]);
        let entry = Entry { tensor: 0, slice, buffer: 0, offset: 0, strides: vec![32, 4] };
        let layout = Layout::new(vec![len * 32], vec![tensor.clone()], vec![entry]).unwrap();
        Shard { side, layout: Arc::new(layout), memory: vec![vec![7; len as usize * 32]] }
    };
    vec![part(0, 0, rows / 2), part(0, rows / 2, rows / 2), part(1, 0, rows)]
}

#[test]
fn where_everything_differs_little_is_asked() {
    for step in [1, 2, 3] {
        let mut shards = halves(65_536);
        shards[2].memory[0].chunks_mut(32).step_by(step).for_each(|row| row[5] ^= 16);
        let said = compare(&shards);
        // Each round cuts so many boxes in so many parts, and asks two.
        assert!(said.questions < 8 * 32 * 16 * 2, "{}", said.questions);
        let in_it = |row: u64| {
            let holds = |f: &&Found| f.slice.start[0] <= row && row < f.slice.end(0);
            said.found.iter().filter(holds).count()
        };
        for row in (0..65_536).step_by(step) {
            assert_eq!(in_it(row), 1, "row {row}");
        }
        // What is called exact differs in every row.
        for place in said.found.iter().filter(|place| place.exact) {
            assert!((place.slice.start[0]..place.slice.end(0)).all(|r| r % step as u64 == 0));
            assert!(place.slice.start[1] <= 1 && place.slice.end(1) > 1);
        }
        assert!(said.found.iter().any(|place| !place.exact));
    }
}

#[test]
fn of_many_boxes_in_a_row_little_is_asked() {
    const BOXES: u64 = 5_000;
    const WIDTH: u64 = 16;
    let tensor = Tensor::new("w", DType::U8, [1, BOXES * WIDTH]).unwrap();
    let held = [0, 1].map(|holder| HeldEntry { holder, entry: 0 }).to_vec();
    let boxed = |at| Slice::new([0, at * WIDTH], [1, WIDTH]);
    let atom = |at| Atom { slice: boxed(at), held: held.clone() };
    let mut search = Search::new(vec![(tensor, (0..BOXES).map(atom).collect())]);
    let mut first = true;
    while !search.questions().is_empty() {
        let questions = search.questions();
        assert!(first || questions.len() <= 4_096 * 16 * 2, "{}", questions.len());
        // All of it differs.
        let digests = questions.iter().map(|question| Digest([question.held.holder as u64, 0]));
        let digests: Vec<_> = digests.collect();
        search.answer(&digests);
        first = false;
    }
    let found = search.end();
    assert_eq!(found.iter().map(|place| place.slice.volume()).sum::<u64>(), BOXES * WIDTH);
}

#[test]
fn rows_that_follow_each_other_are_one_place() {
    let mut shards = halves(4_096);
    for row in [10, 11, 12, 2_047, 2_048, 4_000] {
        shards[2].memory[0][row * 32..][..32].fill(1);
    }
    let said = compare(&shards);
    let places: Vec<_> =
        said.found.iter().map(|f| (f.slice.start[0], f.slice.len[0], f.exact)).collect();
    // Another shard holds the second half.
    let expected = [(10, 3, true), (2_047, 1, true), (2_048, 1, true), (4_000, 1, true)];
    assert_eq!(places, expected);
    assert!(said.found.iter().all(|f| (f.slice.start[1], f.slice.len[1]) == (0, 8)));
}

#[test]
fn what_is_written_to_meanwhile_is_said_to_be() {
    let shards = halves(64);
    let tensor = shards[2].layout.tensors()[0].clone();
    let cut = atoms(held(&shards, &tensor));
    let mut search = Search::new(vec![(tensor, cut)]);
    let mut rounds = 0;
    while !search.questions().is_empty() {
        let questions = search.questions();
        // The first time the whole differs; after that nothing does.
        let digests = questions.iter().map(|q| match rounds {
            0 => Digest([q.held.holder as u64, 0]),
            _ => Digest::ZERO,
        });
        let digests: Vec<_> = digests.collect();
        search.answer(&digests);
        rounds += 1;
    }
    let found = search.end();
    assert!(rounds == 2 && found.len() == 2);
    assert!(found.iter().all(|place| place.moving && !place.exact && place.slice.len[0] == 32));
}

#[test]
fn what_has_changed_back_is_said_to_be_written_to() {
    let shards = halves(64);
    let tensor = shards[2].layout.tensors()[0].clone();
    let cut = atoms(held(&shards, &tensor));
    let mut search = Search::new(vec![(tensor, cut)]);
    let same = vec![Digest::ZERO; search.questions().len()];
    search.answer(&same);
    assert!(search.questions().is_empty());
    let [ref place] = search.end()[..] else { panic!("it was a suspect") };
    assert!(place.moving && !place.exact && place.readings.is_empty());
    assert_eq!(place.slice, Slice::full(&[64, 8]));
}
