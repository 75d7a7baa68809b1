//! Configs and specs that make no sense are refused, never a panic.

use proptest::prelude::*;
use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec};
use weightcast_fleet::{Cluster, Spec, movement};

const KEYS: [&str; 32] = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "n_routed_experts",
    "n_shared_experts",
    "moe_intermediate_size",
    "first_k_dense_replace",
    "num_nextn_predict_layers",
    "index_n_heads",
    "index_head_dim",
    "decoder_sparse_step",
    "moe_layer_freq",
    "n_positions",
    "tie_word_embeddings",
    "text_config",
    "vision_config",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "full_attention_interval",
    "layer_types",
];

const FORM_KEYS: [&str; 7] = [
    "weight_block_size",
    "modules_to_not_convert",
    "fmt",
    "bits",
    "config_groups",
    "scale_fmt",
    "quant_algo",
];

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..9u64).prop_map(|n| json!(n)),
        (0..5000u64).prop_map(|n| json!(n)),
        any::<u64>().prop_map(|n| json!(n)),
        Just(json!(null)),
        Just(json!("many")),
        Just(json!([1, 2])),
    ]
}

/// Models with a tower, which have no rules in FP8.
const SEEING: [&str; 6] =
    ["qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "gemma3", "qwen3_5", "qwen3_5_moe"];

/// Others, of which MiniMax-M2 alone has some.
const PLAIN: [&str; 3] = ["gemma3_text", "minimax_m2", "qwen3_next"];

const TOWER_KEYS: [&str; 11] = [
    "depth",
    "hidden_size",
    "num_heads",
    "intermediate_size",
    "spatial_merge_size",
    "out_hidden_size",
    "patch_size",
    "temporal_patch_size",
    "num_position_embeddings",
    "deepstack_visual_indexes",
    "image_size",
];

fn models() -> impl Strategy<Value = &'static str> {
    let known =
        ["llama", "qwen3_moe", "deepseek_v3", "glm4", "glm_moe_dsa", "gpt2", "gpt_oss", "x"];
    prop::sample::select([&known[..], &SEEING, &PLAIN].concat())
}

const SPECS: [&str; 8] = [
    "vllm:tp=2",
    "vllm:tp=4,ep=4,redundant=3,quant=fp8,mtp=1",
    "sglang:tp=4,ep=2,attn_dp=2",
    "megatron:tp=2,pp=2,ep=2,dp=2,mtp=1",
    "fsdp2:dp=3,tp=2",
    "fsdp_ep:fsdp=2,ep=2",
    "ddp:dp=1",
    "hsdp:replicate=2,shard=3",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_config_panics(
        model_type in models(),
        set in prop::collection::vec((0..KEYS.len(), values()), 0..6),
        tower in prop::collection::vec((0..TOWER_KEYS.len(), values()), 0..4),
        block in values(),
    ) {
        let mut config = json!({
            "model_type": model_type, "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "topk_method": "noaux_tc", "dtype": "bfloat16",
            "quantization_config": { "quant_method": "fp8", "weight_block_size": [block, 16] },
        });
        match model_type {
            "gpt2" => config["quantization_config"] = Value::Null,
            "gpt_oss" => config["quantization_config"] = json!({ "quant_method": "mxfp4" }),
            "minimax_m2" => {}
            plain if PLAIN.contains(&plain) => config["quantization_config"] = Value::Null,
            seeing if SEEING.contains(&seeing) => {
                config["quantization_config"] = Value::Null;
                let mut part = json!({
                    "depth": 2, "hidden_size": 8, "num_heads": 2, "intermediate_size": 8,
                    "spatial_merge_size": 2, "out_hidden_size": 32, "patch_size": 2,
                    "temporal_patch_size": 2, "num_position_embeddings": 4, "image_size": 8,
                    "vision_use_head": false,
                });
                if seeing.starts_with("qwen3_vl") {
                    part["deepstack_visual_indexes"] = json!([0]);
                }
                for (key, value) in tower {
                    part[TOWER_KEYS[key]] = value;
                }
                config["vision_config"] = part;
            }
            _ => {}
        }
        for (key, value) in set {
            config[KEYS[key]] = value;
        }
        let config = Config::parse(&config.to_string()).expect("an object");
        let Ok(model) = ModelSpec::of(&config) else { return Ok(()) };
        // What is listed tensor by tensor takes as long as there are tensors.
        prop_assume!(model.families.iter().map(|f| f.count()).sum::<u64>() < 10_000);
        for spec in SPECS {
            let spec: Spec = spec.parse().expect("a spec");
            if let Ok(cluster) = Cluster::new(&model, &spec) {
                for rank in [0, cluster.ranks() - 1, cluster.ranks()] {
                    let _ = cluster.layout(rank);
                }
                let _ = movement::plan(&cluster, &cluster, 1, 2);
            }
        }
    }

    /// Whatever is said of quantisation: a model or a reason, never a panic.
    #[test]
    fn no_quantisation_panics(
        model_type in models(),
        method in prop::sample::select(vec!["fp8", "mxfp4", "awq", ""]),
        keys in prop::collection::vec((prop::sample::select(FORM_KEYS.to_vec()), values()), 0..4),
        within in any::<bool>(),
    ) {
        let mut said = json!({ "quant_method": method, "weight_block_size": [128, 128] });
        for (key, value) in keys {
            said[key] = value;
        }
        let mut config = json!({
            "model_type": model_type, "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_local_experts": 2, "dtype": "bfloat16", "n_positions": 8,
        });
        match within {
            true => config["text_config"] = json!({ "quantization_config": said }),
            false => config["quantization_config"] = said,
        }
        let model = Config::parse(&config.to_string()).and_then(|config| ModelSpec::of(&config));
        let laid_out = ["fp8", "mxfp4"].contains(&method) && !within;
        prop_assert!(laid_out || model.is_err(), "{}", config);
    }

    #[test]
    fn no_spec_panics(text in "(vllm|sglang|ddp|fsdp2|hsdp|fsdp_ep|megatron|x)?:?([a-z_]{0,6}=?[0-9+a-z]{0,5},?){0,4}") {
        let _ = text.parse::<Spec>();
    }
}

#[test]
fn a_bad_spec_is_told_what_is_allowed() {
    let error = |text: &str| text.parse::<Spec>().expect_err("bad").to_string();
    assert!(error("vlm:tp=1").contains("allowed are vllm, sglang"));
    assert!(error("fsdp2:ep=1").contains("fsdp2 has no key \"ep\"; allowed are dp, tp"));
    assert!(error("vllm:tp=0").contains("tp=0 is not at least 1"));
    assert!(error("vllm:tp=x").contains("tp=x is not a number"));
    assert!(error("vllm:tp=1,tp=2").contains("given once"));
    assert!(error("vllm:placement=best").contains("linear or round_robin"));
    assert!(error("megatron:pp_layers=1+x").contains("24+24+22"));
    assert!(error("sglang:quant=int4").contains("fp8 or none"));
}
