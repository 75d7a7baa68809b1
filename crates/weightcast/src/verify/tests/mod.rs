//! Random pairs of groups that hold the same model in different layouts, one of them changed:
//! compared with an oracle that looks at every byte of every shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weightcast_plan::{Cell, Layout, Slice, Tensor, cells, runs};
use weightcast_transport::{Digest, digest_at};

use super::atoms::{HeldEntry, atoms};
use super::search::{Found, Question, Search};
use crate::client::memory::registration::union;
use crate::client::mismatch::summary::{Summary, suspects};

mod bounds;
mod served;
mod sums;
mod together;
#[path = "../../../../weightcast-plan/tests/world/mod.rs"]
mod world;

use world::{Model, Rng, bytes_of, mix, random_group};

/// One shard: its layout, and a byte for each of its memory.
struct Shard {
    side: usize,
    layout: Arc<Layout>,
    memory: Vec<Vec<u8>>,
}

/// The result of a comparison.
struct Findings {
    suspects: Vec<Tensor>,
    found: Vec<Found>,
    /// Questions asked after the summary.
    questions: usize,
}

/// Two groups that hold a random model.
fn scene(seed: u64) -> (Rng, Model, Vec<Vec<Layout>>) {
    let mut rng = Rng(mix(seed));
    let model = Model::random(&mut rng);
    let sides = (0..2).map(|_| random_group(&mut rng, &model)).collect();
    (rng, model, sides)
}

fn content(model: &Model, tensor: usize, position: u64) -> u8 {
    mix(model.byte(tensor, position)) as u8
}

/// Fills the memory of both sides; `content` is that of a side's tensor at a position.
fn filled(
    model: &Model,
    sides: Vec<Vec<Layout>>,
    content: impl Fn(usize, usize, u64) -> u8,
) -> Vec<Shard> {
    let mut shards = Vec::new();
    for (side, layouts) in sides.into_iter().enumerate() {
        for layout in layouts {
            let mut memory: Vec<Vec<u8>> =
                layout.buffers().iter().map(|bytes| vec![0xa5; *bytes as usize]).collect();
            for (entry, tensor, position, at) in places(&layout) {
                let number = model.find(&tensor);
                let buffer = layout.entry(entry).buffer as usize;
                memory[buffer][at] = content(side, number, position);
            }
            shards.push(Shard { side, layout: Arc::new(layout), memory });
        }
    }
    shards
}

/// Every byte of every entry: entry, tensor, position, place in its buffer; by the definition.
fn places(layout: &Layout) -> Vec<(u32, String, u64, usize)> {
    let mut places = Vec::new();
    for (number, entry) in layout.entries().enumerate() {
        let tensor = layout.tensor_of(number as u32);
        for (index, position) in bytes_of(tensor, &entry.slice) {
            let steps: u64 = index.iter().zip(&entry.strides).map(|(i, s)| i * s).sum();
            let within = position % tensor.dtype().step_bytes();
            let at = (entry.offset + steps + within) as usize;
            places.push((number as u32, tensor.name().to_owned(), position, at));
        }
    }
    places
}

fn digest(shard: &Shard, cell: Cell) -> Digest {
    let runs = runs(&shard.layout, &[cell]);
    let rows = runs.iter().flat_map(|run| (0..run.rows).map(move |row| (run, row)));
    rows.map(|(run, row)| {
        let start = (run.offset + row * run.pitch) as usize;
        let bytes = &shard.memory[run.buffer as usize][start..start + run.row_bytes as usize];
        digest_at(run.position + row * run.position_pitch, bytes)
    })
    .sum()
}

