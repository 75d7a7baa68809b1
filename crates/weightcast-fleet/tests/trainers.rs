//! Every Megatron golden, and the worked example of FSDP with expert meshes. (torch's own
//! placements are checked in `weightcast-plan`.)

use crate::common;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use weightcast_fleet::model::{Config, ModelSpec};
use weightcast_fleet::trainer::{Megatron, Parallelism};
use weightcast_fleet::{Cluster, RankLayout, Record, Side, Spec};

fn golden(name: &str) -> Value {
    let found = common::folder("trainer").into_iter().find(|(file, _)| file == name);
    found.expect("a golden").1
}

fn cases(kind: &str) -> Vec<Value> {
    let cases = golden("megatron_golden")["cases"].as_array().expect("cases").clone();
    let cases: Vec<Value> = cases.into_iter().filter(|case| case["case"] == kind).collect();
    assert!(!cases.is_empty(), "no {kind} case");
    cases
}

/// A decoder with these numbers instead of small ones.
fn decoder(numbers: Value) -> ModelSpec {
    let mut config = json!({
        "model_type": "qwen3", "dtype": "bfloat16", "vocab_size": 64, "hidden_size": 8,
        "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "head_dim": 4,
    });
    for (key, value) in numbers.as_object().expect("numbers") {
        config[key] = value.clone();
    }
    ModelSpec::of(&Config::parse(&config.to_string()).expect("an object")).expect("a model")
}

fn layouts(model: &ModelSpec, spec: &str) -> Vec<RankLayout> {
    let cluster = Cluster::new(model, &spec.parse().expect("a spec")).expect("a cluster");
    (0..cluster.ranks()).map(|rank| cluster.layout(rank).expect("a layout")).collect()
}

fn record<'a>(layout: &'a RankLayout, end: &str) -> &'a Record {
    layout.records.iter().find(|r| r.name.ends_with(end)).expect("a record")
}

/// For each published row of `tensor` its local row.
fn rows(record: &Record, tensor: &str) -> BTreeMap<u64, u64> {
    let of = |piece: &weightcast_fleet::ParameterPiece| {
        let (start, len, at) = (piece.slice.start[0], piece.slice.len[0], piece.target_start);
        (0..len).map(move |row| (start + row, at + row)).collect::<Vec<_>>()
    };
    let pieces = record.pieces.iter().filter(|p| p.tensor.contains(tensor));
    pieces.flat_map(of).collect()
}

#[test]
fn query_key_value_rows_are_interleaved_by_group() {
    for case in cases("linear_qkv") {
        let (heads, groups, head) = (&case["nh"], &case["ng"], &case["hd"]);
        let model = decoder(json!({
            "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head,
        }));
        let spec = format!("megatron:tp={}", case["tp"]);
        let mut found: BTreeMap<&str, BTreeMap<u64, [u64; 2]>> = BTreeMap::new();
        for (rank, layout) in layouts(&model, &spec).iter().enumerate() {
            for tensor in ["q_proj", "k_proj", "v_proj"] {
                let rows = rows(record(layout, "linear_qkv.weight"), tensor);
                let owned = rows.into_iter().map(|(row, at)| (row, [rank as u64, at]));
                found.entry(tensor).or_default().extend(owned);
            }
        }
        for (tensor, wanted) in
            case["owner_rank_and_local_row_of_hf_row"].as_object().expect("rows")
        {
            let found: Vec<[u64; 2]> = found[tensor.as_str()].values().copied().collect();
            assert_eq!(json!(found), *wanted, "{spec} {tensor}");
        }
    }
}

#[test]
fn each_rank_has_its_gate_above_its_up() {
    for case in cases("linear_fc1_gated") {
        let model = decoder(json!({ "intermediate_size": case["I"], "num_attention_heads": 6,
            "num_key_value_heads": 6 }));
        let found: Vec<Vec<u64>> = layouts(&model, &format!("megatron:tp={}", case["tp"]))
            .iter()
            .map(|layout| {
                let record = record(layout, "linear_fc1.weight");
                let mut local = BTreeMap::new();
                for (tensor, base) in [("gate_proj", 0), ("up_proj", 100)] {
                    local
                        .extend(rows(record, tensor).into_iter().map(|(row, at)| (at, base + row)));
                }
                local.into_values().collect()
            })
            .collect();
        assert_eq!(json!(found), case["rank_local_rows(gate i, up 100+i)"]);
    }
}

#[test]
fn a_fused_gate_up_stays_one_tensor() {
    let model = common::model("glm-z1-9b");
    let layout = &layouts(&model, "megatron:tp=2")[1];
    let record = record(layout, "mlp.linear_fc1.weight");
    for case in cases("glm4_fc1_stays_fused") {
        for name in case["names"].as_array().expect("names") {
            let name = name.as_str().expect("a name").replace(".0.", ".{L}.");
            assert!(record.pieces.iter().all(|piece| piece.tensor == name));
        }
    }
    let starts: Vec<u64> = record.pieces.iter().map(|piece| piece.slice.start[0]).collect();
    assert_eq!(starts, [6848, 13696 + 6848]);
}

