//! Linear attention between layers of attention, and norms over all heads: as vLLM's classes have them.

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ConfigError, ModelSpec};
use weightcast_fleet::{Cluster, RankLayout, Record, RuleError, movement};
use weightcast_plan::DType;

/// As Qwen3-Next-80B-A3B is published.
fn qwen3_next() -> Value {
    json!({
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "full_attention_interval": 4,
        "head_dim": 256, "hidden_size": 2048, "intermediate_size": 5120,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mlp_only_layers": [],
        "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 512,
        "num_hidden_layers": 48, "num_key_value_heads": 2, "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": false, "vocab_size": 151_936,
    })
}

/// As Qwen3.5-35B-A3B is published, with what decides shapes.
fn qwen35_moe() -> Value {
    json!({
        "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
        "tie_word_embeddings": false,
        "text_config": {
            "attn_output_gate": true, "dtype": "bfloat16", "full_attention_interval": 4,
            "head_dim": 256, "hidden_size": 2048, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "linear_value_head_dim": 128, "model_type": "qwen3_5_moe_text",
            "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 256,
            "num_hidden_layers": 40, "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 512, "vocab_size": 248_320,
        },
        "vision_config": {
            "deepstack_visual_indexes": [], "depth": 27, "hidden_size": 1152, "in_channels": 3,
            "intermediate_size": 4304, "num_heads": 16, "num_position_embeddings": 2304,
            "out_hidden_size": 2048, "patch_size": 16, "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    })
}

/// As MiniMax-M2 is published.
fn minimax_m2() -> Value {
    json!({
        "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2",
        "dtype": "bfloat16", "attention_bias": false, "head_dim": 128, "hidden_size": 3072,
        "intermediate_size": 1536, "num_attention_heads": 48, "num_key_value_heads": 8,
        "num_hidden_layers": 62, "num_local_experts": 256, "num_mtp_modules": 3,
        "use_routing_bias": true, "vocab_size": 200_064, "tie_word_embeddings": false,
        "quantization_config": {
            "activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
        },
    })
}

fn model(config: &Value) -> Result<ModelSpec, ConfigError> {
    Config::parse(&config.to_string()).and_then(|config| ModelSpec::of(&config))
}

fn layout(config: &Value, spec: &str, rank: u64) -> Result<RankLayout, RuleError> {
    Cluster::new(&model(config)?, &spec.parse().expect("a spec"))?.layout(rank)
}

fn find(layout: &RankLayout, name: &str) -> Record {
    layout.records.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("{name}")).clone()
}

/// Where each piece starts, its length, and where it lies.
fn pieces(record: &Record) -> Vec<(u64, u64, u64)> {
    let of = |p: &weightcast_fleet::ParameterPiece| {
        (p.slice.start[p.dim], p.slice.len[p.dim], p.target_start)
    };
    record.pieces.iter().map(of).collect()
}

/// Without the draft layers, which are published as `mtp.*`: 79.7 of the 81.3 thousand millions.
#[test]
fn a_published_checkpoint_has_as_many_elements() {
    assert_eq!(model(&qwen3_next()).expect("a model").bytes(false), 2 * 79_674_391_296);
}

#[test]
fn every_fourth_layer_has_attention_and_the_others_linear_attention() {
    let found = layout(&qwen3_next(), "vllm:tp=4", 3).expect("a layout");
    let of = |name: &str| -> Vec<u64> {
        let named = found.records.iter().filter(|r| r.name.contains(name));
        named.flat_map(|r| r.layers.map(|(a, b)| a..=b).expect("layers")).collect()
    };
    let (full, linear): (Vec<u64>, Vec<u64>) = (0..48).partition(|layer| layer % 4 == 3);
    assert_eq!((of("self_attn.qkv_proj.weight"), of("linear_attn.A_log")), (full, linear));
    // A query and its gate for each of 4 heads; one key and value, that two ranks share.
    let qkv = find(&found, "model.layers.{L}.self_attn.qkv_proj.weight");
    assert_eq!(pieces(&qkv), [(6144, 2048, 0), (256, 256, 2048), (256, 256, 2304)]);
    let convolution = find(&found, "model.layers.{L}.linear_attn.conv1d.weight");
    assert_eq!(convolution.shape, [2048, 1, 4]);
    let parts = [(1536, 512, 0), (3584, 512, 512), (7168, 1024, 1024)];
    assert_eq!(pieces(&convolution), parts);
    let decay = find(&found, "model.layers.{L}.linear_attn.A_log");
    assert_eq!((pieces(&decay), decay.dtype), (vec![(24, 8, 0)], DType::F32));
    let mut listed = qwen3_next();
    listed["num_hidden_layers"] = json!(3);
    listed["layer_types"] = json!(["full_attention", "linear_attention", "full_attention"]);
    let kinds = layout(&listed, "vllm:tp=1", 0).expect("a layout");
    assert_eq!(find(&kinds, "model.layers.{L}.linear_attn.A_log").layers, Some((1, 1)));
}

#[test]
fn norms_over_all_heads_are_cut_like_their_heads() {
    // 16 ranks: two have each key head, and the norm of its key.
    let found = layout(&minimax_m2(), "vllm:tp=16", 5).expect("a layout");
    let norm = |name: &str| pieces(&find(&found, &format!("model.layers.{{L}}.self_attn.{name}")));
    assert_eq!(norm("q_norm.weight"), [(1920, 384, 0)]);
    assert_eq!(norm("k_norm.weight"), [(256, 128, 0)]);
    let correction = "model.layers.{L}.block_sparse_moe.e_score_correction_bias";
    assert_eq!(find(&found, correction).shape, [256]);
    let router = find(&found, "model.layers.{L}.block_sparse_moe.gate.weight");
    assert_eq!((router.shape, router.dtype), (vec![256, 3072], DType::F32));
}

/// Some of them whole, with copies after all others; or rows of gate and up, and columns, of all.
#[test]
fn stacked_experts_are_held_whole_or_in_part() {
    let stacks = |spec: &str, rank| {
        let found = layout(&qwen35_moe(), spec, rank).expect("a layout");
        let of = |name: &str| {
            let module = "language_model.model.layers.{L}.mlp.experts";
            let record = find(&found, &format!("{module}.{name}_weight"));
            let dims: Vec<usize> = record.pieces.iter().map(|p| p.dim).collect();
            (record.shape.clone(), pieces(&record), dims)
        };
        [of("w13"), of("w2")]
    };
    let whole = vec![(64, 64, 0)];
    let expected =
        [(vec![64, 1024, 2048], whole.clone(), vec![0]), (vec![64, 2048, 512], whole, vec![0])];
    assert_eq!(stacks("vllm:tp=4,ep=4", 1), expected);
    // 264 slots on 8 ranks: the last has 25 of its own, and the first 8 once more.
    let copies = vec![(231, 25, 0), (0, 8, 25)];
    assert_eq!(stacks("vllm:tp=8,ep=8,redundant=8", 7)[0].1, copies);
    let [up, down] = stacks("vllm:tp=4", 3);
    assert_eq!(up, (vec![256, 256, 2048], vec![(384, 128, 0), (896, 128, 128)], vec![1, 1]));
    assert_eq!(down, (vec![256, 2048, 128], vec![(384, 128, 0)], vec![2]));
}

#[test]
fn every_element_has_a_source() {
    for config in [qwen3_next(), minimax_m2(), qwen35_moe()] {
        let model = model(&config).expect("a model");
        let cluster =
            |spec: &str| Cluster::new(&model, &spec.parse().expect("a spec")).expect("a cluster");
        for (from, to) in [
            ("fsdp2:dp=4", "vllm:tp=2"),
            ("fsdp2:dp=2,tp=2", "vllm:tp=2,dp=2,ep=4"),
            ("hsdp:replicate=2,shard=4", "vllm:tp=4"),
        ] {
            let plan = movement::plan(&cluster(from), &cluster(to), 1, 8).expect("a plan");
            assert_eq!(plan.defects, Vec::<String>::new(), "{from} -> {to}");
        }
    }
}

#[test]
fn inputs_of_linear_attention_are_fused_whatever_the_checkpoint_stores() {
    let found = layout(&qwen35_moe(), "vllm:tp=2", 1).expect("a layout");
    let module = "language_model.model.layers.{L}.linear_attn";
    let inputs = find(&found, &format!("{module}.in_proj_qkvz.weight"));
    let parts = [(1024, 1024, 0), (3072, 1024, 1024), (6144, 2048, 2048), (2048, 2048, 4096)];
    assert_eq!((pieces(&inputs), inputs.shape[0]), (parts.to_vec(), 6144));
    let heads = find(&found, &format!("{module}.in_proj_ba.weight"));
    assert_eq!(pieces(&heads), [(16, 16, 0), (16, 16, 16)]);
    let told = layout(&qwen35_moe(), "ddp:dp=1,mtp=1", 0).expect_err("no rule").to_string();
    assert!(told.contains("draft layers of qwen3_5_moe"), "{told}");
    let mut config = qwen35_moe();
    config["vision_config"]["deepstack_visual_indexes"] = json!([8]);
    assert!(matches!(model(&config), Err(ConfigError::Unruled { .. })));
}

/// Projections of attention and experts in FP8, with a scale for each block; the rest as it was.
#[test]
fn minimax_m2_is_laid_out_as_it_is_published() {
    let found = model(&minimax_m2()).expect("a model");
    let elements = |dtype| -> u64 {
        let of = found.families.iter().filter(|f| f.dtype == dtype);
        of.map(|f| f.count() * f.shape.iter().product::<u64>()).sum()
    };
    let (layers, attention, expert) = (62, 3072 * 128 * (48 + 8 + 8 + 48), 3 * 3072 * 1536);
    let quantised = layers * (attention + 256 * expert);
    assert_eq!(elements(DType::F8E4M3), quantised);
    assert_eq!(elements(DType::F32), quantised / (128 * 128) + layers * 256);
    let layout = layout(&minimax_m2(), "vllm:tp=4,ep=4", 1).expect("a layout");
    let scales = find(&layout, "model.layers.{L}.block_sparse_moe.experts.w13_weight_scale_inv");
    assert_eq!((scales.shape, scales.pieces.len()), (vec![64, 24, 24], 128));
}

#[test]
fn what_has_no_rule_is_refused_by_name() {
    let with = |key: &str, value: Value| {
        let mut config = qwen3_next();
        config[key] = value;
        config
    };
    for key in ["linear_num_value_heads", "linear_num_key_heads", "linear_conv_kernel_dim"] {
        let told = model(&with(key, Value::Null));
        assert!(matches!(told, Err(ConfigError::Missing { .. })), "{key}: {told:?}");
    }
    for (key, value) in
        [("attn_output_gate", json!(false)), ("layer_types", json!(vec!["sliding_attention"; 48]))]
    {
        let told = model(&with(key, value));
        assert!(matches!(&told, Err(ConfigError::Unruled { key: k, .. }) if *k == key), "{told:?}");
    }
    for (key, value) in
        [("layer_types", json!(["full_attention"])), ("linear_num_key_heads", json!(3))]
    {
        let told = model(&with(key, value));
        assert!(matches!(told, Err(ConfigError::Contradiction { .. })), "{key}: {told:?}");
    }
    for spec in ["vllm:tp=1,mtp=1", "fsdp2:dp=2,mtp=1"] {
        let told = layout(&qwen3_next(), spec, 0).expect_err("no rule").to_string();
        assert!(told.contains("draft layers of qwen3_next"), "{told}");
    }
    for config in [qwen3_next(), minimax_m2()] {
        for spec in ["sglang:tp=1", "megatron:tp=1"] {
            let refused = layout(&config, spec, 0).expect_err("no rules");
            assert!(matches!(refused, RuleError::NoRules { .. }), "{refused}");
        }
    }
    let refused = layout(&qwen3_next(), "vllm:tp=32", 0).expect_err("16 key heads");
    assert!(matches!(refused, RuleError::Indivisible { parts: 32, .. }), "{refused}");
    let copies = layout(&minimax_m2(), "vllm:tp=8,ep=8,redundant=8", 0).expect_err("no room");
    assert!(copies.to_string().contains("no room for copies"), "{copies}");
    assert!(layout(&qwen3_next(), "vllm:tp=8,ep=8,redundant=8", 7).is_ok());
}
