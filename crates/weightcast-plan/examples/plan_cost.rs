//! What planning costs: prints milliseconds for a small real model and a large made-up one.
//!
//! `cargo run --release -p weightcast-plan --example plan_cost`
// An example may look at the clock; the library may not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Instant;

use weightcast_plan::{DType, Layout, LayoutBuilder, LayoutError, Part, cells, plan, prove, runs};

/// Column-parallel, row-parallel or replicated: the dimension that tensor parallelism splits.
struct Weight {
    name: String,
    shape: Vec<u64>,
    split: Option<usize>,
}

fn weight(name: String, shape: &[u64], split: Option<usize>) -> Weight {
    Weight { name, shape: shape.to_vec(), split }
}

/// Qwen2.5-0.5B: 290 tensors.
fn dense() -> Vec<Weight> {
    let mut weights = vec![
        weight("model.embed_tokens.weight".into(), &[151_936, 896], Some(0)),
        weight("model.norm.weight".into(), &[896], None),
    ];
    for layer in 0..24 {
        let mut add = |name: &str, shape: &[u64], split| {
            weights.push(weight(format!("model.layers.{layer}.{name}"), shape, split));
        };
        for (x, rows) in [("q", 896), ("k", 128), ("v", 128)] {
            add(&format!("self_attn.{x}_proj.weight"), &[rows, 896], Some(0));
            add(&format!("self_attn.{x}_proj.bias"), &[rows], Some(0));
        }
        add("self_attn.o_proj.weight", &[896, 896], Some(1));
        add("mlp.gate_proj.weight", &[4864, 896], Some(0));
        add("mlp.up_proj.weight", &[4864, 896], Some(0));
        add("mlp.down_proj.weight", &[896, 4864], Some(1));
        add("input_layernorm.weight", &[896], None);
        add("post_attention_layernorm.weight", &[896], None);
    }
    weights
}

/// Many experts: 20,000 tensors.
fn experts() -> Vec<Weight> {
    let mut weights = Vec::new();
    for layer in 0..50 {
        for expert in 0..400 {
            let (shape, split): (&[u64], _) = match expert % 3 {
                2 => (&[2048, 768], Some(1)),
                _ => (&[768, 2048], Some(0)),
            };
            let name = format!("model.layers.{layer}.mlp.experts.{expert}.weight");
            weights.push(weight(name, shape, split));
        }
    }
    weights
}

/// One rank's parameters, all split along `dim` of each weight that `split` chooses.
fn layout(
    weights: &[Weight],
    rank: u64,
    ranks: u64,
    split: impl Fn(&Weight) -> Option<usize>,
) -> Result<Layout, LayoutError> {
    let mut builder = LayoutBuilder::new();
    for w in weights {
        let whole = Part::new(w.name.as_str()).shape(w.shape.as_slice());
        let part = match split(w) {
            Some(dim) => whole.dim(dim, rank, ranks),
            None => whole,
        };
        let lens = part.slice(&w.shape)?.len;
        builder.add(w.name.as_str(), DType::BF16, &lens, vec![part], 0);
    }
    builder.build()
}

fn measure(title: &str, weights: &[Weight]) -> Result<(), Box<dyn std::error::Error>> {
    let mut lap = Instant::now();
    let mut say = |what: &str| {
        println!("{title:>8}  {what:<34} {:>9.2} ms", lap.elapsed().as_secs_f64() * 1e3);
        lap = Instant::now();
    };
    let fsdp: Result<Vec<Layout>, _> = (0..4).map(|r| layout(weights, r, 4, |_| Some(0))).collect();
    let tp: Result<Vec<Layout>, _> = (0..2).map(|r| layout(weights, r, 2, |w| w.split)).collect();
    let (fsdp, tp) = (fsdp?, tp?);
    let (sources, targets) = (Vec::from_iter(&fsdp), Vec::from_iter(&tp));
    say("build 4 FSDP and 2 TP layouts");
    let digest = targets[0].digest();
    say("digest of one layout");
    let mine = cells(&targets, 0);
    say("cells of one TP rank");
    let plan = plan(targets[0], &mine, &sources)?;
    say("plan 4 FSDP -> 1 of 2 TP");
    prove(targets[0], &mine, &sources, &plan)?;
    say("prove it");
    let runs = runs(sources[0], &cells(&sources, 0)).len();
    say("cells and runs of one FSDP rank");
    println!(
        "{title:>8}  {} tensors, {} copies, {} bytes, {runs} runs, layout {digest}",
        weights.len(),
        plan.copies.len(),
        plan.bytes(),
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    measure("dense", &dense())?;
    measure("experts", &experts())
}