/// The whole comparison, without the network.
fn compare(shards: &[Shard]) -> Findings {
    let layouts = |side: usize| -> Vec<Arc<Layout>> {
        shards.iter().filter(|s| s.side == side).map(|s| Arc::clone(&s.layout)).collect()
    };
    let tensors = union(&layouts(0)).unwrap();
    let mut summaries = vec![Summary::default(); 2];
    for (side, summary) in summaries.iter_mut().enumerate() {
        let group = layouts(side);
        let group: Vec<&Layout> = group.iter().map(Arc::as_ref).collect();
        for (number, shard) in shards.iter().filter(|s| s.side == side).enumerate() {
            let cells = cells(&group, number);
            let digests: Vec<Digest> = cells.iter().map(|c| digest(shard, c.clone())).collect();
            summary.add(Summary::of(&shard.layout, &cells, &digests));
        }
    }
    let suspects = suspects(&tensors, &summaries);
    let cut = suspects.iter().map(|tensor| (tensor.clone(), atoms(held(shards, tensor))));
    let mut search = Search::new(cut.collect());
    let mut asked = 0;
    loop {
        let questions = search.questions();
        if questions.is_empty() {
            return Findings { suspects, found: search.end(), questions: asked };
        }
        asked += questions.len();
        let answers: Vec<Digest> = questions.iter().map(|q| answer(shards, q)).collect();
        search.answer(&answers);
    }
}

fn answer(shards: &[Shard], question: &Question) -> Digest {
    let (entry, slice) = (question.held.entry, question.slice.clone());
    digest(&shards[question.held.holder], Cell { entry, slice, copies: 1, counted: true })
}

fn held(shards: &[Shard], tensor: &Tensor) -> Vec<(HeldEntry, Slice)> {
    let mut boxes = Vec::new();
    for (holder, shard) in shards.iter().enumerate() {
        let Some(number) = shard.layout.find(tensor.name()) else { continue };
        for entry in shard.layout.entries_of(number) {
            let slice = shard.layout.entry(entry).slice;
            boxes.push((HeldEntry { holder, entry }, slice));
        }
    }
    boxes
}

/// By tensor and position: which entries hold which byte there.
type Bytes = BTreeMap<String, BTreeMap<u64, Vec<(HeldEntry, u8)>>>;

fn all_bytes(shards: &[Shard]) -> Bytes {
    let mut bytes = Bytes::new();
    for (holder, shard) in shards.iter().enumerate() {
        for (entry, tensor, position, at) in places(&shard.layout) {
            let buffer = shard.layout.entry(entry).buffer as usize;
            let byte = shard.memory[buffer][at];
            let there = bytes.entry(tensor).or_default().entry(position).or_default();
            there.push((HeldEntry { holder, entry }, byte));
        }
    }
    bytes
}

/// Rows (indices of the first dimension) that the byte at a position is a part of.
fn rows_of(tensor: &Tensor, position: u64) -> std::ops::Range<u64> {
    match tensor.shape() {
        [] => 0..1,
        [_] => {
            let bits = tensor.dtype().bits();
            position * 8 / bits..((position + 1) * 8).div_ceil(bits)
        }
        [rows, ..] => {
            let row = position / (tensor.nbytes() / rows);
            row..row + 1
        }
    }
}

/// Checks the findings against every byte of every shard; returns how many rows differ.
fn check(shards: &[Shard], said: &Findings, seed: u64) -> usize {
    let mut differ: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let mut outside: BTreeSet<(&str, u64)> = BTreeSet::new();
    let tensors: BTreeMap<&str, &Tensor> =
        shards.iter().flat_map(|s| s.layout.tensors()).map(|t| (t.name(), t)).collect();
    let bytes = all_bytes(shards);
    for (name, positions) in &bytes {
        for (position, held) in positions {
            if held.iter().any(|(_, byte)| *byte != held[0].1) {
                let rows = rows_of(tensors[&**name], *position);
                differ.entry(name).or_default().extend(rows);
                outside.insert((name, *position));
            }
        }
    }
    let mut seen: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for place in &said.found {
        assert!(place.exact && !place.moving, "seed {seed}: {place:?}");
        let tensor = &said.suspects[place.tensor];
        let rows = match place.slice.ndim() {
            0 => 0..1,
            _ => place.slice.start[0]..place.slice.end(0),
        };
        seen.entry(tensor.name()).or_default().extend(rows);
        for (_, position) in bytes_of(tensor, &place.slice) {
            outside.remove(&(tensor.name(), position));
        }
        let mut expected = readings(&bytes[tensor.name()], tensor, &place.slice);
        let mut readings = place.readings.clone();
        readings.iter_mut().for_each(|same| same.sort_unstable());
        readings.sort_unstable();
        expected.sort_unstable();
        assert_eq!(readings, expected, "seed {seed}: {place:?}");
    }
    assert_eq!(seen, differ, "seed {seed}: rows that differ");
    assert!(outside.is_empty(), "seed {seed}: differ, and lie in no place: {outside:?}");
    let names: Vec<&str> = said.suspects.iter().map(Tensor::name).collect();
    assert_eq!(names, differ.keys().copied().collect::<Vec<_>>(), "seed {seed}: tensors");
    differ.values().map(BTreeSet::len).sum()
}

