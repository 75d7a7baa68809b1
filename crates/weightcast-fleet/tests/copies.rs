//! Copies of experts (`redundant`), drafts, and what the classes of the engines refuse of them: slot by slot as
//! the engines number them, against the rules.

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec};
use weightcast_fleet::{Cluster, ParameterPiece, RankLayout, Record, RuleError, movement};

/// Two layers with experts and a draft layer.
fn config(model_type: &str, experts: u64, drafts: u64) -> Value {
    json!({
        "model_type": model_type, "dtype": "bfloat16", "vocab_size": 64, "hidden_size": 16,
        "intermediate_size": 240, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 8, "head_dim": 2, "n_routed_experts": experts, "n_group": 2,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 240,
        "num_nextn_predict_layers": drafts,
    })
}

fn cluster(config: &Value, spec: &str) -> Result<Cluster, RuleError> {
    let model = ModelSpec::of(&Config::parse(&config.to_string()).expect("an object"))?;
    Cluster::new(&model, &spec.parse().expect("a spec"))
}

fn layout(config: &Value, spec: &str, rank: u64) -> Result<RankLayout, RuleError> {
    cluster(config, spec)?.layout(rank)
}

/// The experts of a stack: each expert's number where something fills its slot.
fn held(record: &Record) -> Vec<Option<u64>> {
    let mut slots = vec![None; record.shape[0] as usize];
    let number = |piece: &ParameterPiece| {
        piece.tensor.split('.').nth(5).and_then(|part| part.parse().ok()).expect("a number")
    };
    for piece in &record.pieces {
        let slot = piece.target_index.expect("a slot") as usize;
        let expert: u64 = number(piece);
        assert!(slots[slot].is_none_or(|before| before == expert), "{record:?}");
        slots[slot] = Some(expert);
    }
    slots
}

fn stack<'a>(layout: &'a RankLayout, name: &str) -> &'a Record {
    layout.records.iter().find(|r| r.name == name).unwrap_or_else(|| panic!("no {name}"))
}

const MAIN: &str = "model.layers.{L}.mlp.experts.";
const DRAFT: &str = "draft.model.decoder.mlp.experts.";

