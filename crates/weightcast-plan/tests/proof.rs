//! The proof against the plain definition of a right plan, byte by byte, on plans that are right and
//! on plans that are damaged in every way.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{Rng, bytes_of, scene};
use weightcast_plan::stored::{PlanName, StoredError, encode, restore};
use weightcast_plan::{
    Cell, CoverageError, DType, Layout, LayoutBuilder, Part, Plan, Run, Slice, Tensor, cells, plan,
    prove,
};

/// Where each byte of a slice of an entry lies in its buffer, by its position.
fn places(layout: &Layout, number: u32, slice: &Slice) -> BTreeMap<u64, u64> {
    let (entry, tensor) = (layout.entry(number), layout.tensor_of(number));
    let step = tensor.dtype().step_bytes();
    let place = |(index, position): (Vec<u64>, u64)| {
        let steps: u64 = index.iter().zip(&entry.strides).map(|(i, s)| i * s).sum();
        (position, entry.offset + steps + position % step)
    };
    let all: BTreeMap<u64, u64> = bytes_of(tensor, &entry.slice).into_iter().map(place).collect();
    bytes_of(tensor, slice).into_iter().map(|(_, position)| (position, all[&position])).collect()
}

/// Each byte of rows: its offset in one place and in another.
fn bytes(rows: u64, row: u64, (a, by_a): (u64, u64), (b, by_b): (u64, u64)) -> Vec<(u64, u64)> {
    let of_row = |r: u64| (0..row).map(move |at| (a + r * by_a + at, b + r * by_b + at));
    (0..rows).flat_map(of_row).collect()
}

/// Whether a plan is right, by looking at every byte.
fn is_right(target: &Layout, cells: &[Cell], sources: &[&Layout], plan: &Plan) -> bool {
    let entries = target.entries().len() as u32;
    let own = |cell: u32| cells.get(cell as usize).map(|cell| !target.is_alias(cell.entry));
    // Cells are the entries, cut up.
    let mut cut: Vec<Vec<u64>> = vec![Vec::new(); entries as usize];
    for cell in cells {
        let within = cell.entry < entries
            && cell.slice.fits(target.tensor_of(cell.entry).shape())
            && target.entry(cell.entry).slice.contains(&cell.slice);
        if !within {
            return false;
        }
        let bytes = bytes_of(target.tensor_of(cell.entry), &cell.slice).into_iter();
        cut[cell.entry as usize].extend(bytes.map(|(_, position)| position));
    }
    for (number, mut cut) in (0..entries).zip(cut) {
        let whole = bytes_of(target.tensor_of(number), &target.entry(number).slice);
        let mut whole: Vec<u64> = whole.into_iter().map(|(_, position)| position).collect();
        cut.sort_unstable();
        whole.sort_unstable();
        if cut != whole {
            return false;
        }
    }
    // Nothing is larger than what there is, so that looking at each byte ends.
    let fits = |rows: u64, row: u64| {
        rows > 0 && row > 0 && rows.checked_mul(row).is_some_and(|bytes| bytes <= 1 << 16)
    };
    let mut written = BTreeSet::new();
    for c in &plan.copies {
        let Some(source) = sources.get(c.source as usize) else { return false };
        if own(c.cell) != Some(true) || !fits(c.rows, c.row_bytes) {
            return false;
        }
        let offsets = [c.source_offset, c.target_offset, c.position];
        let pitches = [c.source_pitch, c.target_pitch, c.position_pitch];
        // Nobody steps from a single row.
        let pitches = if c.rows > 1 { pitches } else { [0; 3] };
        if offsets.iter().chain(&pitches).any(|&number| number > 1 << 32) {
            return false;
        }
        let [source_pitch, target_pitch, position_pitch] = pitches;
        let cell = &cells[c.cell as usize];
        let tensor = target.tensor_of(cell.entry);
        let goes = places(target, cell.entry, &cell.slice);
        let mut comes = BTreeMap::new();
        if let Some(number) = source.find(tensor.name())
            && source.tensors()[number as usize] == *tensor
        {
            for held in source.entries_of(number) {
                let entry = source.entry(held);
                let places = places(source, held, &entry.slice).into_iter();
                comes.extend(places.map(|(position, at)| (position, (entry.buffer, at))));
            }
        }
        let position = (c.position, position_pitch);
        let to = bytes(c.rows, c.row_bytes, (c.target_offset, target_pitch), position);
        let from = bytes(c.rows, c.row_bytes, (c.source_offset, source_pitch), position);
        for ((to, position), (from, _)) in to.into_iter().zip(from) {
            let right = c.target_buffer == target.entry(cell.entry).buffer
                && goes.get(&position) == Some(&to)
                && comes.get(&position) == Some(&(c.source_buffer, from));
            if !right || !written.insert((c.target_buffer, to)) {
                return false;
            }
        }
    }
    let mut echoed: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for e in &plan.echoes {
        let (pitch, position_pitch) = if e.rows > 1 { (e.pitch, e.position_pitch) } else { (0, 0) };
        let small = [e.offset, pitch, e.position, position_pitch].iter().all(|&n| n < 1 << 32);
        if own(e.cell) != Some(false) || !fits(e.rows, e.row_bytes) || !small {
            return false;
        }
        let cell = &cells[e.cell as usize];
        let lies = places(target, cell.entry, &cell.slice);
        for (at, position) in
            bytes(e.rows, e.row_bytes, (e.offset, pitch), (e.position, position_pitch))
        {
            let right = e.buffer == target.entry(cell.entry).buffer
                && lies.get(&position) == Some(&at)
                && echoed.entry(e.cell).or_default().insert(position);
            if !right {
                return false;
            }
        }
    }
    // All of it: every byte held is written, every cell of a further name is echoed.
    let all_echoed = (0..).zip(cells).all(|(number, cell)| {
        let bytes = bytes_of(target.tensor_of(cell.entry), &cell.slice).len();
        !target.is_alias(cell.entry) || echoed.get(&number).map_or(0, BTreeSet::len) == bytes
    });
    written.len() as u64 == target.bytes() && all_echoed
}

