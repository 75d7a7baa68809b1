//! Random models, random groups that hold them, and memory in which every byte has its own name.
#![allow(dead_code)] // each test program uses some of it

use weightcast_plan::{DType, Entry, Layout, Mesh, Placement, Slice, Tensor, local_slices};

/// SplitMix64: seeded, the same everywhere.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A model: tensors, and for each whose content it has (a tied weight has an earlier one's).
pub(crate) struct Model {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) content: Vec<usize>,
}

impl Model {
    pub(crate) fn random(rng: &mut Rng) -> Model {
        let mut model = Model { tensors: Vec::new(), content: Vec::new() };
        for at in 0..1 + rng.below(5) as usize {
            let name = format!("t{}.w{at}", rng.below(100));
            let tied = at > 0 && rng.chance(25);
            let (tensor, content) = if tied {
                let twin = model.content[rng.below(at as u64) as usize];
                let like: &Tensor = &model.tensors[twin];
                (Tensor::new(name, like.dtype(), like.shape()).unwrap(), twin)
            } else {
                (random_tensor(rng, name), at)
            };
            model.tensors.push(tensor);
            model.content.push(content);
        }
        model
    }

    /// The name of a byte of a tensor.
    pub(crate) fn byte(&self, tensor: usize, position: u64) -> u64 {
        ((self.content[tensor] as u64) << 40) | position
    }

    pub(crate) fn find(&self, name: &str) -> usize {
        self.tensors.iter().position(|t| t.name() == name).unwrap()
    }
}

fn random_tensor(rng: &mut Rng, name: String) -> Tensor {
    let dtypes: Vec<DType> = DType::all().collect();
    let mut dtype = dtypes[rng.below(dtypes.len() as u64) as usize];
    let mut shape: Vec<u64> =
        (0..rng.below(5)).map(|_| if rng.chance(4) { 0 } else { 1 + rng.below(6) }).collect();
    match shape.last_mut() {
        Some(last) => *last *= dtype.step_elements(),
        None if dtype == DType::F4 => dtype = DType::F32,
        None => {}
    }
    Tensor::new(name, dtype, shape).unwrap()
}

/// A model, a group that has it, a group that wants it.
pub(crate) fn scene(seed: u64) -> (Rng, Model, Vec<Layout>, Vec<Layout>) {
    let mut rng = Rng(mix(seed));
    let model = Model::random(&mut rng);
    let sources = holders(&mut rng, &model);
    let targets = holders(&mut rng, &model);
    (rng, model, sources, targets)
}

/// One group, or two that cut the same tensors differently.
fn holders(rng: &mut Rng, model: &Model) -> Vec<Layout> {
    let mut layouts = random_group(rng, model);
    if rng.chance(40) {
        layouts.extend(random_group(rng, model));
    }
    layouts
}

/// What one shard is to hold: a box, and every tensor whose it is.
struct Item {
    tensors: Vec<usize>,
    slice: Slice,
}

/// The layouts of a group that holds the whole model between its shards.
pub(crate) fn random_group(rng: &mut Rng, model: &Model) -> Vec<Layout> {
    let shards = 1 + rng.below(8) as usize;
    let mut items: Vec<Vec<Item>> = (0..shards).map(|_| Vec::new()).collect();
    let tie = rng.chance(50);
    for tensor in 0..model.tensors.len() {
        let mut names = vec![tensor];
        if tie {
            if model.content[tensor] != tensor {
                continue;
            }
            names = (0..model.tensors.len()).filter(|&t| model.content[t] == tensor).collect();
        }
        for (shard, slice) in spread(rng, &model.tensors[tensor], shards) {
            items[shard].push(Item { tensors: names.clone(), slice });
        }
    }
    items.into_iter().map(|items| lay(rng, model, items)).collect()
}

/// Which shard holds which boxes of a tensor.
fn spread(rng: &mut Rng, tensor: &Tensor, shards: usize) -> Vec<(usize, Slice)> {
    // In steps, so that nothing splits a byte.
    let step = tensor.dtype().step_elements();
    let mut shape = tensor.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last /= step;
    }
    let mut spread = if rng.chance(50) {
        placed(rng, &shape, shards)
    } else {
        let mut boxes = Vec::new();
        cut(rng, Slice::full(&shape), &mut boxes);
        let mut held = Vec::new();
        for slice in boxes {
            let first = rng.below(shards as u64) as usize;
            for copy in 0..(1 + rng.below(3) as usize).min(shards) {
                held.push(((first + copy) % shards, slice.clone()));
            }
        }
        held
    };
    for (_, slice) in &mut spread {
        if let (Some(start), Some(len)) = (slice.start.last_mut(), slice.len.last_mut()) {
            (*start, *len) = (*start * step, *len * step);
        }
    }
    spread
}

