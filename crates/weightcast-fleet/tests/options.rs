//! Options in combination, as the real classes of the engines take or refuse them.

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec};
use weightcast_fleet::{Cluster, RankLayout, RuleError};

/// A decoder of DeepSeek's with these values instead of small ones.
fn latent(changes: Value) -> Value {
    let config = json!({
        "model_type": "deepseek_v3", "dtype": "bfloat16", "vocab_size": 100, "hidden_size": 64,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 16, "n_shared_experts": 1,
        "moe_intermediate_size": 48, "first_k_dense_replace": 1, "n_group": 2,
    });
    with(config, changes)
}

fn heads(changes: Value) -> Value {
    let config = json!({
        "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 100, "hidden_size": 64,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16,
    });
    with(config, changes)
}

fn with(mut config: Value, changes: Value) -> Value {
    for (key, value) in changes.as_object().expect("changes") {
        config[key] = value.clone();
    }
    config
}

fn layout(config: &Value, spec: &str, rank: u64) -> Result<RankLayout, RuleError> {
    let model = ModelSpec::of(&Config::parse(&config.to_string()).expect("an object"))?;
    Cluster::new(&model, &spec.parse().expect("a spec"))?.layout(rank)
}

/// The shape of the record whose name ends so.
fn shape(config: &Value, spec: &str, rank: u64, end: &str) -> Vec<u64> {
    let layout = layout(config, spec, rank).expect("a layout");
    layout.records.into_iter().find(|r| r.name.ends_with(end)).expect("a record").shape
}

/// The experts of a rank, slot by slot.
fn experts(config: &Value, spec: &str, rank: u64) -> Vec<u64> {
    let layout = layout(config, spec, rank).expect("a layout");
    let down = layout.records.iter().find(|r| r.name.ends_with("w2_weight")).expect("experts");
    let number = |name: &str| name.split('.').nth(5).and_then(|n| n.parse().ok()).expect("one");
    down.pieces.iter().map(|piece| number(&piece.tensor)).collect()
}

#[test]
fn sglang_refuses_experts_that_do_not_divide() {
    let config = latent(json!({"n_routed_experts": 14}));
    let refused = layout(&config, "sglang:tp=4,ep=4", 0).expect_err("it refuses");
    assert!(matches!(refused, RuleError::Indivisible { size: 14, parts: 4, .. }), "{refused}");
    assert_eq!(experts(&config, "sglang:tp=4,ep=2", 2), [7, 8, 9, 10, 11, 12, 13]);
}

#[test]
fn vllm_gives_the_first_ranks_one_more_expert() {
    let config = latent(json!({"n_routed_experts": 14}));
    let held = |rank| experts(&config, "vllm:tp=4,ep=4", rank);
    assert_eq!(held(0), [0, 1, 2, 3]);
    assert_eq!(held(1), [4, 5, 6, 7]);
    assert_eq!(held(2), [8, 9, 10]);
    assert_eq!(held(3), [11, 12, 13]);
}

#[test]
fn latent_heads_divide_even_where_their_rows_would() {
    let config = latent(json!({}));
    for spec in ["vllm:tp=8", "sglang:tp=8"] {
        let refused = layout(&config, spec, 0).expect_err("it refuses");
        assert!(matches!(refused, RuleError::Indivisible { size: 4, parts: 8, .. }), "{refused}");
    }
}

#[test]
fn vllm_deals_round_only_experts_in_groups() {
    let spec = "vllm:tp=2,ep=2,placement=round_robin";
    let odd = [1, 3, 5, 7, 9, 11, 13, 15];
    let last = [8, 9, 10, 11, 12, 13, 14, 15];
    assert_eq!(experts(&latent(json!({})), spec, 1), odd);
    assert_eq!(experts(&latent(json!({"n_group": 1})), spec, 1), last);
    let twice = [9, 10, 11, 12, 13, 14, 15, 0, 1];
    assert_eq!(experts(&latent(json!({})), &format!("{spec},redundant=2"), 1), twice);
}

#[test]
fn shared_experts_are_whole_where_ranks_share_out_tokens() {
    let rows = |config: &Value, spec| shape(config, spec, 0, "shared_experts.gate_up_proj.weight");
    let config = latent(json!({}));
    assert_eq!(rows(&config, "vllm:tp=2,dp=2,ep=4"), [96, 64]);
    for spec in ["vllm:tp=2,dp=2", "vllm:tp=2,ep=2"] {
        assert_eq!(rows(&config, spec), [48, 64], "{spec}");
    }
    let glm = heads(json!({
        "model_type": "glm4_moe", "n_routed_experts": 16, "n_shared_experts": 1,
        "moe_intermediate_size": 48,
    }));
    assert_eq!(rows(&glm, "vllm:tp=2,dp=2,ep=4"), [48, 64]);
}

#[test]
fn sglang_has_dense_layers_whole_only_beside_experts() {
    let spec = "sglang:tp=2,attn_dp=2,moe_dense_tp=1";
    let rows = |config: &Value| shape(config, spec, 0, "layers.{L}.mlp.gate_up_proj.weight");
    assert_eq!(rows(&latent(json!({}))), [96, 64]);
    assert_eq!(rows(&heads(json!({}))), [48, 64]);
}

