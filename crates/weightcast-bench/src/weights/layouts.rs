//! The layouts of the cases: whole, by rows, tensor-parallel with fused projections.

use std::ops::Range;

use anyhow::Result;
use weightcast::plan::{DType, Layout, LayoutBuilder, Part, chunk};

use super::qwen::{HIDDEN, INTERMEDIATE, KEY_VALUE, QUERY, Qwen, prefix};

/// All tensors are bfloat16.
const ELEMENT: u64 = 2;
/// Elements of a row of an even tensor.
const ROW: u64 = 1024;

/// Tensors of equal size: names and shapes.
pub(crate) fn even(tensors: u64, bytes: u64) -> Vec<(String, Vec<u64>)> {
    let shape = vec![bytes / ELEMENT / ROW, ROW];
    (0..tensors).map(|i| (format!("tensors.{i}.weight"), shape.clone())).collect()
}

/// Chunk `index` of `of` of every tensor's rows, as an FSDP rank holds it, but the first `replicated` tensors
/// whole. Chunk 0 of 1 is the whole.
pub(crate) fn rows(
    tensors: &[(String, Vec<u64>)],
    index: u64,
    of: u64,
    replicated: usize,
) -> Result<Layout> {
    let mut builder = LayoutBuilder::new();
    for (number, (name, shape)) in tensors.iter().enumerate() {
        let cut = (number >= replicated).then_some(0);
        add(&mut builder, name, &[(name, shape, cut)], index, of);
    }
    Ok(builder.build()?)
}

/// What some tensor-parallel ranks of an inference engine hold, in one layout: fused projections by
/// rows, output projections by columns, norms whole and once.
pub(crate) fn tensor_parallel(qwen: &Qwen, ranks: Range<u64>, of: u64) -> Result<Layout> {
    let mut builder = LayoutBuilder::new();
    let mut hold = |name: &str, parts: &[(&str, &[u64], Option<usize>)]| {
        let whole = parts.iter().all(|(_, _, dim)| dim.is_none());
        for rank in ranks.clone().take(if whole { 1 } else { usize::MAX }) {
            add(&mut builder, name, parts, rank, of);
        }
    };
    let embedding = [qwen.vocabulary, HIDDEN];
    hold("embed_tokens", &[("model.embed_tokens.weight", &embedding, Some(0))]);
    hold("norm", &[("model.norm.weight", &[HIDDEN], None)]);
    for layer in 0..qwen.layers {
        let prefix = prefix(layer);
        let named = |name: &str| format!("{prefix}{name}");
        for norm in ["input_layernorm.weight", "post_attention_layernorm.weight"] {
            hold(&named(norm), &[(&named(norm), &[HIDDEN], None)]);
        }
        for (kind, columns) in [("weight", &[HIDDEN][..]), ("bias", &[])] {
            let part = |x: &str, rows: u64| {
                (named(&format!("self_attn.{x}_proj.{kind}")), [&[rows], columns].concat())
            };
            let parts = [part("q", QUERY), part("k", KEY_VALUE), part("v", KEY_VALUE)];
            let parts = parts.each_ref().map(|(name, shape)| (&**name, &**shape, Some(0)));
            hold(&named(&format!("self_attn.qkv_proj.{kind}")), &parts);
        }
        let (gate, up) = (named("mlp.gate_proj.weight"), named("mlp.up_proj.weight"));
        let shape = [INTERMEDIATE, HIDDEN];
        hold(&named("mlp.gate_up"), &[(&gate, &shape, Some(0)), (&up, &shape, Some(0))]);
        let (output, down) = (named("self_attn.o_proj.weight"), named("mlp.down_proj.weight"));
        hold(&output, &[(&output, &[HIDDEN, QUERY], Some(1))]);
        hold(&down, &[(&down, &[HIDDEN, INTERMEDIATE], Some(1))]);
    }
    Ok(builder.build()?)
}

/// Adds a buffer with its parts below each other. Each part is cut along its dimension, or whole.
fn add<N: AsRef<str>, S: AsRef<[u64]>>(
    builder: &mut LayoutBuilder,
    buffer: &str,
    parts: &[(N, S, Option<usize>)],
    index: u64,
    of: u64,
) {
    let mut local: Vec<u64> = Vec::new();
    let cut = parts.iter().map(|(name, global, dim)| {
        let (name, global) = (name.as_ref(), global.as_ref());
        let mut shape = global.to_vec();
        let mut part = Part::new(name).shape(global);
        if let Some(dim) = *dim {
            let range = chunk(global[dim], index, of);
            shape[dim] = range.end - range.start;
            part = part.dim(dim, index, of);
        }
        match local.first_mut() {
            Some(rows) => *rows += shape[0],
            None => local = shape,
        }
        part
    });
    let cut = cut.collect();
    builder.add(buffer, DType::BF16, &local, cut, 0);
}