/// The holders of a box, grouped by equal bytes.
fn readings(
    bytes: &BTreeMap<u64, Vec<(HeldEntry, u8)>>,
    tensor: &Tensor,
    slice: &Slice,
) -> Vec<Vec<HeldEntry>> {
    let mut of: BTreeMap<HeldEntry, Vec<u8>> = BTreeMap::new();
    for (_, position) in bytes_of(tensor, slice) {
        for (held, byte) in &bytes[&position] {
            of.entry(*held).or_default().push(*byte);
        }
    }
    let mut same: BTreeMap<Vec<u8>, Vec<HeldEntry>> = BTreeMap::new();
    of.into_iter().for_each(|(held, bytes)| same.entry(bytes).or_default().push(held));
    same.into_values().collect()
}

#[test]
fn the_same_content_is_equal_in_all_layouts() {
    for seed in 0..1_500 {
        let (_, model, sides) = scene(seed);
        let shards = filled(&model, sides, |_, tensor, at| content(&model, tensor, at));
        let said = compare(&shards);
        assert!(said.suspects.is_empty(), "seed {seed}: {:?}", said.suspects);
        assert_eq!(check(&shards, &said, seed), 0);
    }
}

#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let mut found = 0;
    for seed in 0..3_000 {
        let (mut rng, model, sides) = scene(seed);
        let mut shards = filled(&model, sides, |_, tensor, at| content(&model, tensor, at));
        let which = rng.below(shards.len() as u64) as usize;
        let places = places(&shards[which].layout);
        if places.is_empty() {
            continue; // it holds nothing
        }
        let (entry, _, _, at) = &places[rng.below(places.len() as u64) as usize];
        let buffer = shards[which].layout.entry(*entry).buffer as usize;
        shards[which].memory[buffer][*at] ^= 1 << rng.below(8);
        assert!(check(&shards, &compare(&shards), seed) > 0, "seed {seed}");
        found += 1;
    }
    assert!(found > 2_500, "{found}");
}

#[test]
fn every_swap_of_two_rows_of_a_replica_is_found() {
    let mut found = 0;
    for seed in 0..3_000 {
        let (mut rng, model, sides) = scene(seed);
        let chosen = rng.below(model.tensors.len() as u64) as usize;
        let rows = model.tensors[chosen].shape().first().copied().unwrap_or(0);
        // Rows of half a byte have no place of their own.
        let row = model.tensors[chosen].nbytes() / rows.max(1);
        if rows < 2 || row * rows != model.tensors[chosen].nbytes() || row == 0 {
            continue;
        }
        let (one, other) = (rng.below(rows), rng.below(rows));
        let swap = |position: u64| match position / row {
            at if at == one => other * row + position % row,
            at if at == other => one * row + position % row,
            _ => position,
        };
        let shards = filled(&model, sides, |side, tensor, at| {
            let swapped = side == 1 && model.content[tensor] == model.content[chosen];
            content(&model, tensor, if swapped { swap(at) } else { at })
        });
        found += usize::from(check(&shards, &compare(&shards), seed) > 0);
    }
    assert!(found > 1_200, "{found}");
}
