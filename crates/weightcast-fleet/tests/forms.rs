//! What configs say of their weights' form, type and class: laid out right, or refused by name.

use crate::common;
use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ConfigError, ModelSpec, TensorRole};
use weightcast_fleet::{Cluster, RuleError};
use weightcast_plan::DType;

fn config(name: &str) -> Value {
    let all = common::folder("configs");
    all.into_iter().find(|(file, _)| file == name).expect("a config of the data set").1
}

fn model(config: &Value) -> Result<ModelSpec, ConfigError> {
    Config::parse(&config.to_string()).and_then(|config| ModelSpec::of(&config))
}

fn with(name: &str, key: &str, value: &Value) -> Result<ModelSpec, ConfigError> {
    let mut config = config(name);
    config[key] = value.clone();
    model(&config)
}

/// The key, the method, the bits and the reason of a refusal, which says what to try next.
fn refused(made: Result<ModelSpec, ConfigError>) -> (String, String, Vec<u64>, String) {
    let error = made.expect_err("refused");
    let told = error.to_string();
    assert!(told.contains("plan its unquantised config") && told.contains("live engine"), "{told}");
    match error {
        ConfigError::Quantised { key, method, bits, why } => (key, method, bits, why),
        other => panic!("{other}"),
    }
}

/// As Kimi-K2-Thinking is published, in four bits; it was planned as BF16 once.
fn int4() -> Value {
    json!({
        "quant_method": "compressed-tensors", "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": null, "weights": {
            "num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": true, "type": "int"}}},
        "ignore": ["lm_head", "re:.*self_attn.*"], "quantization_status": "compressed",
    })
}

#[test]
fn methods_without_a_rule_are_refused_by_name() {
    let four = &[4][..];
    for (said, method, bits) in [
        (int4(), "compressed-tensors, pack-quantized", four),
        (json!({"quant_method": "awq", "bits": 4, "group_size": 128}), "awq", four),
        (json!({"quant_method": "gptq", "bits": 8, "desc_act": true}), "gptq", &[8]),
        (json!({"quant_method": "bitsandbytes", "load_in_4bit": true}), "bitsandbytes", four),
        (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), "modelopt, NVFP4", &[]),
        (json!({"quant_algo": "NVFP4", "weights": {"num_bits": 4}}), "NVFP4", four),
        (json!({"quant_method": "mxfp4"}), "mxfp4", &[]),
        (json!({"quant_method": "FP8"}), "FP8", &[]),
        (json!({}), "a method without a name", &[]),
        (json!("int4"), "a method without a name", &[]),
    ] {
        for key in ["quantization_config", "compression_config"] {
            let (found, name, of, _) = refused(with("kimi-k2-bf16", key, &said));
            assert_eq!((found.as_str(), name.as_str(), &of[..]), (key, method, bits));
        }
    }
    let told =
        with("kimi-k2-bf16", "quantization_config", &int4()).expect_err("refused").to_string();
    assert!(told.contains("quantised by compressed-tensors, pack-quantized (4 bits)"), "{told}");
}

#[test]
fn what_a_part_of_a_model_says_counts() {
    let within = |value: Value| with("kimi-k2-bf16", "text_config", &value);
    let (key, method, bits, _) = refused(within(json!({"quantization_config": int4()})));
    assert_eq!((key.as_str(), bits), ("text_config.quantization_config", vec![4]));
    assert!(method.contains("compressed-tensors"));
    let deep = json!({"language": {"compression_config": int4()}});
    assert_eq!(refused(within(deep)).0, "text_config.language.compression_config");
    assert!(within(json!({"quantization_config": null})).is_ok());
    // Said once more is no contradiction; something else is.
    let fp8 = config("kimi-k2")["quantization_config"].clone();
    let both =
        |other: &Value| with("kimi-k2", "text_config", &json!({"quantization_config": other}));
    assert!(both(&fp8).is_ok());
    let (key, _, _, why) = refused(both(&int4()));
    assert_eq!(key, "quantization_config");
    assert!(why.contains("text_config.quantization_config says something else"), "{why}");
    let (key, _, _, why) = refused(within(json!({"quantization_config": fp8})));
    assert!(key.starts_with("text_config.") && why.contains("a part of the model"), "{why}");
}

