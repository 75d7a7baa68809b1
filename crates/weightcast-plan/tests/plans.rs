//! Plans between random groups, against memory in which every byte has a name.

use crate::world::{Model, PADDING, Rng, blank, bytes_of, memory, mix, scene};
use weightcast_plan::{
    Cell, Copy, DType, Layout, LayoutBuilder, Part, Plan, PlanError, Run, cells, disagreement,
    missing, plan, prove, runs,
};

const SEEDS: u64 = 3_000;

fn refs(layouts: &[Layout]) -> Vec<&Layout> {
    layouts.iter().collect()
}

/// Executes copies, refusing to write a byte twice.
fn execute(plan: &Plan, sources: &[Vec<Vec<u64>>], target: &mut [Vec<u64>]) {
    for c in &plan.copies {
        for row in 0..c.rows {
            for byte in 0..c.row_bytes {
                let from = c.source_offset + row * c.source_pitch + byte;
                let to = c.target_offset + row * c.target_pitch + byte;
                let value = sources[c.source as usize][c.source_buffer as usize][from as usize];
                let slot = &mut target[c.target_buffer as usize][to as usize];
                assert_eq!(*slot, PADDING, "written twice");
                *slot = value;
            }
        }
    }
}

/// A scalar additive digest: the sum of byte times odd key of (tensor, position).
fn part(model: &Model, tensor: usize, position: u64, name: u64) -> u64 {
    let key = mix(model.tensors[tensor].key()[0] ^ mix(position)) | 1;
    (mix(name) & 0xff).wrapping_mul(key)
}

fn digest_of_model(model: &Model) -> u64 {
    let mut sum = 0u64;
    for tensor in 0..model.tensors.len() {
        for position in 0..model.tensors[tensor].nbytes() {
            let name = model.byte(tensor, position);
            sum = sum.wrapping_add(part(model, tensor, position, name));
        }
    }
    sum
}

/// The counted part of a shard's digest, read from its memory run by run.
fn digest(
    model: &Model,
    layout: &Layout,
    cells: &[Cell],
    runs: &[Run],
    memory: &[Vec<u64>],
) -> u64 {
    let mut sum = 0u64;
    for run in runs.iter().filter(|run| cells[run.cell as usize].counted) {
        let tensor = model.find(layout.tensor_of(cells[run.cell as usize].entry).name());
        for row in 0..run.rows {
            for byte in 0..run.row_bytes {
                let at = run.offset + row * run.pitch + byte;
                let position = run.position + row * run.position_pitch + byte;
                let name = memory[run.buffer as usize][at as usize];
                sum = sum.wrapping_add(part(model, tensor, position, name));
            }
        }
    }
    sum
}

/// A copy seen from the target's side.
fn landed(copy: &Copy) -> Run {
    Run {
        buffer: copy.target_buffer,
        offset: copy.target_offset,
        pitch: copy.target_pitch,
        row_bytes: copy.row_bytes,
        rows: copy.rows,
        cell: copy.cell,
        position: copy.position,
        position_pitch: copy.position_pitch,
    }
}

#[test]
fn every_byte_arrives_and_is_counted_once() {
    let mut met = [0; 4];
    for seed in 0..SEEDS {
        let (_, model, sources, targets) = scene(seed);
        let (from, to) = (refs(&sources), refs(&targets));
        let source_memory: Vec<_> = from.iter().map(|l| memory(&model, l)).collect();
        let whole = digest_of_model(&model);
        let mut published = 0u64;
        for (shard, layout) in from.iter().enumerate() {
            let mine = cells(&from, shard);
            let parts = digest(&model, layout, &mine, &runs(layout, &mine), &source_memory[shard]);
            published = published.wrapping_add(parts);
        }
        assert_eq!(published, whole, "seed {seed}: source group");
        let (mut arrived, mut in_place) = (0u64, 0u64);
        for (shard, layout) in to.iter().enumerate() {
            let mine = cells(&to, shard);
            let plan = plan(layout, &mine, &from).unwrap();
            prove(layout, &mine, &from, &plan).unwrap();
            assert_eq!(plan.bytes(), layout.bytes(), "seed {seed}");
            met[0] += usize::from(!plan.echoes.is_empty());
            met[1] += plan.copies.iter().filter(|c| c.rows > 1).count();
            met[2] += mine.iter().filter(|c| c.copies > 1 && !c.counted).count();
            met[3] += usize::from(plan.copies.len() > mine.len());
            let mut filled = blank(layout);
            execute(&plan, &source_memory, &mut filled);
            assert_eq!(filled, memory(&model, layout), "seed {seed} shard {shard}");
            let landed: Vec<Run> =
                plan.copies.iter().map(landed).chain(plan.echoes.iter().copied()).collect();
            let parts = digest(&model, layout, &mine, &landed, &filled);
            arrived = arrived.wrapping_add(parts);
            let parts = digest(&model, layout, &mine, &runs(layout, &mine), &filled);
            in_place = in_place.wrapping_add(parts);
        }
        assert_eq!((arrived, in_place), (whole, whole), "seed {seed}: target group");
    }
    // Ties, strided copies, replicated cells, cells from several sources: the scenes have them.
    assert!(met.iter().all(|&times| times > 100), "{met:?}");
}

