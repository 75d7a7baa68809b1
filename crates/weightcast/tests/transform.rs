//! Representations of random shards against the reference, element by element.

use std::sync::{Arc, Barrier, Mutex};

use proptest::prelude::*;
use weightcast::plan::quantise::{Blocks, Formula, quantise};
use weightcast::plan::transform::{Fp8, Rule, Rules, Transform, cast};
use weightcast::plan::{DType, Entry, Layout, Slice, Tensor};
use weightcast::transport::Region;
use weightcast::{Error, Transformed};

/// A matrix, or a stack of them, cut over shards at random rows and columns.
#[derive(Clone, Debug)]
struct Scene {
    dtype: DType,
    shape: Vec<u64>,
    block: (u64, u64),
    formula: Formula,
    exponents: bool,
    /// Where it is cut in each dimension.
    cuts: Vec<Vec<u64>>,
    shards: usize,
    /// Whose each part is; some have two holders.
    owners: Vec<(usize, Option<usize>)>,
    /// Bytes between rows beyond what they need.
    gap: u64,
    seed: u64,
}

fn scenes() -> impl Strategy<Value = Scene> {
    // Some rows are longer than what is taken of them at once.
    let sides = prop_oneof![
        40 => (0..4_u64, 1..40_u64, 1..70_u64),
        1 => (0..2_u64, 1..4_u64, 3_000..9_000_u64),
    ];
    let dtypes = prop::sample::select(vec![DType::BF16, DType::F32, DType::F16]);
    let blocks = prop::sample::select(vec![(1, 1), (4, 8), (8, 4), (16, 16), (128, 128), (1, 32)]);
    let formulas = prop::sample::select(Formula::all().collect::<Vec<_>>());
    (sides, dtypes, blocks, formulas, 1..5_usize, 0..3_u64, any::<u64>(), any::<bool>())
        .prop_flat_map(
            |((stack, rows, columns), dtype, block, formula, shards, gap, seed, exponents)| {
                let mut shape = vec![rows, columns];
                if stack > 0 {
                    shape.insert(0, stack);
                }
                let cut = |n: u64| prop::collection::btree_set(1..n.max(2), 0..3);
                let cuts: Vec<_> = shape.iter().map(|&n| cut(n)).collect();
                let exponents = exponents && formula.is_ue8m0();
                let owner = (0..shards, prop::option::weighted(0.2, 0..shards));
                (cuts, prop::collection::vec(owner, 64)).prop_map(move |(cuts, owners)| Scene {
                    dtype,
                    shape: shape.clone(),
                    block,
                    formula,
                    exponents,
                    cuts: cuts
                        .into_iter()
                        .zip(&shape)
                        .map(|(cut, &n)| cut.into_iter().filter(|&at| at < n).collect())
                        .collect(),
                    shards,
                    owners,
                    gap,
                    seed,
                })
            },
        )
}

impl Scene {
    fn fp8(&self) -> Fp8 {
        let scales = if self.exponents { DType::F8E8M0 } else { DType::F32 };
        Fp8 { block: self.block, scales, ..Fp8::new(self.formula) }
    }