/// By placements on a mesh of that many ranks.
fn placed(rng: &mut Rng, shape: &[u64], shards: usize) -> Vec<(usize, Slice)> {
    let across = (1..=shards as u64).filter(|n| (shards as u64).is_multiple_of(*n));
    let across: Vec<u64> = across.collect();
    let first = across[rng.below(across.len() as u64) as usize];
    let mesh = Mesh::new([("a", first), ("b", shards as u64 / first)]).unwrap();
    let any = |rng: &mut Rng| {
        if shape.is_empty() || rng.chance(20) {
            return Placement::Replicate;
        }
        let dim = rng.below(shape.len() as u64) as usize;
        match rng.below(3) {
            0 => Placement::StridedShard { dim, split_factor: 1 + rng.below(4) },
            _ => Placement::Shard { dim },
        }
    };
    let placements = [any(rng), any(rng)];
    let mut held = Vec::new();
    for rank in 0..shards {
        match local_slices(shape, &mesh, &placements, rank as u64) {
            Ok(slices) => held.extend(slices.into_iter().map(|s| (rank, s))),
            Err(_) => return vec![(0, Slice::full(shape))], // interleaved twice
        }
    }
    held
}

/// Cuts a box at random.
fn cut(rng: &mut Rng, slice: Slice, boxes: &mut Vec<Slice>) {
    let dims: Vec<usize> = (0..slice.ndim()).filter(|&d| slice.len[d] > 1).collect();
    if dims.is_empty() || rng.chance(40) {
        boxes.push(slice);
        return;
    }
    let d = dims[rng.below(dims.len() as u64) as usize];
    let at = 1 + rng.below(slice.len[d] - 1);
    let (mut low, mut high) = (slice.clone(), slice);
    low.len[d] = at;
    high.start[d] += at;
    high.len[d] -= at;
    cut(rng, low, boxes);
    cut(rng, high, boxes);
}

/// Puts boxes into buffers: packed, padded, permuted, side by side, several to a buffer.
fn lay(rng: &mut Rng, model: &Model, mut items: Vec<Item>) -> Layout {
    rng.shuffle(&mut items);
    let mut tensors: Vec<usize> = items.iter().flat_map(|i| i.tensors.clone()).collect();
    tensors.sort_unstable();
    tensors.dedup();
    rng.shuffle(&mut tensors);
    // Boxes that share their rows, like the columns of a fused weight.
    let mut fused: Vec<Vec<Item>> = Vec::new();
    for item in items {
        match fused.last_mut() {
            Some(last) if fits_beside(model, &last[0], &item) && rng.chance(60) => last.push(item),
            _ => fused.push(vec![item]),
        }
    }
    let (mut buffers, mut entries) = (vec![rng.below(8)], Vec::new());
    for items in fused {
        if rng.chance(50) {
            buffers.push(0);
        }
        let buffer = buffers.len() - 1;
        let gap = if rng.chance(30) { rng.below(5) } else { 0 };
        let width: u64 = items.iter().map(|i| row_bytes(model, i)).sum();
        let strides = strides(rng, model, &items[0], width + gap);
        let mut offset = buffers[buffer] + gap;
        for item in &items {
            for tensor in &item.tensors {
                let tensor = tensors.iter().position(|t| t == tensor).unwrap() as u32;
                let (slice, strides) = (item.slice.clone(), strides.clone());
                entries.push(Entry { tensor, slice, buffer: buffer as u32, offset, strides });
            }
            buffers[buffer] = buffers[buffer].max(end(model, item, offset, &strides));
            offset += row_bytes(model, item);
        }
        buffers[buffer] = buffers[buffer].max(offset);
        buffers[buffer] += if rng.chance(20) { rng.below(4) } else { 0 };
    }
    rng.shuffle(&mut entries);
    let tensors = tensors.iter().map(|&t| model.tensors[t].clone()).collect();
    Layout::new(buffers, tensors, entries).unwrap()
}