#[test]
fn cells_know_who_holds_them() {
    for seed in 0..SEEDS {
        let (_, model, _, group) = scene(seed);
        let all = refs(&group);
        // For each tensor and byte the shards that hold it, as bits.
        let mut holders: Vec<Vec<u32>> =
            model.tensors.iter().map(|t| vec![0; t.nbytes() as usize]).collect();
        for (shard, layout) in all.iter().enumerate() {
            for (number, entry) in layout.entries().enumerate() {
                let tensor = model.find(layout.tensor_of(number as u32).name());
                for (_, position) in bytes_of(&model.tensors[tensor], &entry.slice) {
                    holders[tensor][position as usize] |= 1 << shard;
                }
            }
        }
        for (shard, layout) in all.iter().enumerate() {
            let mut seen: Vec<Vec<u64>> = layout.entries().map(|_| Vec::new()).collect();
            for cell in cells(&all, shard) {
                let tensor = model.find(layout.tensor_of(cell.entry).name());
                let bytes = bytes_of(&model.tensors[tensor], &cell.slice);
                assert!(!bytes.is_empty());
                let who = holders[tensor][bytes[0].1 as usize];
                for (_, position) in bytes {
                    assert_eq!(holders[tensor][position as usize], who, "seed {seed}");
                    seen[cell.entry as usize].push(position);
                }
                assert_eq!(cell.copies, who.count_ones(), "seed {seed}");
                assert_eq!(cell.counted, who.trailing_zeros() as usize == shard, "seed {seed}");
            }
            // What is digested in place is each cell, all of it.
            let mine = cells(&all, shard);
            let mut in_place = vec![0; mine.len()];
            runs(layout, &mine).iter().for_each(|run| in_place[run.cell as usize] += run.bytes());
            for (cell, bytes) in mine.iter().zip(in_place) {
                let dtype = layout.tensor_of(cell.entry).dtype();
                assert_eq!(bytes, cell.slice.volume() * dtype.bits() / 8, "seed {seed}");
            }
            for (number, entry) in layout.entries().enumerate() {
                let tensor = layout.tensor_of(number as u32);
                let mut expected: Vec<u64> =
                    bytes_of(tensor, &entry.slice).into_iter().map(|b| b.1).collect();
                expected.sort_unstable();
                seen[number].sort_unstable();
                assert_eq!(seen[number], expected, "seed {seed}");
            }
        }
    }
}

#[test]
fn what_a_source_lacks_is_named() {
    let mut found = 0;
    for seed in 0..SEEDS {
        let (mut rng, model, sources, targets) = scene(seed);
        let lost = rng.below(sources.len() as u64) as usize;
        let rest: Vec<&Layout> =
            (0..sources.len()).filter(|&s| s != lost).map(|s| &sources[s]).collect();
        let catalog = model.tensors.iter().map(|t| (t.name().to_owned(), t.clone())).collect();
        let holes = missing(&rest, &catalog);
        assert!(missing(&refs(&sources), &catalog).is_empty());
        let bytes: u64 = holes
            .iter()
            .flat_map(|(t, boxes)| boxes.iter().map(|b| b.volume() * t.dtype().bits() / 8))
            .sum();
        let all = refs(&targets);
        let plans = (0..all.len()).map(|s| plan(all[s], &cells(&all, s), &rest));
        let refused = plans.filter(Result::is_err).count();
        assert_eq!(bytes > 0, refused > 0, "seed {seed}");
        found += refused;
    }
    assert!(found > 100);
}