#[test]
fn fp8_is_laid_out_in_dynamic_blocks_only() {
    let fp8 = |changes: Value| {
        let mut said = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
        for (key, value) in changes.as_object().expect("changes") {
            said[key] = value.clone();
        }
        with("deepseek-v3-bf16", "quantization_config", &said)
    };
    for right in [
        json!({}),
        json!({"fmt": "e4m3", "activation_scheme": "dynamic", "scale_fmt": "ue8m0"}),
        json!({"fmt": "float8_e4m3fn"}),
        json!({"fmt": null, "modules_to_not_convert": null, "added": null}),
        json!({"modules_to_not_convert": ["lm_head", "model.layers.3.mlp.experts"]}),
    ] {
        assert!(fp8(right.clone()).is_ok(), "{right}");
    }
    for (wrong, why) in [
        (json!({"weight_block_size": null}), "weight_block_size"),
        (json!({"weight_block_size": [128]}), "weight_block_size"),
        (json!({"weight_block_size": 128}), "weight_block_size"),
        (json!({"weight_block_size": [128, "x", 128]}), "weight_block_size"),
        (json!({"weight_block_size": [128, 128, -1]}), "weight_block_size"),
        (json!({"weight_block_size": [0, 128]}), "weight_block_size"),
        (json!({"activation_scheme": "static"}), "activation_scheme=\"static\""),
        (json!({"fmt": "e5m2"}), "fmt=\"e5m2\""),
        (json!({"scale_fmt": "f16"}), "scale_fmt=\"f16\""),
        (json!({"expert_bits": 4}), "expert_bits=4"),
        (json!({"modules_to_not_convert": "lm_head"}), "no list of names"),
        (json!({"modules_to_not_convert": [3]}), "no list of names"),
        (json!({"modules_to_not_convert": ["mlp.gate"]}), "names \"mlp.gate\""),
        (json!({"modules_to_not_convert": ["gate"]}), "names \"gate\""),
        (json!({"ignored_layers": ["model.layers.*.mlp"]}), "ignored_layers names"),
        (json!({"modules_to_not_convert": ["re:.*gate"]}), "full names"),
        (json!({"modules_to_not_convert": ["model.layers.3.mlp.experts.7.up_proj"]}), "experts of"),
    ] {
        let (key, method, _, told) = refused(fp8(wrong.clone()));
        assert_eq!((key.as_str(), method.as_str()), ("quantization_config", "fp8"), "{wrong}");
        assert!(told.contains(why), "{wrong}: {told}");
    }
    for name in ["gpt2", "gpt-oss-20b"] {
        let said = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
        let why = refused(with(name, "quantization_config", &said)).3;
        assert!(why.contains("for this type of model"), "{name}: {why}");
    }
}

#[test]
fn parts_of_one_parameter_are_quantised_together_or_not_at_all() {
    let laid_out = |left: &[&str]| {
        let said = json!({"quant_method": "fp8", "weight_block_size": [128, 128],
            "modules_to_not_convert": left});
        let model = with("qwen3-0.6b", "quantization_config", &said).expect("a model");
        let cluster = Cluster::new(&model, &"vllm:tp=1".parse().expect("a spec"))?;
        cluster.layout(0).map(|_| ())
    };
    let attention = "model.layers.0.self_attn";
    let parts: Vec<String> = "qkv".chars().map(|x| format!("{attention}.{x}_proj")).collect();
    let all: Vec<&str> = parts.iter().map(String::as_str).collect();
    assert_eq!(laid_out(&all), Ok(()));
    assert_eq!(laid_out(&["model.layers.0.mlp.down_proj"]), Ok(()));
    for left in [&all[1..2], &all[..1], &all[..2], &["model.layers.0.mlp.gate_proj"][..]] {
        let error = laid_out(left).expect_err("refused");
        assert!(matches!(error, RuleError::MixedParts { .. }), "{left:?}: {error}");
        assert!(error.to_string().contains(left[0]), "{left:?}: {error}");
    }
}

#[test]
fn experts_of_gpt_oss_are_packed_as_published_and_plain_in_trainers() {
    let shapes = |model: &ModelSpec| -> Vec<(String, Vec<u64>, DType)> {
        let experts = [TensorRole::ExpertsGateUp, TensorRole::ExpertsDown];
        let families = model.families.iter().filter(|f| experts.contains(&f.role));
        let of = |f: &weightcast_fleet::model::Family| {
            let name = f.name.rsplit('.').next().expect("a name").to_owned();
            (name, f.shape.clone(), f.dtype)
        };
        families.map(of).collect()
    };
    let told = |name: &str, shape: &[u64], dtype| (name.to_owned(), shape.to_vec(), dtype);
    let biases = [
        told("gate_up_proj_bias", &[32, 5760], DType::BF16),
        told("down_proj_bias", &[32, 2880], DType::BF16),
    ];
    let published = with("gpt-oss-20b", "tie_word_embeddings", &json!(false)).expect("a model");
    let packed = [
        told("gate_up_proj_blocks", &[32, 5760, 90, 16], DType::U8),
        told("gate_up_proj_scales", &[32, 5760, 90], DType::U8),
        biases[0].clone(),
        told("down_proj_blocks", &[32, 2880, 90, 16], DType::U8),
        told("down_proj_scales", &[32, 2880, 90], DType::U8),
        biases[1].clone(),
    ];
    assert_eq!(shapes(&published), packed);
    // transformers holds the experts of a dequantised model as [experts, in, out].
    let plain = [
        told("gate_up_proj", &[32, 2880, 5760], DType::BF16),
        biases[0].clone(),
        told("down_proj", &[32, 2880, 2880], DType::BF16),
        biases[1].clone(),
    ];
    let unquantised = with("gpt-oss-20b", "quantization_config", &Value::Null).expect("a model");
    assert_eq!(shapes(&unquantised), plain);
    assert_eq!(unquantised.bytes(false), 2 * 20_914_757_184);
    let trainer = Cluster::new(&published, &"fsdp2:dp=4".parse().expect("a spec")).expect("ranks");
    assert_eq!(shapes(trainer.model().expect("by rule")), plain);
    for (said, why) in [
        (json!({"quant_method": "mxfp4", "bits": 4}), "bits=4"),
        (
            json!({"quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.0.mlp.experts"]}),
            "names experts",
        ),
    ] {
        let told = refused(with("gpt-oss-20b", "quantization_config", &said)).3;
        assert!(told.contains(why), "{told}");
    }
    let ragged = with("gpt-oss-20b", "intermediate_size", &json!(2881));
    assert!(matches!(ragged, Err(ConfigError::Contradiction { .. })), "{ragged:?}");
}