/// Another number: near, far, or out of all bounds.
fn other(rng: &mut Rng, number: u64) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => u64::MAX - rng.below(3),
        2 => number.wrapping_add(1 << (32 + rng.below(32))),
        3 | 4 => number.wrapping_add(1 + rng.below(9)),
        _ => number.wrapping_sub(1 + rng.below(9)),
    }
}

fn other32(rng: &mut Rng, number: u32) -> u32 {
    match rng.below(8) {
        0 => u32::MAX - rng.below(2) as u32,
        1..4 => number.wrapping_sub(1),
        _ => number.wrapping_add(1 + rng.below(3) as u32),
    }
}

fn spoil(rng: &mut Rng, run: &mut Run) {
    let fields = [
        &mut run.offset,
        &mut run.pitch,
        &mut run.row_bytes,
        &mut run.rows,
        &mut run.position,
        &mut run.position_pitch,
    ];
    match rng.below(8) {
        6 => run.buffer = other32(rng, run.buffer),
        7 => run.cell = other32(rng, run.cell),
        at => {
            let field = fields.into_iter().nth(at as usize).unwrap();
            *field = other(rng, *field);
        }
    }
}

/// A change to a plan or its cells, which need not make it wrong.
fn change(rng: &mut Rng, plan: &mut Plan, cells: &mut Vec<Cell>) -> &'static str {
    let some = |rng: &mut Rng, len: usize| rng.below(len.max(1) as u64) as usize;
    let (at, also) = (some(rng, plan.copies.len()), some(rng, plan.copies.len()));
    let echo = some(rng, plan.echoes.len());
    match rng.below(13) {
        0..5 if !plan.copies.is_empty() => {
            let c = &mut plan.copies[at];
            let fields = [
                &mut c.source_offset,
                &mut c.source_pitch,
                &mut c.target_offset,
                &mut c.target_pitch,
                &mut c.row_bytes,
                &mut c.rows,
                &mut c.position,
                &mut c.position_pitch,
            ];
            match rng.below(12) {
                8 => c.source = other32(rng, c.source),
                9 => c.source_buffer = other32(rng, c.source_buffer),
                10 => c.target_buffer = other32(rng, c.target_buffer),
                11 => c.cell = other32(rng, c.cell),
                field => {
                    let field = fields.into_iter().nth(field as usize).unwrap();
                    *field = other(rng, *field);
                }
            }
            "field"
        }
        5 if plan.copies.len() > 1 => {
            plan.copies[at] = plan.copies[also];
            "one for another"
        }
        6 if plan.copies.len() > 1 => {
            plan.copies.swap(at, also);
            "order"
        }
        7 | 8 if !plan.copies.is_empty() && plan.copies[at].rows > 1 => {
            // The last rows by themselves: as right as before.
            let c = &mut plan.copies[at];
            let mut rest = *c;
            let first = 1 + rng.below(c.rows - 1);
            (c.rows, rest.rows) = (first, rest.rows - first);
            rest.source_offset += first * rest.source_pitch;
            rest.target_offset += first * rest.target_pitch;
            rest.position += first * rest.position_pitch;
            plan.copies.push(rest);
            "rows apart"
        }
        7 | 8 if !plan.copies.is_empty() && plan.copies[at].row_bytes > 1 => {
            let c = &mut plan.copies[at];
            let mut rest = *c;
            let first = 1 + rng.below(c.row_bytes - 1);
            (c.row_bytes, rest.row_bytes) = (first, rest.row_bytes - first);
            rest.source_offset += first;
            rest.target_offset += first;
            rest.position += first;
            plan.copies.push(rest);
            "columns apart"
        }
        9 if !plan.echoes.is_empty() => {
            plan.echoes.remove(echo);
            "silent echo"
        }
        10 if !plan.echoes.is_empty() => {
            plan.echoes.push(plan.echoes[echo]);
            "second echo"
        }
        10..12 if !plan.echoes.is_empty() => {
            spoil(rng, &mut plan.echoes[echo]);
            "echo"
        }
        12 if !cells.is_empty() => {
            let number = at % cells.len();
            let cell = &mut cells[number];
            match rng.below(4) {
                0 => cell.entry = other32(rng, cell.entry),
                1 if cell.slice.ndim() > 1 => cell.slice.len[0] -= 1,
                2 if cell.slice.ndim() > 1 => cell.slice.start[0] += 1,
                _ => {
                    let twin = cell.clone();
                    cells.push(twin);
                }
            }
            "cells"
        }
        _ => "nothing",
    }
}