/// One wrong number in one copy, or one copy too many or too few.
fn damage(rng: &mut Rng, plan: &mut Plan, sources: usize) -> &'static str {
    let at = rng.below(plan.copies.len() as u64) as usize;
    let copy = &mut plan.copies[at];
    match rng.below(10) {
        0 => {
            plan.copies.remove(at);
            "dropped"
        }
        1 => {
            let twin = plan.copies[at];
            plan.copies.push(twin);
            "doubled"
        }
        2 => {
            copy.source_offset = copy.source_offset.wrapping_add(rng.below(2) * 2).wrapping_sub(1);
            "source offset"
        }
        3 => {
            copy.target_offset = copy.target_offset.wrapping_add(rng.below(2) * 2).wrapping_sub(1);
            "target offset"
        }
        4 => {
            copy.position += 1 + rng.below(8);
            "position"
        }
        5 => {
            copy.row_bytes -= 1;
            "row bytes"
        }
        6 => {
            copy.rows += 1;
            "rows"
        }
        7 if copy.rows > 1 => {
            copy.source_pitch += 1;
            "source pitch"
        }
        8 if copy.rows > 1 => {
            copy.position_pitch -= 1;
            "position pitch"
        }
        9 => {
            copy.source = sources as u32;
            "source"
        }
        _ => {
            copy.target_buffer += 1;
            "buffer"
        }
    }
}

#[test]
fn the_proof_refuses_damaged_plans() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        let (mut rng, _, sources, targets) = scene(seed);
        let (from, to) = (refs(&sources), refs(&targets));
        for (shard, layout) in to.iter().enumerate() {
            let mine = cells(&to, shard);
            let good = plan(layout, &mine, &from).unwrap();
            for _ in 0..if good.copies.is_empty() { 0 } else { 4 } {
                let mut bad = good.clone();
                let what = damage(&mut rng, &mut bad, from.len());
                let proof = prove(layout, &mine, &from, &bad);
                assert!(proof.is_err(), "seed {seed}: {what} {bad:?}");
                refused += 1;
            }
            if !good.echoes.is_empty() {
                let mut bad = good.clone();
                bad.echoes.pop();
                assert!(prove(layout, &mine, &from, &bad).is_err(), "seed {seed}: silent echo");
                bad.echoes = good.echoes.clone();
                bad.echoes[0].offset += 1;
                assert!(prove(layout, &mine, &from, &bad).is_err(), "seed {seed}: moved echo");
            }
        }
    }
    assert!(refused > 1000);
}

#[test]
fn plans_are_functions_of_layouts() {
    for seed in 0..50 {
        let (_, _, sources, targets) = scene(seed);
        let (from, to) = (refs(&sources), refs(&targets));
        for (shard, layout) in to.iter().enumerate() {
            let mine = cells(&to, shard);
            // Described again in another order, a layout is the same layout.
            let mut tensors = layout.tensors().to_vec();
            tensors.reverse();
            let mut entries = layout.entries().collect::<Vec<_>>();
            entries.reverse();
            for entry in &mut entries {
                entry.tensor = tensors.len() as u32 - 1 - entry.tensor;
            }
            let again = Layout::new(layout.buffers().to_vec(), tensors, entries).unwrap();
            assert_eq!((layout.digest(), *layout), (again.digest(), &again));
            assert_eq!(plan(layout, &mine, &from), plan(&again, &mine, &from));
        }
    }
}

#[test]
fn replicated_sources_share_the_load() {
    let mut source = LayoutBuilder::new();
    for at in 0..64 {
        let part = Part::new(format!("w{at:02}")).shape([8, 8]);
        source.add(format!("w{at:02}"), DType::BF16, &[8, 8], vec![part], 0);
    }
    let layout = source.build().unwrap();
    let sources = [&layout; 4];
    let plan = plan(&layout, &cells(&[&layout], 0), &sources).unwrap();
    assert_eq!(plan.bytes_by_source(4), [64 * 128 / 4; 4]);
}

#[test]
fn a_source_of_another_type_or_shape_is_named() {
    let one = |dtype, shape: &[u64]| {
        let mut b = LayoutBuilder::new();
        b.add("w", dtype, shape, vec![Part::new("w").shape(shape)], 0);
        b.build().unwrap()
    };
    let wanted = one(DType::BF16, &[4, 4]);
    let mine = cells(&[&wanted], 0);
    for other in [one(DType::F16, &[4, 4]), one(DType::BF16, &[4, 5])] {
        let error = plan(&wanted, &mine, &[&wanted, &other]).unwrap_err();
        let named = matches!(error, PlanError::TensorMismatch { source_shard: 1, .. });
        assert!(named && error.to_string().contains("w BF16 [4, 4]"), "{error}");
    }
    let none = plan(&wanted, &mine, &[]).unwrap_err();
    assert_eq!(
        none.to_string(),
        "no source holds w [0:4, 0:4]; publish them or drop them from the layout"
    );
}