#[test]
fn an_output_bias_that_engines_have_not_is_refused() {
    let config = heads(json!({"attention_bias": true}));
    for spec in ["vllm:tp=1", "sglang:tp=2"] {
        let refused = layout(&config, spec, 0).expect_err("it refuses");
        assert!(refused.to_string().contains("o_proj.bias"), "{refused}");
    }
    let llama = with(config, json!({"model_type": "llama"}));
    assert_eq!(shape(&llama, "vllm:tp=2", 1, "o_proj.bias"), [64]);
}

#[test]
fn parts_that_begin_within_a_block_are_warned_of() {
    let quantised = |config, block: u64| {
        let quantisation = json!({"quant_method": "fp8", "weight_block_size": [block, block]});
        with(config, json!({"quantization_config": quantisation}))
    };
    // Keys of 32 rows, with values behind them.
    let warnings = |config: Value, block| {
        layout(&quantised(config, block), "vllm:tp=1", 0).expect("a layout").warnings
    };
    // 48 rows of a gate as well, with those of the other behind them. Of each the scales, and once.
    let told = warnings(heads(json!({})), 64);
    let expected = ["self_attn.k_proj", "mlp.gate_proj"].map(|module| {
        format!(
            "vLLM refuses model.layers.{{L}}.{module}.weight_scale_inv: what follows it in one \
             module begins within a block"
        )
    });
    assert_eq!(told, expected);
    assert!(layout(&heads(json!({})), "vllm:tp=1", 0).expect("a layout").warnings.is_empty());
    // 16 rows of queries, whole blocks; then 16 and 8 of keys.
    let fused = "fused_qkv_a_proj.weight_scale_inv";
    assert_eq!(shape(&quantised(latent(json!({})), 16), "vllm:tp=1", 0, fused), [3, 4]);
    assert_eq!(warnings(latent(json!({})), 16), Vec::<String>::new());
}

#[test]
fn dense_layers_are_whole_where_sparse_attention_keeps_to_its_tokens() {
    let indexer = json!({"model_type": "deepseek_v32", "index_n_heads": 2, "index_head_dim": 16});
    let rows = |config: &Value, spec| shape(config, spec, 0, "layers.{L}.mlp.gate_up_proj.weight");
    for (spec, whole) in
        [("vllm:tp=2,dp=2,ep=4", true), ("vllm:tp=2,ep=2", false), ("vllm:tp=2,dp=2", false)]
    {
        assert_eq!(rows(&latent(indexer.clone()), spec)[0], if whole { 96 } else { 48 }, "{spec}");
        assert_eq!(rows(&latent(json!({})), spec)[0], 48, "{spec}");
    }
}

/// vLLM cuts experts within a block, and refines their scales to what divides everything.
#[test]
fn scales_of_experts_are_refined_to_32_and_no_further() {
    let experts = |intermediate: u64, block: u64, spec: &str| {
        let quantisation = json!({"quant_method": "fp8", "weight_block_size": [block, block]});
        let config = latent(json!({
            "moe_intermediate_size": intermediate, "hidden_size": 256, "n_shared_experts": 0,
            "quantization_config": quantisation, "num_hidden_layers": 2, "first_k_dense_replace": 0,
            "intermediate_size": 256, "q_lora_rank": 128, "kv_lora_rank": 128, "v_head_dim": 128,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 128, "num_attention_heads": 4,
        }));
        let layout = layout(&config, spec, 0)?;
        let of = |end: &str| {
            let scale = layout.records.iter().find(|r| r.name.ends_with(end)).expect("scales");
            (scale.shape.clone(), scale.pieces.len())
        };
        Ok::<_, RuleError>((of("w13_weight_scale_inv"), of("w2_weight_scale_inv")))
    };
    // 128 rows a rank: whole blocks, a piece for each of two halves of 16 experts.
    let whole = experts(256, 128, "vllm:tp=2").expect("a layout");
    assert_eq!(whole, ((vec![16, 2, 2], 32), (vec![16, 2, 1], 16)));
    // 64 rows: blocks of 64, of which no slice of the checkpoint is.
    let refined = experts(128, 128, "vllm:tp=2").expect("a layout");
    assert_eq!(refined, ((vec![16, 2, 4], 0), (vec![16, 4, 1], 0)));
    let least = experts(64, 128, "vllm:tp=2").expect("a layout");
    assert_eq!(least, ((vec![16, 2, 8], 0), (vec![16, 8, 1], 0)));
    assert!(matches!(experts(32, 128, "vllm:tp=2"), Err(RuleError::CutBlock { size: 16, .. })));
    for refused in ["sglang:tp=2", "sglang:tp=4,ep=2"] {
        let refused = experts(128, 128, refused);
        assert!(matches!(refused, Err(RuleError::CutBlock { .. })), "{refused:?}");
    }
    // Whole experts have ragged blocks.
    let (w13, w2) = experts(96, 128, "vllm:tp=2,ep=2").expect("a layout");
    assert_eq!((w13.0, w2.0), (vec![8, 2, 2], vec![8, 2, 1]));
    // In SGLang none has.
    for (intermediate, spec, right) in [
        (96, "sglang:tp=2,ep=2", false),
        (127, "sglang:tp=1", false),
        (128, "sglang:tp=1", true),
        (129, "sglang:tp=1", false),
        (256, "sglang:tp=2", true),
        (384, "sglang:tp=2", false),
        (384, "sglang:tp=2,ep=2", true),
    ] {
        let found = experts(intermediate, 128, spec);
        assert_eq!(found.is_ok(), right, "{intermediate} {spec}: {found:?}");
        assert!(right || matches!(found, Err(RuleError::CutBlock { .. })), "{spec}: {found:?}");
    }
}