    /// Every element, as bytes.
    fn bytes(&self) -> Vec<u8> {
        let count: u64 = self.shape.iter().product();
        let mut state = self.seed | 1;
        let mut bytes = Vec::new();
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let unit = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
            let value = unit * [1e-3, 1.0, 300.0, 0.0][(state % 4) as usize];
            let mut one = vec![0; self.dtype.step_bytes() as usize];
            cast(DType::F32, &value.to_le_bytes(), self.dtype, &mut one).unwrap();
            bytes.extend(one);
        }
        bytes
    }

    fn boxes(&self) -> Vec<Slice> {
        let mut boxes = vec![Slice::full(&self.shape)];
        for (dim, cuts) in self.cuts.iter().enumerate() {
            for &at in cuts {
                boxes = boxes
                    .into_iter()
                    .flat_map(|b| {
                        let mut low = b.clone();
                        let mut high = b.clone();
                        let end = b.start[dim] + b.len[dim];
                        let cut = at.clamp(b.start[dim], end);
                        low.len[dim] = cut - b.start[dim];
                        (high.start[dim], high.len[dim]) = (cut, end - cut);
                        [low, high]
                    })
                    .filter(|b| !b.is_empty())
                    .collect();
            }
        }
        boxes
    }

    /// One shard's layout and memory: its boxes with a gap behind each row, between 0xEE.
    fn shard(&self, shard: usize, bytes: &[u8]) -> (Layout, Region) {
        let size = self.dtype.step_bytes();
        let mine = self.boxes().into_iter().zip(&self.owners);
        let mine = mine.filter(|(_, (a, b))| *a == shard || *b == Some(shard)).map(|(b, _)| b);
        let (mut memory, mut entries) = (Vec::new(), Vec::new());
        for slice in mine {
            memory.extend([0xEE; 3]);
            let ndim = slice.ndim();
            let mut strides = vec![size; ndim];
            for d in (0..ndim - 1).rev() {
                strides[d] =
                    strides[d + 1] * slice.len[d + 1] + if d == ndim - 2 { self.gap } else { 0 };
            }
            let offset = memory.len() as u64;
            let width = slice.len[ndim - 1];
            for row in 0..slice.volume() / width {
                let from = (self.global(&slice, row * width) * size) as usize;
                memory.extend(&bytes[from..from + (width * size) as usize]);
                memory.extend(vec![0xEE; self.gap as usize]);
            }
            entries.push(Entry { tensor: 0, slice, buffer: 0, offset, strides });
        }
        let tensor = Tensor::new("w", self.dtype, self.shape.clone()).unwrap();
        let region = Region::from_bytes(&memory).unwrap();
        (Layout::new(vec![memory.len() as u64], vec![tensor], entries).unwrap(), region)
    }

    /// Number in the whole tensor of a box's element.
    fn global(&self, slice: &Slice, element: u64) -> u64 {
        let (mut left, mut number, mut pitch) = (element, 0, 1);
        for d in (0..slice.ndim()).rev() {
            number += (slice.start[d] + left % slice.len[d]) * pitch;
            left /= slice.len[d];
            pitch *= self.shape[d];
        }
        number
    }

    /// All shards' representations, made side by side with an exchange between them.
    fn represent(&self, rules: &Rules, bytes: &[u8]) -> Vec<Transformed> {
        let shards: Vec<_> = (0..self.shards).map(|shard| self.shard(shard, bytes)).collect();
        let made: Vec<Transformed> = shards
            .iter()
            .map(|(layout, region)| {
                Transformed::new(layout, std::slice::from_ref(region), rules.clone()).unwrap()
            })
            .collect();
        let group: Vec<_> = made.iter().map(|one| Arc::new(one.layout().clone())).collect();
        let (board, turn) = (Mutex::new(Vec::<i32>::new()), Barrier::new(self.shards));
        let exchange = |numbers: &mut [i32]| -> Result<(), Error> {
            {
                let mut board = board.lock().unwrap();
                board.resize(numbers.len(), 0);
                board.iter_mut().zip(&*numbers).for_each(|(all, one)| *all = (*all).max(*one));
            }
            turn.wait();
            numbers.copy_from_slice(&board.lock().unwrap());
            Ok(())
        };
        std::thread::scope(|scope| {
            for one in &made {
                scope.spawn(|| {
                    one.join(&group).unwrap();
                    one.refresh(2, Some(&mut { exchange })).unwrap();
                });
            }
        });
        assert!(made.iter().all(|one| one.exchanged() == made[0].exchanged()));
        made
    }
}

