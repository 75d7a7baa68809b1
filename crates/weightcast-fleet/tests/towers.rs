//! Models that see: what is published of them, and how each rank has their towers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ConfigError, ModelSpec};
use weightcast_fleet::{Cluster, RankLayout, RuleError};

/// As Qwen3-VL-4B-Instruct is published, with what decides shapes.
fn qwen3_vl() -> Value {
    json!({
        "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
        "tie_word_embeddings": true,
        "text_config": {
            "attention_bias": false, "dtype": "bfloat16", "head_dim": 128, "hidden_size": 2560,
            "intermediate_size": 9728, "model_type": "qwen3_vl_text", "num_attention_heads": 32,
            "num_hidden_layers": 36, "num_key_value_heads": 8, "tie_word_embeddings": true,
            "vocab_size": 151_936
        },
        "vision_config": {
            "deepstack_visual_indexes": [5, 11, 17], "depth": 24, "hidden_size": 1024,
            "in_channels": 3, "intermediate_size": 4096, "model_type": "qwen3_vl", "num_heads": 16,
            "num_position_embeddings": 2304, "out_hidden_size": 2560, "patch_size": 16,
            "spatial_merge_size": 2, "temporal_patch_size": 2
        }
    })
}

/// As Qwen2.5-VL is published: the decoder's numbers stand outside, the colours have another name.
fn qwen25_vl() -> Value {
    json!({
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
        "hidden_size": 3584, "intermediate_size": 18_944, "num_attention_heads": 28,
        "num_hidden_layers": 28, "num_key_value_heads": 4, "tie_word_embeddings": false,
        "torch_dtype": "bfloat16", "vocab_size": 152_064,
        "vision_config": {
            "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
            "in_chans": 3, "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2,
            "temporal_patch_size": 2
        }
    })
}

/// As Gemma 3 is published: what differs from its class's own numbers.
fn gemma3(text: Value) -> Value {
    json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": text, "torch_dtype": "bfloat16",
        "vision_config": {
            "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
            "model_type": "siglip_vision_model", "num_attention_heads": 16,
            "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false
        }
    })
}

fn model(config: &Value) -> Result<ModelSpec, ConfigError> {
    Config::parse(&config.to_string()).and_then(|config| ModelSpec::of(&config))
}

fn layout(config: &Value, spec: &str, rank: u64) -> Result<RankLayout, RuleError> {
    Cluster::new(&model(config)?, &spec.parse().expect("a spec"))?.layout(rank)
}

/// Tensors and bytes, of all and of those whose names begin so.
fn sums(model: &ModelSpec, beginning: &str) -> [(u64, u64); 2] {
    let of = |beginning: &str| {
        let families = model.families.iter().filter(|f| f.name.starts_with(beginning));
        families.fold((0, 0), |(count, bytes), f| {
            (count + f.count(), bytes + f.count() * f.tensor_bytes())
        })
    };
    [of(""), of(beginning)]
}

/// The headers of the published shards say: 713 tensors of 8,875,631,616 bytes, 315 of the tower with 830,695,424.
#[test]
fn a_published_checkpoint_has_as_many_tensors_and_bytes() {
    let found = model(&qwen3_vl()).expect("a model");
    assert_eq!(sums(&found, "model.visual."), [(713, 8_875_631_616), (315, 830_695_424)]);
    assert_eq!(found.bytes(false), 8_875_631_616);
}

