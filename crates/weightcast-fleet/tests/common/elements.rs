//! Small models on small clusters, element by element.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec, fill};
use weightcast_fleet::{Cluster, Record};
use weightcast_plan::{DType, Slice};

pub(crate) fn with(mut config: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().expect("changes") {
        config[key] = value.clone();
    }
    config
}

pub(crate) fn dense(changes: Value) -> Value {
    let config = json!({
        "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 70, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 2,
    });
    with(config, &changes)
}

pub(crate) fn sparse(changes: Value) -> Value {
    let config = json!({
        "model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 50, "hidden_size": 12,
        "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 8, "kv_lora_rank": 6, "qk_nope_head_dim": 3, "qk_rope_head_dim": 2,
        "v_head_dim": 2, "n_routed_experts": 8, "n_shared_experts": 1, "moe_intermediate_size": 16,
        "n_group": 2, "first_k_dense_replace": 1, "topk_method": "noaux_tc",
    });
    with(config, &changes)
}

pub(crate) fn cluster(config: &Value, spec: &str) -> Cluster {
    let model =
        Config::parse(&config.to_string()).and_then(|c| ModelSpec::of(&c)).expect("a model");
    Cluster::new(&model, &spec.parse().expect("a spec")).expect("a cluster")
}

/// What there is to move, from whom, to whom, and on what hosts.
pub(crate) fn scenes() -> Vec<(Value, &'static str, &'static str, u64, u64)> {
    vec![
        (dense(json!({})), "ddp:dp=2", "vllm:tp=2", 2, 4),
        (dense(json!({})), "fsdp2:dp=3", "vllm:tp=1,dp=4", 2, 8),
        (dense(json!({"tie_word_embeddings": true})), "fsdp2:dp=3,tp=2", "sglang:tp=4", 1, 2),
        (dense(json!({})), "hsdp:replicate=2,shard=3", "vllm:tp=8", 1, 3),
        (
            dense(json!({})),
            "megatron:tp=2,pp=3,dp=2,vocab_multiple=4",
            "sglang:tp=4,attn_dp=2",
            3,
            4,
        ),
        (dense(json!({})), "fsdp2:dp=2,dtype=fp32", "vllm:tp=2", 1, 1),
        (sparse(json!({})), "fsdp_ep:fsdp=2,ep=4", "vllm:tp=4,ep=4", 2, 8),
        (sparse(json!({})), "megatron:tp=2,ep=2,dp=2,vocab_multiple=4", "sglang:tp=4,ep=2", 2, 4),
        (sparse(json!({})), "fsdp2:dp=4", "vllm:tp=2,ep=2,quant=fp8,block=4", 2, 2),
        (sparse(json!({})), "fsdp2:dp=5", "sglang:tp=2,quant=fp8,block=2,redundant=2,ep=2", 1, 2),
    ]
}

pub(crate) type Element = (String, u64);

/// Elements of a box as numbers in row-major order of the tensor.
pub(crate) fn elements(slice: &Slice, shape: &[u64]) -> Vec<u64> {
    let mut all = vec![0];
    for (dim, size) in shape.iter().enumerate() {
        let range = slice.start[dim]..slice.end(dim);
        all = all.iter().flat_map(|&e| range.clone().map(move |i| e * size + i)).collect();
    }
    all
}

pub(crate) fn layers(record: &Record) -> Vec<Option<u64>> {
    match record.layers {
        None => vec![None],
        Some((first, last)) => (first..=last).map(Some).collect(),
    }
}

/// The boxes of a rank: tensor, box, local type.
pub(crate) fn boxes(cluster: &Cluster, rank: u64) -> Vec<(String, Slice, DType)> {
    let mut boxes = Vec::new();
    for record in &cluster.layout(rank).expect("a layout").records {
        for layer in layers(record) {
            let piece = |p: &weightcast_fleet::ParameterPiece| {
                (fill(&p.tensor, layer, None), p.slice.clone(), record.dtype)
            };
            boxes.extend(record.pieces.iter().map(piece));
        }
    }
    boxes
}

pub(crate) fn shapes(model: &ModelSpec) -> BTreeMap<String, Vec<u64>> {
    let of = |f: &weightcast_fleet::model::Family| {
        f.names().map(|name| (name, f.shape.clone())).collect::<Vec<_>>()
    };
    model.families.iter().flat_map(of).collect()
}

/// The blocks whose first element is in a box of a weight.
pub(crate) fn scales(slice: &Slice, block: (u64, u64)) -> Slice {
    let of = |dim: usize, side: u64| {
        let starts = (0..slice.end(dim)).filter(|at| at % side == 0 && *at >= slice.start[dim]);
        let blocks: Vec<u64> = starts.map(|at| at / side).collect();
        (blocks.first().copied().unwrap_or(0), blocks.len() as u64)
    };
    let (rows, columns) = (of(0, block.0), of(1, block.1));
    Slice::new([rows.0, columns.0], [rows.1, columns.1])
}

pub(crate) fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().sum()
}