/// A layout of these tensors in BF16, whole.
fn whole(tensors: &[(&str, &[u64])]) -> Layout {
    let mut b = LayoutBuilder::new();
    for (name, shape) in tensors {
        b.add(*name, DType::BF16, shape, vec![Part::new(*name).shape(*shape)], 0);
    }
    b.build().unwrap()
}

#[test]
fn shards_that_differ_in_a_tensor_disagree() {
    let (one, same) = (whole(&[("a", &[2]), ("b", &[3])]), whole(&[("b", &[3]), ("c", &[4])]));
    let other = whole(&[("a", &[2]), ("c", &[5])]);
    assert_eq!(disagreement(&[]), None);
    assert_eq!(disagreement(&[&one, &same, &one]), None);
    let (first, second) = disagreement(&[&one, &same, &other]).expect("they differ in c");
    assert_eq!((first.shape(), second.shape()), (&[4][..], &[5][..]));
    // What they do not agree on they do not share.
    let mine = cells(&[&same, &other], 0);
    assert!(mine.iter().all(|cell| cell.copies == 1 && cell.counted), "{mine:?}");
}

#[test]
fn an_error_lists_the_first_few_boxes_and_counts_the_others() {
    let names: Vec<String> = (0..12).map(|at| format!("w{at:02}")).collect();
    let target = |count: usize| {
        let tensors: Vec<(&str, &[u64])> =
            names[..count].iter().map(|name| (name.as_str(), &[2][..])).collect();
        let layout = whole(&tensors);
        plan(&layout, &cells(&[&layout], 0), &[]).unwrap_err().to_string()
    };
    let listed =
        |text: &str| names.iter().filter(|name| text.contains(&format!("{name} [0:2]"))).count();
    for (count, shown, rest) in [(1, 1, None), (8, 8, None), (9, 8, Some(1)), (12, 8, Some(4))] {
        let text = target(count);
        assert_eq!(listed(&text), shown, "{text}");
        let more = rest.map(|rest| format!(" and {rest} more"));
        assert!(more.as_ref().map_or(!text.contains("more"), |more| text.contains(more)), "{text}");
    }
    assert!(target(2).starts_with("no source holds w00 [0:2], w01 [0:2]; "), "{}", target(2));
}

#[test]
fn cells_of_another_layout_are_refused() {
    let (layout, larger) = (whole(&[("a", &[2, 2])]), whole(&[("a", &[3, 2]), ("b", &[1])]));
    let refused = |cells: &[Cell]| {
        assert!(prove(&layout, cells, &[&layout], &Plan::default()).is_err());
        matches!(plan(&layout, cells, &[&layout]), Err(PlanError::ForeignCell { .. }))
    };
    let theirs = cells(&[&larger], 0);
    assert!(refused(&theirs) && refused(&theirs[..1]) && refused(&theirs[1..]));
    assert!(plan(&layout, &cells(&[&layout], 0), &[&layout]).is_ok());
}

/// Sources whose boxes overlap without being equal: every byte is taken once, and in few pieces.
#[test]
fn of_sources_that_overlap_the_largest_piece_is_taken() {
    let part = |start: u64, rows: u64| {
        let mut b = LayoutBuilder::new();
        let part = Part::new("w").shape([12, 4]).range(0, start, rows);
        b.add("w", DType::BF16, &[rows, 4], vec![part], 0);
        b.build().unwrap()
    };
    let target = part(0, 12);
    let mine = cells(&[&target], 0);
    let made = |sources: &[&Layout]| {
        let made = plan(&target, &mine, sources).unwrap();
        (made.bytes_by_source(sources.len()), made.copies.len())
    };
    let (low, middle, high) = (part(0, 5), part(2, 9), part(9, 3));
    // Nine rows from the middle; what is left below and above from those that have it.
    assert_eq!(made(&[&low, &middle, &high]), (vec![2 * 8, 9 * 8, 8], 3));
    // Of two that have as much, the one that gave less.
    let twice = made(&[&part(0, 8), &part(4, 8), &part(0, 8)]);
    assert_eq!(twice.0.iter().sum::<u64>(), 12 * 8);
    assert_eq!(twice.1, 2, "{twice:?}");
}
