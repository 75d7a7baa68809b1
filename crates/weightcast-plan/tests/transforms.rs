//! Other representations against their definition, element by element: where each element is made,
//! by which block's scale, and which blocks are exchanged.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{Model, Rng, random_group};
use weightcast_plan::quantise::Formula;
use weightcast_plan::transform::{
    Backing, Fp8, How, Representation, Rule, Rules, Shared, Transform, TransformError,
};
use weightcast_plan::{DType, Entry, Layout, LayoutBuilder, Part, Slice, Tensor};

const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// Tensors of floats, a group of shards that hold them, and rules for some.
fn scene(seed: u64) -> (Vec<Layout>, Rules) {
    let mut rng = Rng(seed);
    let mut model = Model { tensors: Vec::new(), content: Vec::new() };
    let mut rules = Vec::new();
    for at in 0..1 + rng.below(3) as usize {
        let name = format!("t{at}");
        let dtype = FLOATS[rng.below(3) as usize];
        let shape: Vec<u64> = (0..2 + rng.below(2))
            .map(|_| if rng.chance(3) { 0 } else { 1 + rng.below(9) })
            .collect();
        model.tensors.push(Tensor::new(name.as_str(), dtype, shape).unwrap());
        model.content.push(at);
        let transform = match rng.below(5) {
            0 => None,
            1 => Some(Transform::Cast(FLOATS[rng.below(3) as usize])),
            _ => {
                let exponents = rng.chance(50);
                let formula = match exponents {
                    true => Formula::DeepGemmUe8m0Bits,
                    false => Formula::Triton,
                };
                let scales = if exponents { DType::F8E8M0 } else { DType::F32 };
                let block = (1 + rng.below(4), 1 + rng.below(4));
                Some(Transform::Fp8(Fp8 { block, scales, ..Fp8::new(formula) }))
            }
        };
        rules.push(Rule { names: name, transform });
    }
    (random_group(&mut rng, &model), Rules(rules))
}

