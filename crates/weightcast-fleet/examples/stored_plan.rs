//! What a stored plan costs beside planning: one rank of 256 to 256, by the rules of this crate.
//!
//! `cargo run --release -p weightcast-fleet --example stored_plan -- CONFIG.json SOURCE TARGET [RANK]`
// An example may look at the clock and at files; the library may not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use weightcast_fleet::model::{Config, ModelSpec, fill};
use weightcast_fleet::{Cluster, ParameterPiece, Record};
use weightcast_plan::stored::{PlanName, decode, encode, restore};
use weightcast_plan::{Entry, Layout, Tensor, cells, plan};

/// Global shapes of the published tensors.
type Shapes = BTreeMap<String, Vec<u64>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| arguments.next().ok_or(format!("which {what}?"));
    let model = ModelSpec::of(&Config::parse(&std::fs::read_to_string(next("config")?)?)?)?;
    let (from, to) = (next("source")?.parse()?, next("target")?.parse()?);
    let (from, to) = (Cluster::new(&model, &from)?, Cluster::new(&model, &to)?);
    let rank = next("rank").map_or(Ok(to.ranks() - 1), |rank| rank.parse())?;
    let shapes: Shapes =
        model.families.iter().flat_map(|f| f.names().map(|n| (n, f.shape.clone()))).collect();
    let layouts = |cluster: &Cluster| -> Result<Vec<Layout>, Box<dyn Error>> {
        (0..cluster.ranks()).map(|rank| layout(cluster, rank, &shapes)).collect()
    };
    let (from, to) = (layouts(&from)?, layouts(&to)?);
    let (from, to): (Vec<&Layout>, Vec<&Layout>) = (from.iter().collect(), to.iter().collect());
    let names: Vec<_> = from.iter().map(|source| source.digest().0).collect();
    let (target, cells) = (to[rank as usize], cells(&to, rank as usize));
    let (mut laps, mut lap) = (Vec::new(), Instant::now());
    let mut stop = |what: &'static str| {
        laps.push((what, lap.elapsed().as_secs_f64() * 1e3));
        lap = Instant::now();
    };
    let made = plan(target, &cells, &from)?;
    stop("plan");
    let name = PlanName::new(target, &cells, names.iter().copied());
    stop("name");
    let stored = encode(&made, &name);
    stop("encode");
    let decoded = decode(&stored, &name)?;
    stop("decode");
    let restored = restore(&stored, &name, target, &cells, &from)?;
    stop("decode and prove");
    assert!(made == decoded && made == restored);
    for (what, ms) in laps {
        println!("{what:>16} {ms:>9.2} ms");
    }
    let (count, bytes) = (made.copies.len(), stored.len());
    println!(
        "rank {rank}: {count} copies of {} sources, {} bytes to move",
        from.len(),
        made.bytes()
    );
    println!("{bytes} bytes stored, {:.2} a copy", bytes as f64 / count as f64);
    Ok(())
}

/// One rank's memory, a buffer for each parameter.
fn layout(cluster: &Cluster, rank: u64, shapes: &Shapes) -> Result<Layout, Box<dyn Error>> {
    let (mut buffers, mut tensors, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for record in &cluster.layout(rank)?.records {
        let layers = record.layers.map_or(vec![None], |(a, b)| (a..=b).map(Some).collect());
        for layer in layers {
            for piece in &record.pieces {
                let name = fill(&piece.tensor, layer, None);
                let shape = shapes.get(&name).ok_or(format!("no tensor {name}"))?.clone();
                let tensor = tensors.len() as u32;
                entries.push(entry(record, piece, tensor, buffers.len() as u32));
                tensors.push(Tensor::new(name, record.dtype, shape)?);
            }
            buffers.push(record.bytes());
        }
    }
    let mut numbers = BTreeMap::new();
    let mut kept: Vec<Tensor> = Vec::new();
    for entry in &mut entries {
        let tensor = &tensors[entry.tensor as usize];
        entry.tensor = *numbers.entry(tensor.name()).or_insert_with(|| {
            kept.push(tensor.clone());
            kept.len() as u32 - 1
        });
    }
    Ok(Layout::new(buffers, kept, entries)?)
}

/// Where a piece lies in a packed local tensor, which may be a stack of experts.
fn entry(record: &Record, piece: &ParameterPiece, tensor: u32, buffer: u32) -> Entry {
    let bytes = record.dtype.bits() / 8;
    let dims = piece.slice.ndim();
    let each = &record.shape[usize::from(piece.target_index.is_some())..];
    let stride = |d: usize| each[d + 1..].iter().product::<u64>() * bytes;
    let strides: Vec<u64> = (0..each.len()).map(stride).collect();
    let stack = each.iter().product::<u64>() * bytes * piece.target_index.unwrap_or(0);
    let start = strides.get(piece.target_dim).map_or(0, |s| s * piece.target_start);
    let strides = strides[strides.len() - dims..].to_vec();
    Entry { tensor, slice: piece.slice.clone(), buffer, offset: stack + start, strides }
}