/// Asserts that every entry of a tensor has the expected bytes, and returns how many elements it saw.
fn compare(one: &Transformed, name: &str, shape: &[u64], expected: &[u8]) -> u64 {
    let layout = one.layout();
    let number = layout.find(name).unwrap();
    let size = layout.tensors()[number as usize].dtype().step_bytes();
    let mut seen = 0;
    for at in layout.entries_of(number) {
        let entry = layout.entry(at);
        let region = &one.regions()[entry.buffer as usize];
        for element in 0..entry.slice.volume() {
            let (mut left, mut global, mut pitch, mut offset) = (element, 0, 1, entry.offset);
            for d in (0..shape.len()).rev() {
                let index = left % entry.slice.len[d];
                left /= entry.slice.len[d];
                offset += index * entry.strides[d];
                global += (entry.slice.start[d] + index) * pitch;
                pitch *= shape[d];
            }
            let mut found = vec![0; size as usize];
            region.read_at(offset as usize, &mut found).unwrap();
            let from = (global * size) as usize;
            assert_eq!(
                found,
                expected[from..from + size as usize],
                "{name} {} {element}",
                entry.slice
            );
            seen += 1;
        }
        // The same in one go, from anywhere.
        let len = (entry.slice.volume() * size) as usize;
        if name == "w" && len > 0 {
            let whole = {
                let mut whole = vec![0; len];
                region.read_at(entry.offset as usize, &mut whole).unwrap();
                whole
            };
            for start in [0, 1, len / 3, len - 1] {
                let mut part = vec![0; (len - start).min(len / 2 + 1)];
                region.read_at(entry.offset as usize + start, &mut part).unwrap();
                assert_eq!(part, whole[start..start + part.len()]);
            }
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn shards_quantise_as_the_whole_does(scene in scenes()) {
        let bytes = scene.bytes();
        let rules = vec![Rule { names: "w".into(), transform: Some(Transform::Fp8(scene.fp8())) }];
        let shards = scene.represent(&Rules(rules), &bytes);
        let matrix: u64 = scene.shape[scene.shape.len() - 2..].iter().product();
        let shape = (scene.shape[scene.shape.len() - 2], scene.shape[scene.shape.len() - 1]);
        let mut values = vec![0; bytes.len() / scene.dtype.step_bytes() as usize * 4];
        cast(scene.dtype, &bytes, DType::F32, &mut values).unwrap();
        let values: Vec<f32> =
            values.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let (mut codes, mut scales) = (Vec::new(), Vec::new());
        let blocks = Blocks { shape, block: scene.block };
        for matrix in values.chunks(matrix as usize) {
            let quantised = quantise(blocks, scene.formula, matrix).unwrap();
            codes.extend(quantised.codes);
            for scale in quantised.scales {
                match scene.exponents {
                    true => scales.push((scale.to_bits() >> 23) as u8),
                    false => scales.extend(scale.to_le_bytes()),
                }
            }
        }
        let (rows, columns) = blocks.grid();
        let mut grid = scene.shape.clone();
        let ndim = grid.len();
        (grid[ndim - 2], grid[ndim - 1]) = (rows, columns);
        let mut held = 0;
        for one in &shards {
            held += compare(one, "w", &scene.shape, &codes);
            compare(one, "w_scale_inv", &grid, &scales);
        }
        let further = |o: &&(usize, Option<usize>)| o.1.is_some_and(|second| second != o.0);
        let boxes = scene.boxes();
        let twice: u64 = boxes.iter().zip(&scene.owners).filter(|(_, o)| further(o)).map(|(b, _)| b.volume()).sum();
        prop_assert_eq!(held, scene.shape.iter().product::<u64>() + twice);
    }

    #[test]
    fn shards_cast_as_the_whole_does(
        scene in scenes(),
        to in prop::sample::select(vec![DType::BF16, DType::F32, DType::F16]),
    ) {
        let bytes = scene.bytes();
        let rules = vec![Rule { names: "*".into(), transform: Some(Transform::Cast(to)) }];
        let shards = scene.represent(&Rules(rules), &bytes);
        let mut expected =
            vec![0; bytes.len() / scene.dtype.step_bytes() as usize * to.step_bytes() as usize];
        cast(scene.dtype, &bytes, to, &mut expected).unwrap();
        for one in &shards {
            compare(one, "w", &scene.shape, &expected);
        }
    }
}