/// Every index of a box.
fn indices(slice: &Slice) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for d in 0..slice.ndim() {
        let range = slice.start[d]..slice.end(d);
        let longer = |index: &Vec<u64>| {
            let index = index.clone();
            range.clone().map(move |at| [index.as_slice(), &[at]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Where an element of an entry lies in its buffer.
fn place(entry: &Entry, index: &[u64]) -> u64 {
    let steps = index.iter().zip(&entry.slice.start).zip(&entry.strides);
    entry.offset + steps.map(|((at, start), stride)| (at - start) * stride).sum::<u64>()
}

/// The place of an index among those of a box, row by row.
fn rank(index: &[u64], within: &Slice) -> u64 {
    indices(within).iter().position(|one| one == index).expect("in the box") as u64
}

/// Elements of a block in each dimension.
fn sides(fp8: &Fp8, dims: usize) -> Vec<u64> {
    let mut sides = vec![1; dims];
    (sides[dims - 2], sides[dims - 1]) = fp8.block;
    sides
}

fn block_of(index: &[u64], sides: &[u64]) -> Vec<u64> {
    index.iter().zip(sides).map(|(at, side)| at / side).collect()
}

fn fp8_of<'a>(rules: &'a Rules, tensor: &str) -> Option<&'a Fp8> {
    match rules.of(tensor) {
        Some(Transform::Fp8(fp8)) => Some(fp8),
        _ => None,
    }
}

/// The blocks that a shard has any element of, in the order of their numbers.
fn touched(source: &Layout, tensor: u32, sides: &[u64]) -> BTreeSet<Vec<u64>> {
    let elements = source.entries_of(tensor).flat_map(|e| indices(&source.entry(e).slice));
    elements.map(|index| block_of(&index, sides)).collect()
}

#[test]
fn every_element_is_made_in_its_place_and_by_the_scale_of_its_block() {
    let (mut coded, mut cast, mut ragged) = (0, 0, 0);
    for seed in 0..600 {
        let (group, rules) = scene(seed);
        for source in &group {
            let made = Representation::new(source, &rules).unwrap();
            let of = |entry: &Entry| made.memory[entry.buffer as usize];
            // What no rule names lies where it lay; what is made lies packed, in the order of pieces.
            let mut behind = 0;
            for piece in &made.pieces {
                assert_eq!(piece.at, behind, "no gaps");
                behind += piece.slice().volume() * piece.to.step_bytes();
                assert_eq!(piece.end(), behind);
                assert!(!piece.slice().is_empty());
            }
            for (number, bytes) in made.layout.buffers().iter().enumerate() {
                match made.memory[number] {
                    Backing::Made => assert_eq!(*bytes, behind),
                    Backing::Kept(buffer) => assert_eq!(*bytes, source.buffers()[buffer as usize]),
                    Backing::Scales => assert_eq!(*bytes, made.grids.last().unwrap().scales_end()),
                }
            }
            let mut pieces = made.pieces.iter();
            for (number, tensor) in (0..).zip(source.tensors()) {
                let now = made.layout.find(tensor.name()).expect("its name");
                let became = &made.layout.tensors()[now as usize];
                assert_eq!(became.shape(), tensor.shape());
                let expected = match rules.of(tensor.name()) {
                    None => tensor.dtype(),
                    Some(Transform::Cast(to)) => *to,
                    Some(Transform::Fp8(_)) => DType::F8E4M3,
                };
                assert_eq!(became.dtype(), expected);
                let entries = source.entries_of(number).zip(made.layout.entries_of(now));
                for (was, is) in entries {
                    let (was, is) = (source.entry(was), made.layout.entry(is));
                    assert_eq!(was.slice, is.slice);
                    if expected == tensor.dtype() {
                        assert_eq!(of(&is), Backing::Kept(was.buffer));
                        assert_eq!((was.offset, was.strides), (is.offset, is.strides));
                        continue;
                    }
                    assert_eq!(of(&is), Backing::Made);
                    if is.slice.is_empty() {
                        continue;
                    }
                    let piece = pieces.next().expect("a piece for each entry");
                    assert_eq!(
                        (&piece.source, piece.from, piece.to),
                        (&was, tensor.dtype(), expected)
                    );
                    assert_eq!(piece.rows() * piece.width(), is.slice.volume());
                    let fp8 = fp8_of(&rules, tensor.name());
                    match piece.how {
                        How::Cast(to) => {
                            assert!(to == expected && fp8.is_none());
                            cast += 1;
                        }
                        How::Codes { grid } => {
                            assert_eq!(made.grids[grid as usize].weight, tensor.name());
                            coded += 1;
                        }
                    }
                    // Element by element, in the order in which they are made.
                    let outer = is.slice.ndim() - 1;
                    for (at, index) in (0..).zip(indices(&is.slice)) {
                        let (row, column) = (at / piece.width(), at % piece.width());
                        let lies = piece.row(row, &made.grids);
                        assert_eq!(
                            lies.source + column * tensor.dtype().step_bytes(),
                            place(&was, &index)
                        );
                        let goes =
                            piece.at + row * piece.row_bytes() + column * piece.to.step_bytes();
                        assert_eq!(place(&is, &index), goes);
                        let How::Codes { grid } = piece.how else {
                            assert_eq!(lies.table, 0);
                            continue;
                        };
                        let grid = &made.grids[grid as usize];
                        let block = block_of(&index, &sides(fp8.unwrap(), is.slice.ndim()));
                        let first = grid.column(is.slice.start[outer]);
                        let table = lies.table as u64 + grid.column(index[outer]) - first;
                        assert_eq!(table, grid.first as u64 + rank(&block, &grid.within));
                    }
                    // Bands: as many rows as have their elements in the same blocks.
                    let blocks = |row: u64| -> Vec<u64> {
                        let index = &indices(&is.slice)[(row * piece.width()) as usize];
                        match fp8 {
                            None => Vec::new(),
                            Some(fp8) => block_of(&index[..outer], &sides(fp8, outer + 1)),
                        }
                    };
                    let mut bands = Vec::<(Vec<u64>, u64)>::new();
                    for row in 0..piece.rows() {
                        match bands.last_mut() {
                            Some(band) if band.0 == blocks(row) => band.1 += 1,
                            _ => bands.push((blocks(row), 1)),
                        }
                    }
                    ragged += bands.len();
                    let mut next = 0;
                    let expected = bands.iter().map(|(_, rows)| {
                        next += rows;
                        next - rows..next
                    });
                    assert!(piece.bands(&made.grids).eq(expected), "{piece:?}");
                }
            }
            assert!(pieces.next().is_none());
        }
    }
    assert!(coded > 500 && cast > 50 && ragged > 2 * coded, "{coded} {cast} {ragged}");
}

#[test]
fn a_shard_has_the_scales_of_the_blocks_that_it_touches_each_once() {
    let mut scales = 0;
    for seed in 0..600 {
        let (group, rules) = scene(seed);
        for source in &group {
            let made = Representation::new(source, &rules).unwrap();
            let (mut tables, mut bytes) = (0, 0);
            for grid in &made.grids {
                let number = source.find(&grid.weight).expect("a weight");
                let tensor = &source.tensors()[number as usize];
                let fp8 = fp8_of(&rules, &grid.weight).expect("a rule");
                let sides = sides(fp8, tensor.shape().len());
                let touched = touched(source, number, &sides);
                let shape: Vec<u64> =
                    tensor.shape().iter().zip(&sides).map(|(n, side)| n.div_ceil(*side)).collect();
                assert_eq!((&grid.shape, &grid.block), (&shape, &sides));
                // The table is the smallest box around them, behind the one before it.
                for d in 0..shape.len() {
                    let at = || touched.iter().map(|block| block[d]);
                    let (first, end) = (at().min().unwrap_or(0), at().max().map_or(0, |m| m + 1));
                    assert_eq!((grid.within.start[d], grid.within.end(d)), (first, end));
                }
                assert_eq!(grid.first, tables);
                tables += indices(&grid.within).len();
                assert!(
                    grid.scales_at >= bytes
                        && grid.scales_at % 8 == 0
                        && grid.scales_at < bytes + 8
                );
                bytes = grid.scales_at + grid.within.volume() * fp8.scales.step_bytes();
                assert_eq!(grid.scales_end(), bytes);
                // Published: each touched one once, where the table has it.
                assert_eq!(grid.name, format!("{}_scale_inv", grid.weight));
                let named = made.layout.find(&grid.name).expect("its scales");
                let published = &made.layout.tensors()[named as usize];
                assert_eq!((published.shape(), published.dtype()), (&shape[..], fp8.scales));
                let mut held = BTreeMap::new();
                for entry in made.layout.entries_of(named) {
                    let entry = made.layout.entry(entry);
                    assert_eq!(made.memory[entry.buffer as usize], Backing::Scales);
                    for block in indices(&entry.slice) {
                        let at = place(&entry, &block);
                        assert_eq!(held.insert(block, at), None, "twice");
                    }
                }
                assert!(held.keys().eq(&touched));
                for (block, at) in held {
                    let step = fp8.scales.step_bytes();
                    assert_eq!(at, grid.scales_at + rank(&block, &grid.within) * step);
                    scales += 1;
                }
            }
        }
    }
    assert!(scales > 5_000, "{scales}");
}

#[test]
fn blocks_held_in_part_are_exchanged_and_all_shards_agree_on_their_places() {
    let (mut exchanged, mut none) = (0, 0);
    for seed in 0..600 {
        let (group, rules) = scene(seed);
        let made: Vec<Representation> =
            group.iter().map(|one| Representation::new(one, &rules).unwrap()).collect();
        let layouts: Vec<&Layout> = made.iter().map(|one| &one.layout).collect();
        let shared = Shared::new(&layouts, &rules);
        // Block by block: which does some entry of a shard hold in part?
        let mut partial = BTreeSet::new();
        for source in group.iter().filter(|_| group.len() > 1) {
            for (number, tensor) in (0..).zip(source.tensors()) {
                let Some(fp8) = fp8_of(&rules, tensor.name()) else { continue };
                let sides = sides(fp8, tensor.shape().len());
                let whole = |block: &[u64]| {
                    let of = Slice::full(tensor.shape());
                    indices(&of).iter().filter(|i| block_of(i, &sides) == block).count()
                };
                for entry in source.entries_of(number) {
                    let mut found = BTreeMap::<Vec<u64>, usize>::new();
                    for index in indices(&source.entry(entry).slice) {
                        *found.entry(block_of(&index, &sides)).or_default() += 1;
                    }
                    let part = found.into_iter().filter(|(block, n)| *n < whole(block));
                    partial.extend(part.map(|(block, _)| (tensor.name().to_owned(), block)));
                }
            }
        }
        assert_eq!(shared.len(), partial.len(), "seed {seed}");
        assert_eq!(shared.is_empty(), partial.is_empty());
        exchanged += partial.len();
        none += usize::from(partial.is_empty());
        let mut places = BTreeMap::<(String, Vec<u64>), usize>::new();
        for one in &made {
            let mut mine = BTreeSet::new();
            for blocks in shared.overlaps(&one.grids) {
                for step in 0..blocks.len {
                    let (at, table) = (blocks.at + step, blocks.table + step);
                    let grid = one.grids.iter().rev().find(|g| g.first <= table).expect("a grid");
                    let block = indices(&grid.within)[table - grid.first].clone();
                    let key = (grid.weight.clone(), block);
                    assert!(partial.contains(&key) && at < shared.len());
                    assert_eq!(
                        *places.entry(key.clone()).or_insert(at),
                        at,
                        "seed {seed}: {key:?}"
                    );
                    assert!(mine.insert(key), "twice");
                }
            }
            let wanted = partial.iter().filter(|(weight, block)| {
                let point = Slice::new(block.as_slice(), vec![1; block.len()]);
                one.grids.iter().any(|g| g.weight == *weight && g.within.contains(&point))
            });
            assert!(mine.iter().eq(wanted), "seed {seed}");
        }
        let all: BTreeSet<usize> = places.values().copied().collect();
        assert_eq!(all.len(), places.len(), "no two blocks at one place");
    }
    assert!(exchanged > 1_000 && none > 50, "{exchanged} {none}");
}

#[test]
fn what_cannot_be_made_is_refused() {
    let made = |dtype, shape: &[u64], transform| {
        let mut builder = LayoutBuilder::new();
        builder.add("w", dtype, shape, vec![Part::new("w").shape(shape)], 0);
        let rules = Rules(vec![Rule { names: "w".to_owned(), transform: Some(transform) }]);
        Representation::new(&builder.build().unwrap(), &rules)
    };
    let fp8 = |block| Fp8 { block, ..Fp8::new(Formula::DeepGemm) };
    let coded = |fp8| made(DType::BF16, &[4, 4], Transform::Fp8(fp8));
    let most = 1 << 20;
    for block in [(1, 1), (most, most), (most, 1)] {
        assert!(coded(fp8(block)).is_ok());
    }
    for (rows, columns) in [(0, 1), (1, 0), (most + 1, 1), (1, most + 1)] {
        let refused = coded(fp8((rows, columns))).unwrap_err();
        assert_eq!(refused, TransformError::Block { rows, columns });
    }
    for formula in Formula::all() {
        for scales in [DType::F32, DType::F8E8M0, DType::BF16] {
            let allowed = scales == DType::F32 || scales == DType::F8E8M0 && formula.is_ue8m0();
            let found = coded(Fp8 { scales, ..Fp8::new(formula) });
            assert_eq!(found.is_ok(), allowed, "{formula} {scales}");
            assert!(allowed || matches!(found, Err(TransformError::Scales { .. })));
        }
    }
    let row = made(DType::BF16, &[4], Transform::Fp8(fp8((2, 2)))).unwrap_err();
    assert!(matches!(row, TransformError::NoMatrix { dims: 1, .. }));
    let of_numbers = made(DType::I32, &[4, 4], Transform::Fp8(fp8((2, 2)))).unwrap_err();
    assert!(matches!(of_numbers, TransformError::Elements { from: DType::I32, .. }));
    for (from, to) in [(DType::I32, DType::F32), (DType::F32, DType::I32), (DType::F64, DType::F32)]
    {
        let refused = made(from, &[4, 4], Transform::Cast(to)).unwrap_err();
        assert!(matches!(refused, TransformError::Elements { .. }), "{from} {to}");
    }
    // To its own type nothing is cast, whatever that is.
    assert!(made(DType::I32, &[4, 4], Transform::Cast(DType::I32)).unwrap().pieces.is_empty());
}

#[test]
fn scales_that_have_a_tensors_name_are_refused() {
    let mut builder = LayoutBuilder::new();
    for name in ["w", "w_scale_inv"] {
        builder.add(name, DType::BF16, &[4, 4], vec![Part::new(name).shape([4, 4])], 0);
    }
    let fp8 = Transform::Fp8(Fp8::new(Formula::Triton));
    let rules = Rules(vec![Rule { names: "w".to_owned(), transform: Some(fp8) }]);
    let refused = Representation::new(&builder.build().unwrap(), &rules).unwrap_err();
    assert!(matches!(refused, TransformError::NameTaken { .. }), "{refused}");
}