#[test]
fn types_are_known_or_refused_by_name() {
    let typed = |key: &str, value: Value| {
        let mut config = config("qwen3-0.6b");
        for key in ["dtype", "torch_dtype"] {
            config.as_object_mut().expect("an object").remove(key);
        }
        config[key] = value;
        model(&config)
    };
    for key in ["dtype", "torch_dtype"] {
        for wrong in ["float64", "int8", "float8_e4m3fn", "torch.bfloat16", "auto", ""] {
            let error = typed(key, json!(wrong)).expect_err("refused");
            assert!(matches!(&error, ConfigError::Dtype { key: k, .. } if *k == key), "{error}");
            let told = error.to_string();
            assert!(told.contains(&format!("{key} is {wrong:?}; known are bfloat16")), "{told}");
        }
        for wrong in [json!(16), json!({"": "bfloat16"})] {
            assert!(matches!(typed(key, wrong), Err(ConfigError::Dtype { .. })), "{key}");
        }
        assert_eq!(typed(key, Value::Null).expect("a model").dtype, DType::F32);
    }
    let both = |dtype: &str, other: &str| {
        let mut config = config("qwen3-0.6b");
        (config["dtype"], config["torch_dtype"]) = (json!(dtype), json!(other));
        model(&config)
    };
    assert_eq!(both("float16", "float16").expect("a model").dtype, DType::F16);
    assert!(matches!(both("float16", "bfloat16"), Err(ConfigError::Contradiction { .. })));
    assert!(matches!(both("float16", "int8"), Err(ConfigError::Dtype { key: "torch_dtype", .. })));
}

#[test]
fn classes_with_another_head_are_refused() {
    let of = |classes: Value| with("qwen3-0.6b", "architectures", &classes);
    for right in [json!(["Qwen3ForCausalLM"]), json!([]), Value::Null] {
        assert!(of(right.clone()).is_ok(), "{right}");
    }
    for wrong in [
        json!(["Qwen3ForSequenceClassification"]),
        json!(["Qwen3ForTokenClassification"]),
        json!(["Qwen3ForRewardModel"]),
        json!(["Qwen3Model"]),
        json!(["Qwen3ForCausalLM", "Qwen3ForSequenceClassification"]),
        json!(["LlamaForCausalLM"]),
        json!("Qwen3ForCausalLM"),
    ] {
        let error = of(wrong.clone()).expect_err("refused");
        assert!(matches!(error, ConfigError::Architecture { .. }), "{wrong}: {error}");
        let told = error.to_string();
        for part in [&wrong.to_string(), "score", "Qwen3ForCausalLM", "live engine"] {
            assert!(told.contains(part), "{told}");
        }
    }
}

/// Families whose rules would be guessed.
#[test]
fn families_without_a_description_are_refused() {
    for model_type in ["kimi_k25", "gemma3n", "qwen3_omni_moe", "minimax_m3_vl"] {
        let error = with("qwen3-0.6b", "model_type", &json!(model_type)).expect_err("refused");
        assert!(matches!(error, ConfigError::UnknownModel { .. }), "{model_type}: {error}");
        let told = error.to_string();
        assert!(told.contains(model_type) && told.contains("live engine"), "{told}");
    }
}

#[test]
fn families_of_which_engines_hold_no_slices_are_refused_with_the_reason() {
    for model_type in ["llama4", "llama4_text"] {
        let error = with("qwen3-0.6b", "model_type", &json!(model_type)).expect_err("refused");
        assert!(matches!(error, ConfigError::NotSlices { .. }), "{model_type}: {error}");
        let told = error.to_string();
        for part in [model_type, "transposes its experts", "live engine"] {
            assert!(told.contains(part), "{told}");
        }
    }
}