/// Elements of the published checkpoints of Gemma 3, 4B, 27B and 1B, and of Qwen2.5-VL-7B.
#[test]
fn other_published_checkpoints_have_as_many_bytes() {
    let (four, more) = (
        json!({"hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34}),
        json!({
            "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21_504,
            "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
        }),
    );
    let one = json!({
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 256,
        "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4,
        "num_hidden_layers": 26, "num_key_value_heads": 1, "torch_dtype": "bfloat16",
        "vocab_size": 262_144,
    });
    for (config, elements) in [
        (gemma3(four), 4_300_079_472u64),
        (gemma3(more), 27_432_406_640),
        (one, 999_885_952),
        (qwen25_vl(), 8_292_166_656),
    ] {
        assert_eq!(model(&config).expect("a model").bytes(false), 2 * elements, "{config}");
    }
}

#[test]
fn a_head_that_the_engine_leaves_out_is_refused() {
    let mut config = gemma3(json!({"hidden_size": 2560}));
    let norm = "vision_tower.vision_model.encoder.layers.{L}.self_attn.qkv_proj.bias";
    let found = layout(&config, "vllm:tp=2", 0).expect("a layout");
    assert_eq!(found.records.iter().find(|r| r.name == norm).expect("biases").shape, [1728]);
    for said in [json!(true), Value::Null] {
        config["vision_config"]["vision_use_head"] = said;
        let told = model(&config).expect_err("refused").to_string();
        assert!(told.contains("vision_use_head") && told.contains("live engine"), "{told}");
    }
}

#[test]
fn numbers_of_a_decoder_stand_outside_or_in_a_part_of_their_own() {
    let outside = model(&qwen25_vl()).expect("a model");
    let mut config = qwen25_vl();
    let mut part = json!({});
    for key in ["hidden_size", "num_hidden_layers", "torch_dtype", "vocab_size"] {
        part[key] = config.as_object_mut().expect("an object").remove(key).expect("a number");
    }
    config["text_config"] = part;
    assert_eq!(model(&config).expect("a model").families, outside.families);
    let names: Vec<&str> = outside.families.iter().map(|f| f.name.as_str()).collect();
    for name in ["visual.patch_embed.proj.weight", "model.layers.{L}.mlp.up_proj.weight"] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn a_rank_has_its_heads_of_each_of_query_key_and_value() {
    let layout = layout(&qwen3_vl(), "vllm:tp=2", 1).expect("a layout");
    let find = |name: &str| layout.records.iter().find(|r| r.name == name).expect("a record");
    let pieces = |name: &str| -> Vec<(u64, u64, u64)> {
        let pieces = find(name).pieces.iter();
        pieces.map(|p| (p.slice.start[p.dim], p.slice.len[p.dim], p.target_start)).collect()
    };
    let halves = [(512, 512, 0), (1536, 512, 512), (2560, 512, 1024)];
    assert_eq!(pieces("visual.blocks.{L}.attn.qkv.weight"), halves);
    assert_eq!(pieces("visual.blocks.{L}.attn.qkv.bias"), halves);
    assert_eq!(find("visual.blocks.{L}.attn.qkv.weight").layers, Some((0, 23)));
    assert_eq!(find("visual.deepstack_merger_list.{L}.norm.weight").layers, Some((0, 2)));
    assert_eq!(pieces("visual.merger.linear_fc2.weight"), [(2048, 2048, 0)]);
    assert_eq!(pieces("visual.merger.linear_fc2.bias"), [(0, 2560, 0)]);
    assert_eq!(find("visual.pos_embed.weight").shape, [2304, 1024]);
    assert_eq!(find("visual.patch_embed.proj.weight").shape, [1024, 3, 2, 16, 16]);
    assert_eq!(find("language_model.model.layers.{L}.self_attn.qkv_proj.weight").shape[0], 3072);
    let refused = self::layout(&qwen3_vl(), "vllm:tp=32", 0).expect_err("16 heads");
    assert!(matches!(refused, RuleError::Indivisible { size: 16, parts: 32, .. }), "{refused}");
}

/// Blocks of a tower are no layers of a decoder: they are whole where the first layer is.
#[test]
fn trainers_have_the_tower_on_the_first_stage_alone() {
    for config in [qwen3_vl(), qwen25_vl()] {
        let published = model(&config).expect("a model");
        let mut held = BTreeMap::new();
        for rank in 0..4 {
            let spec = "fsdp_ep:fsdp=1,pp=2,ep=2";
            for record in layout(&config, spec, rank).expect("a layout").records {
                assert!(!record.name.contains("visual") || rank < 2, "{}", record.name);
                *held.entry(record.name.clone()).or_insert(0) +=
                    record.piece_bytes() * record.count();
            }
        }
        assert_eq!(held.values().sum::<u64>(), published.bytes(false));
        for f in &published.families {
            assert_eq!(held.get(&f.name), Some(&(f.count() * f.tensor_bytes())), "{}", f.name);
        }
    }
}

#[test]
fn what_has_no_rule_is_refused_by_name() {
    for spec in ["sglang:tp=1", "megatron:tp=1"] {
        let refused = layout(&qwen3_vl(), spec, 0).expect_err("no rules");
        assert!(matches!(refused, RuleError::NoRules { .. }), "{refused}");
        let told = refused.to_string();
        assert!(
            told.contains("qwen3_vl") && told.contains("vLLM") && told.contains("live"),
            "{told}"
        );
    }
    let told = layout(&qwen3_vl(), "vllm:tp=1,quant=fp8", 0).expect_err("no rule").to_string();
    assert!(told.contains("qwen3_vl in FP8 blocks"), "{told}");
    let with = |path: &[&str], value: Value| {
        let mut config = qwen3_vl();
        let mut at = &mut config;
        for key in path {
            at = &mut at[key];
        }
        *at = value;
        model(&config)
    };
    let fp8 = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    assert!(matches!(with(&["quantization_config"], fp8), Err(ConfigError::Quantised { .. })));
    for (path, value) in [
        (&["tie_word_embeddings"][..], json!(false)),
        (&["vision_config", "dtype"], json!("float32")),
    ] {
        let told = with(path, value);
        assert!(matches!(told, Err(ConfigError::Contradiction { .. })), "{path:?}: {told:?}");
    }
    for path in [
        &["vision_config"][..],
        &["vision_config", "depth"],
        &["vision_config", "num_heads"],
        &["vision_config", "deepstack_visual_indexes"],
        &["vision_config", "out_hidden_size"],
        &["text_config", "vocab_size"],
    ] {
        let told = with(path, Value::Null);
        assert!(matches!(told, Err(ConfigError::Missing { .. })), "{path:?}: {told:?}");
    }
    let depth = with(&["vision_config", "depth"], json!(5000));
    assert!(matches!(depth, Err(ConfigError::TooLarge { value: 5000, .. })), "{depth:?}");
    let vast = with(&["vision_config", "spatial_merge_size"], json!(1 << 30));
    assert!(matches!(vast, Err(ConfigError::Contradiction { .. })), "{vast:?}");
    // A tower without mergers behind its blocks names none.
    let mut config = qwen25_vl();
    config["vision_config"]["deepstack_visual_indexes"] = json!([1]);
    let refused = model(&config);
    let key = "deepstack_visual_indexes";
    assert!(matches!(refused, Err(ConfigError::Unruled { key: k, .. }) if k == key), "{refused:?}");
}

/// vLLM turns them over: no slice of the checkpoint is what a rank holds.
#[test]
fn stacked_experts_are_told_to_trainers_and_refused_for_engines() {
    let mut config = qwen3_vl();
    config["model_type"] = json!("qwen3_vl_moe");
    config["architectures"] = json!(["Qwen3VLMoeForConditionalGeneration"]);
    config["text_config"]["num_experts"] = json!(128);
    config["text_config"]["moe_intermediate_size"] = json!(768);
    let published = model(&config).expect("a model");
    let shape = |end: &str| {
        let family = published.families.iter().find(|f| f.name.ends_with(end)).expect("a family");
        family.shape.clone()
    };
    assert_eq!(shape("language_model.layers.{L}.mlp.experts.gate_up_proj"), [128, 2560, 1536]);
    assert_eq!(shape("language_model.layers.{L}.mlp.experts.down_proj"), [128, 768, 2560]);
    assert!(layout(&config, "fsdp2:dp=2", 1).is_ok());
    let refused = layout(&config, "vllm:tp=2,ep=2", 0).expect_err("transposed");
    assert!(matches!(refused, RuleError::Computes { .. }), "{refused}");
    assert!(refused.to_string().contains("transposed"), "{refused}");
}