#[test]
fn the_proof_says_what_looking_at_every_byte_says() {
    let mut seen: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for seed in 0..250 {
        let (mut rng, _, sources, targets) = scene(seed);
        let (from, to): (Vec<&Layout>, Vec<&Layout>) =
            (sources.iter().collect(), targets.iter().collect());
        for (shard, target) in to.iter().enumerate().take(3) {
            let mine = cells(&to, shard);
            let good = plan(target, &mine, &from).unwrap();
            if target.bytes() > 4_000 {
                continue;
            }
            for _ in 0..6 {
                let (mut changed, mut cut) = (good.clone(), mine.clone());
                let what = change(&mut rng, &mut changed, &mut cut);
                let right = is_right(target, &cut, &from, &changed);
                let proof = prove(target, &cut, &from, &changed);
                assert_eq!(
                    proof.is_ok(),
                    right,
                    "seed {seed} {shard}: {what} {proof:?} {changed:?}"
                );
                *seen.entry((what, right)).or_default() += 1;
            }
        }
    }
    println!("{seen:?}");
    for what in ["rows apart", "columns apart", "order"] {
        assert!(seen[&(what, true)] > 20, "{what}: {seen:?}");
    }
    for what in ["field", "one for another", "silent echo", "second echo", "echo", "cells"] {
        assert!(seen[&(what, false)] > 10, "{what}: {seen:?}");
    }
}

/// A matrix and a further name of it, whose memory has gaps.
fn tied(rows: u64) -> (Layout, Layout) {
    let tensor = |name| Tensor::new(name, DType::U8, [rows, 2]).unwrap();
    let entry = |tensor| weightcast_plan::Entry {
        tensor,
        slice: Slice::new([0, 0], [rows, 1]),
        buffer: 0,
        offset: 0,
        strides: vec![1, 1],
    };
    let target =
        Layout::new(vec![rows], vec![tensor("a"), tensor("b")], vec![entry(0), entry(1)]).unwrap();
    let mut source = LayoutBuilder::new();
    source.add("a", DType::U8, &[rows, 2], vec![Part::new("a").shape([rows, 2])], 0);
    source.add("b", DType::U8, &[rows, 2], vec![Part::new("b").shape([rows, 2])], 0);
    (target, source.build().unwrap())
}

/// Rows that all lie at one place: in a few bytes as many as there are numbers.
#[test]
fn echoes_of_more_rows_than_may_be_looked_at_are_refused_without_looking() {
    let (target, source) = tied(4);
    let mine = cells(&[&target], 0);
    let name = PlanName::new(&target, &mine, [source.digest().0]);
    let mut made = plan(&target, &mine, &[&source]).unwrap();
    let restored = |made: &Plan| restore(&encode(made, &name), &name, &target, &mine, &[&source]);
    assert_eq!(restored(&made).as_ref(), Ok(&made));
    let echo = &mut made.echoes[0];
    (echo.rows, echo.pitch, echo.position_pitch) = (1 << 23, 0, 0);
    let refused = restored(&made);
    assert!(
        matches!(refused, Err(StoredError::Untrue(CoverageError::Pieces { .. }))),
        "{refused:?}"
    );
}