/// Bytes along the last dimension.
fn row_bytes(model: &Model, item: &Item) -> u64 {
    item.slice.len.last().unwrap_or(&1) * bits(model, item) / 8
}

fn bits(model: &Model, item: &Item) -> u64 {
    model.tensors[item.tensors[0]].dtype().bits()
}

/// Whether two boxes can share rows.
fn fits_beside(model: &Model, a: &Item, b: &Item) -> bool {
    let outer = |i: &Item| i.slice.len.split_last().map(|(_, outer)| outer.to_vec());
    a.slice.ndim() > 1 && outer(a) == outer(b) && bits(model, a) == bits(model, b)
}

/// Strides of rows of `width` bytes, the outer dimensions in any order.
fn strides(rng: &mut Rng, model: &Model, item: &Item, width: u64) -> Vec<u64> {
    let Some((_, outer)) = item.slice.len.split_last() else { return Vec::new() };
    let mut strides = vec![0; outer.len() + 1];
    strides[outer.len()] = model.tensors[item.tensors[0]].dtype().step_bytes();
    let mut order: Vec<usize> = (0..outer.len()).rev().collect();
    if rng.chance(25) {
        rng.shuffle(&mut order);
    }
    let mut reach = width;
    for d in order {
        strides[d] = reach;
        reach = reach * outer[d].max(1) + if rng.chance(10) { rng.below(4) } else { 0 };
    }
    strides
}

/// One past the last byte of a box.
fn end(model: &Model, item: &Item, offset: u64, strides: &[u64]) -> u64 {
    if item.slice.is_empty() {
        return offset;
    }
    let outer = item.slice.len.iter().zip(strides).take(item.slice.ndim().saturating_sub(1));
    offset + outer.map(|(n, stride)| (n - 1) * stride).sum::<u64>() + row_bytes(model, item)
}

/// The name of bytes that belong to nothing.
pub(crate) const PADDING: u64 = u64::MAX;

/// A shard's buffers, each byte with its name: by the definition of an entry, element by element.
pub(crate) fn memory(model: &Model, layout: &Layout) -> Vec<Vec<u64>> {
    let mut memory = blank(layout);
    for (number, entry) in layout.entries().enumerate() {
        let tensor = model.find(layout.tensor_of(number as u32).name());
        for (index, position) in bytes_of(&model.tensors[tensor], &entry.slice) {
            let steps = index.iter().zip(&entry.strides);
            let bits = model.tensors[tensor].dtype().bits();
            let (steps, within) =
                (steps.map(|(i, s)| i * s).sum::<u64>(), position % (bits / 8).max(1));
            let at = (entry.offset + steps + within) as usize;
            let slot = &mut memory[entry.buffer as usize][at];
            assert!(*slot == PADDING || *slot == model.byte(tensor, position), "entries clash");
            *slot = model.byte(tensor, position);
        }
    }
    memory
}

/// Buffers before anything is written.
pub(crate) fn blank(layout: &Layout) -> Vec<Vec<u64>> {
    layout.buffers().iter().map(|&bytes| vec![PADDING; bytes as usize]).collect()
}

/// Every byte of a slice: its index within the slice in steps, and its global position.
pub(crate) fn bytes_of(tensor: &Tensor, slice: &Slice) -> Vec<(Vec<u64>, u64)> {
    let (pair, step) = (tensor.dtype().step_elements(), tensor.dtype().step_bytes());
    let mut points = vec![(Vec::new(), 0u64)];
    for d in 0..slice.ndim() {
        let unit = if d + 1 == slice.ndim() { pair } else { 1 };
        let extend = |(index, number): &(Vec<u64>, u64)| -> Vec<(Vec<u64>, u64)> {
            let one = |i: u64| {
                let at = slice.start[d] / unit + i;
                let index = index.iter().copied().chain([i]).collect();
                (index, number * (tensor.shape()[d] / unit) + at)
            };
            (0..slice.len[d] / unit).map(one).collect()
        };
        points = points.iter().flat_map(extend).collect();
    }
    let bytes = |(index, number): (Vec<u64>, u64)| {
        (0..step).map(move |b| (index.clone(), number * step + b)).collect::<Vec<_>>()
    };
    points.into_iter().flat_map(bytes).collect()
}
