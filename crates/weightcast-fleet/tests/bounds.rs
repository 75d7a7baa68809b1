//! The ends of what is given: ranks, blocks, heads of a checkpoint.

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec, fill};
use weightcast_fleet::movement::{self, RankRoute};
use weightcast_fleet::{Cluster, RuleError};

fn config(changes: Value) -> Value {
    let mut config = json!({
        "model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 64, "hidden_size": 16,
        "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 8, "head_dim": 2, "n_routed_experts": 8, "n_group": 2,
        "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 1,
    });
    for (key, value) in changes.as_object().expect("changes") {
        config[key] = value.clone();
    }
    config
}

fn model(config: &Value) -> ModelSpec {
    ModelSpec::of(&Config::parse(&config.to_string()).expect("an object")).expect("a model")
}

fn cluster(config: &Value, spec: &str) -> Cluster {
    Cluster::new(&model(config), &spec.parse().expect("a spec")).expect("a cluster")
}

#[test]
fn ranks_are_numbered_up_to_their_count() {
    for (spec, count) in [
        ("ddp:dp=1", 1),
        ("ddp:dp=3", 3),
        ("fsdp2:dp=3,tp=2", 6),
        ("hsdp:replicate=2,shard=3", 6),
        ("fsdp_ep:fsdp=2,pp=2,ep=2", 8),
        ("megatron:tp=2,pp=2,cp=1,ep=2,dp=2", 8),
        ("vllm:tp=2,dp=2", 4),
        ("sglang:tp=4,ep=2", 4),
    ] {
        let cluster = cluster(&config(json!({})), spec);
        assert_eq!(cluster.ranks(), count, "{spec}");
        assert!(cluster.layout(count - 1).is_ok(), "{spec}");
        for rank in [count, count + 1, u64::MAX] {
            let refused = cluster.layout(rank);
            let right = matches!(refused, Err(RuleError::Rank { rank: r, ranks, .. })
                if (r, ranks) == (rank, count));
            assert!(right, "{spec} {rank}: {refused:?}");
        }
    }
}

#[test]
fn blocks_may_be_smaller_and_larger_than_a_weight() {
    for rows in [1, 2, 16, 40] {
        for columns in [1, 2, 16, 40] {
            let said = json!({"quant_method": "fp8", "weight_block_size": [rows, columns]});
            let model = model(&config(json!({"quantization_config": said})));
            let shape = |end: &str| {
                let found = model.families.iter().find(|f| f.name.ends_with(end));
                found.expect("a family").shape.clone()
            };
            let weight = shape("mlp.down_proj.weight");
            let blocks =
                |size: u64, side: u64| (0..size).step_by(side.max(1) as usize).count() as u64;
            let wanted = [blocks(weight[0], rows), blocks(weight[1], columns)];
            assert_eq!(shape("mlp.down_proj.weight_scale_inv"), wanted, "{rows} {columns}");
        }
    }
}

#[test]
fn a_checkpoint_has_a_head_unless_it_is_tied() {
    for model_type in ["gpt2", "llama", "qwen3", "deepseek_v3", "gpt_oss"] {
        for tied in [json!(true), json!(false), json!(null)] {
            let config = config(json!({
                "model_type": model_type, "tie_word_embeddings": tied, "n_positions": 8,
            }));
            let heads =
                model(&config).families.iter().filter(|f| f.name == "lm_head.weight").count();
            assert_eq!(heads, usize::from(tied != true), "{model_type} {tied}");
        }
    }
}

/// What a rank holds comes to it, whatever a block is: weights and the scales made of them.
#[test]
fn every_element_of_a_rank_has_a_route() {
    for (trainer, engine) in [
        ("fsdp2:dp=3", "vllm:tp=2"),
        ("fsdp2:dp=2", "vllm:tp=2,ep=2,quant=fp8,block=4"),
        ("ddp:dp=2", "sglang:tp=2,quant=fp8,block=8"),
        ("megatron:tp=2,dp=2,ep=2", "sglang:tp=4,ep=4,redundant=4,quant=fp8,block=2"),
    ] {
        let config = config(json!({}));
        let (source, target) = (cluster(&config, trainer), cluster(&config, engine));
        for rank in 0..target.ranks() {
            let routes = movement::routes(&source, &target, Some(rank), None).expect("routes");
            for record in target.layout(rank).expect("a layout").records {
                let layers = record.layers.map_or(vec![None], |(a, b)| (a..=b).map(Some).collect());
                for layer in layers {
                    let name = fill(&record.name, layer, None);
                    let here = routes.iter().filter(|r: &&RankRoute| r.parameter == name);
                    let moved: u64 = here.map(|route| route.bytes).sum();
                    assert_eq!(moved, record.piece_bytes(), "{trainer} {engine} {rank} {name}");
                }
            }
        }
    }
}

/// Whole experts: their rows are whole blocks, whatever their columns are.
#[test]
fn sglang_counts_the_rows_of_a_block() {
    for (rows, columns, right) in
        [(8, 8, true), (8, 16, true), (16, 8, false), (16, 16, false), (24, 16, true)]
    {
        let said = json!({"quant_method": "fp8", "weight_block_size": [rows, columns]});
        let config = config(json!({"moe_intermediate_size": 24, "quantization_config": said}));
        let found = cluster(&config, "sglang:tp=1").layout(0);
        assert_eq!(found.is_ok(), right, "{rows} {columns}: {found:?}");
        assert!(cluster(&config, "vllm:tp=1").layout(0).is_ok(), "{rows} {columns}");
    }
}