/// SGLang numbers slots rank by rank. In its model they hold the experts one after the other, or
/// dealt to one rank after the other, the copies after all others; in a draft the expert of a slot
/// has its number, and there are no copies.
#[test]
fn sglang_fills_slots_as_it_numbers_them() {
    let mut seen = 0;
    for (experts, ep, copies) in [
        (8, 1, 0),
        (8, 1, 3),
        (8, 2, 0),
        (8, 2, 2),
        (8, 4, 4),
        (8, 4, 12),
        (6, 4, 2),
        (7, 2, 1),
        (12, 3, 6),
        (10, 5, 5),
        (8, 8, 8),
    ] {
        let config = config("deepseek_v3", experts, 1);
        for round in [false, true] {
            let placement = if round { "round_robin" } else { "linear" };
            let spec = format!(
                "sglang:tp={ep},ep={ep},attn_dp={ep},redundant={copies},placement={placement},mtp=1"
            );
            let each = (experts + copies) / ep;
            for rank in 0..ep {
                let layout = layout(&config, &spec, rank).unwrap_or_else(|e| panic!("{spec}: {e}"));
                let model = |slot: u64| match round {
                    true => Some((rank + slot * ep) % experts),
                    false => Some((rank * each + slot) % experts),
                };
                let draft = |slot: u64| Some(rank * each + slot).filter(|&slot| slot < experts);
                for part in ["w13_weight", "w2_weight"] {
                    let wanted: Vec<_> = (0..each).map(model).collect();
                    assert_eq!(held(stack(&layout, &format!("{MAIN}{part}"))), wanted, "{spec}");
                    let wanted: Vec<_> = (0..each).map(draft).collect();
                    assert_eq!(held(stack(&layout, &format!("{DRAFT}{part}"))), wanted, "{spec}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 144);
}

/// Which class has room for copies: with any number of them it takes them, or none.
#[test]
fn copies_are_refused_where_a_class_has_no_room_for_them() {
    for (model_type, vllm, sglang) in [
        ("mixtral", true, false),
        ("qwen2_moe", false, true),
        ("qwen3_moe", true, true),
        ("glm4_moe", true, false),
        ("glm4_moe_lite", true, true),
        ("glm_moe_dsa", true, true),
        ("deepseek_v2", true, true),
        ("deepseek_v3", true, true),
        ("kimi_k2", true, true),
    ] {
        let config = config(model_type, 8, 0);
        for (spec, takes) in [("vllm:tp=4,ep=4", vllm), ("sglang:tp=4,ep=4", sglang)] {
            for (copies, divides) in [(0, true), (3, false), (4, true), (5, false), (8, true)] {
                let found = layout(&config, &format!("{spec},redundant={copies}"), 3);
                let right = (takes && divides) || copies == 0;
                assert_eq!(found.is_ok(), right, "{model_type} {spec} {copies}: {found:?}");
                let told = found.err().map_or(String::new(), |error| error.to_string());
                let no_room = told.contains("no room") && told.contains(model_type);
                assert_eq!(no_room, !takes && copies > 0, "{told}");
            }
        }
    }
}

#[test]
fn vllm_wants_experts_spread_before_it_copies_them() {
    let config = config("deepseek_v3", 8, 0);
    for (degrees, copies, right) in [
        ("tp=1", 0, true),
        ("tp=1", 8, false),
        ("tp=1,dp=1,ep=1", 1, false),
        ("tp=4", 0, true),
        ("tp=4", 4, false),
        ("tp=4,ep=4", 4, true),
        ("tp=2,dp=2", 4, false),
        ("tp=2,dp=2,ep=4", 4, true),
    ] {
        let found = layout(&config, &format!("vllm:{degrees},redundant={copies}"), 0);
        assert_eq!(found.is_ok(), right, "{degrees} {copies}: {found:?}");
        let told = found.err().map_or(String::new(), |error| error.to_string());
        assert!(right || told.contains("ep=tp*dp"), "{told}");
    }
    // SGLang copies them on one rank as well.
    assert!(layout(&config, "sglang:tp=1,redundant=8", 0).is_ok());
}

#[test]
fn sglang_refuses_more_ranks_than_experts() {
    for experts in 3..10 {
        let config = config("qwen3_moe", experts, 0);
        let found = |spec: &str| layout(&config, spec, 0);
        assert_eq!(found("sglang:tp=8").is_ok(), experts >= 8, "{experts}");
        assert_eq!(found("sglang:tp=4").is_ok(), experts >= 4, "{experts}");
        assert!(found("vllm:tp=8").is_ok(), "{experts}");
        // Copies do not count.
        let copied = format!("sglang:tp=8,redundant={}", 16 - experts);
        assert_eq!(found(&copied).is_ok(), experts >= 8, "{experts}");
    }
    let dense = json!({"model_type": "qwen3", "n_routed_experts": 0});
    let mut config = config("qwen3", 0, 0);
    config["model_type"] = dense["model_type"].clone();
    assert!(layout(&config, "sglang:tp=8", 0).is_ok());
}

#[test]
fn sglang_takes_one_draft_layer() {
    for (drafts, vllm, sglang) in
        [(0, true, true), (1, true, true), (2, true, false), (3, true, false)]
    {
        let config = config("deepseek_v3", 8, drafts);
        assert_eq!(layout(&config, "vllm:tp=2,mtp=1", 0).is_ok(), vllm, "{drafts}");
        assert_eq!(layout(&config, "sglang:tp=2,mtp=1", 0).is_ok(), sglang, "{drafts}");
        assert!(layout(&config, "sglang:tp=2", 0).is_ok(), "{drafts}");
    }
}

/// Whoever trains it: what the checkpoint has of the draft's own is left, and nothing is missing.
#[test]
fn a_draft_with_the_vocabulary_of_its_model_is_moved_whole() {
    let config = config("deepseek_v3", 8, 1);
    for trainer in ["ddp:dp=2,mtp=1", "fsdp2:dp=2,mtp=1", "megatron:tp=2,mtp=1"] {
        let [source, target] =
            [trainer, "sglang:tp=2,ep=2,mtp=1"].map(|spec| cluster(&config, spec).expect("one"));
        let plan = movement::plan(&source, &target, 1, 8).expect("a plan");
        assert_eq!(plan.defects, Vec::<String>::new(), "{trainer}");
        let layout = target.layout(0).expect("a layout");
        let vocabulary: Vec<&str> = layout
            .records
            .iter()
            .map(|r| r.name.as_str())
            .filter(|name| name.contains("embed_tokens") || name.contains("head."))
            .collect();
        assert_eq!(
            vocabulary,
            ["model.embed_tokens.weight", "lm_head.weight", "draft.model.shared_head.norm.weight"]
        );
    }
    // The rest of a draft is not left.
    let plain = cluster(&config, "sglang:tp=2").expect("one");
    let source = cluster(&config, "ddp:dp=1,mtp=1").expect("one");
    let lost = movement::plan(&source, &plain, 1, 8).expect("a plan").defects;
    assert!(lost.iter().any(|defect| defect.contains("taken by no target rank")), "{lost:?}");
}