#[test]
fn indexer_rows_are_rotated_within_heads() {
    let layout = &layouts(&common::model("glm-5"), "megatron:tp=2,pp=2")[0];
    for case in cases("dsa_indexer_wq_b_permutation") {
        let wanted = &case["hf_row_to_mcore_row_first_256"];
        let found = rows(record(layout, "indexer.linear_wq_b.weight"), "wq_b");
        let first: Vec<u64> = found.values().take(256).copied().collect();
        assert_eq!(json!(first), *wanted);
        for name in ["linear_wk.weight", "k_norm.weight", "k_norm.bias"] {
            let found = rows(record(layout, &format!("indexer.{name}")), "indexer");
            let found: Vec<u64> = found.values().copied().collect();
            assert_eq!(json!(found), json!(wanted.as_array().expect("rows")[..128]));
        }
    }
}

#[test]
fn ranks_stand_where_megatron_puts_them() {
    for case in cases("rank_grid") {
        let degree = |key: &str| case[key].as_u64().expect("a degree");
        let [tp, pp, cp, ep, etp] = ["tp", "pp", "cp", "ep", "etp"].map(degree);
        let dp = degree("world") / (tp * pp * cp);
        let megatron =
            Megatron { tp, pp, pp_layers: Vec::new(), cp, ep, etp, dp, vocab_multiple: 128 };
        for wanted in case["coords_sample"].as_array().expect("coordinates") {
            let at = megatron.coordinates(wanted["rank"].as_u64().expect("a rank")).expect("one");
            let found = json!({
                "rank": wanted["rank"], "pp": at.pp, "tp": at.tp, "cp": at.cp, "dp": at.dp,
                "etp": at.etp, "ep": at.ep, "edp": at.edp,
            });
            assert_eq!(&found, wanted);
        }
    }
}

#[test]
fn stages_have_the_layers_that_they_are_given() {
    for case in cases("pp_split") {
        let layers = case["num_layers"].as_u64().expect("layers");
        let model = decoder(json!({ "num_hidden_layers": layers }));
        let (pp, last) = (
            case["pp"].as_u64().expect("stages"),
            case["decoder_last_pipeline_num_layers"].as_u64().expect("layers"),
        );
        let mut given = vec![((layers - last) / (pp - 1)).to_string(); pp as usize - 1];
        given.push(last.to_string());
        let spec = format!("megatron:pp={pp},pp_layers={}", given.join("+"));
        let found: Vec<[u64; 2]> = layouts(&model, &spec)
            .iter()
            .map(|layout| {
                let (first, last) = record(layout, "linear_proj.weight").layers.expect("layers");
                [first, last + 1]
            })
            .collect();
        assert_eq!(json!(found), case["ranges"]);
    }
}

#[test]
fn vocabularies_are_padded() {
    for case in cases("vocab_pad") {
        let model = decoder(json!({ "vocab_size": case["vocab"], "num_attention_heads": 8,
            "num_key_value_heads": 8, "intermediate_size": 8 }));
        let spec = format!(
            "megatron:tp={},vocab_multiple={}",
            case["tp"], case["make_vocab_size_divisible_by"]
        );
        let layouts = layouts(&model, &spec);
        let records = || layouts.iter().map(|l| record(l, "word_embeddings.weight"));
        let padded: u64 = records().map(|r| r.shape[0]).sum();
        assert_eq!(json!(padded), case["padded"]);
        let filled: u64 = records().flat_map(|r| &r.pieces).map(|p| p.slice.len[0]).sum();
        assert_eq!(json!(filled), case["vocab"], "padding has no source");
    }
}

#[test]
fn expert_meshes_of_the_worked_example() {
    let golden = golden("seed000_mesh");
    let model = common::model("qwen3-30b-a3b");
    let spec: Spec = "fsdp_ep:fsdp=2,pp=2,ep=8".parse().expect("a spec");
    let Side::Trainer(trainer) = &spec.side else { panic!("a trainer") };
    assert!(matches!(trainer.parallelism, Parallelism::FsdpEp { fsdp: 2, pp: 2, ep: 8, .. }));
    let layouts = layouts(&model, &spec.text);
    for (kind, tensor) in [("non_moe", "q_proj.weight"), ("moe", "down_proj.weight")] {
        for mesh in golden[kind]["meshes"].as_array().expect("meshes") {
            let ranks = mesh.as_array().expect("ranks").iter();
            let held: Vec<&Record> = ranks
                .map(|rank| record(&layouts[rank.as_u64().expect("a rank") as usize], tensor))
                .collect();
            assert!(held.iter().all(|r| r.name == held[0].name && r.layers == held[0].layers));
            let rows: u64 = held.iter().map(|r| r.shape[0]).sum();
            // The dense tensors are there once for each of the two fsdp ranks.
            assert_eq!(rows, if kind == "moe" { 2048 } else { 2 * 4096 });
        }
    }
    for at in golden["coords"].as_array().expect("coordinates") {
        let number = |key: &str| at[key].as_u64().expect("a number");
        let layout = &layouts[number("rank") as usize];
        let first = format!("experts.{}.up_proj.weight", 16 * number("ep"));
        let record = record(layout, &first);
        assert_eq!(record.layers, Some(if number("pp") == 0 { (0, 23) } else { (24, 47) }));
        assert_eq!(record.offset, Some(vec![number("fsdp") * 384, 0]));
    }
}
