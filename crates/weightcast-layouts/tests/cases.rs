//! The transfers that published systems report: ideal bytes for each rank and host.

mod common;

use serde_json::Value;
use weightcast_layouts::{Cluster, fleet};

/// The trainer of a case: Megatron where its degrees are given, else FSDP over all its ranks.
fn trainer(case: &Value) -> String {
    let trainer = &case["trainer"];
    let ranges = trainer["pp_ranges"].as_array().expect("stages");
    let layers: Vec<String> = ranges
        .iter()
        .map(|r| (r[1].as_u64().expect("end") - r[0].as_u64().expect("start")).to_string())
        .collect();
    let stages = layers.len();
    let layers = layers.join("+");
    let ranks = trainer["ranks"].as_u64().expect("ranks");
    match trainer["parallelism"].as_object() {
        Some(p) => format!(
            "megatron:tp={},pp={},cp={},ep={},dp={},pp_layers={layers}",
            p["tp"], p["pp"], p["cp"], p["ep"], p["dp"]
        ),
        None if stages > 1 => {
            let each = ranks / stages as u64;
            format!("megatron:pp={stages},dp={each},ep={each},pp_layers={layers}")
        }
        None => format!("fsdp2:dp={ranks}"),
    }
}

fn engine(case: &Value) -> String {
    let inference = &case["inference"];
    let mut spec =
        format!("{}:tp={}", case["engine"].as_str().expect("an engine"), inference["tp"]);
    for key in ["ep", "attn_dp", "block"] {
        if let Some(value) = inference.get(key).filter(|v| !v.is_null()) {
            spec += &format!(",{key}={value}");
        }
    }
    if inference.get("moe_dense_tp1").is_some_and(|v| v == true) {
        spec += ",moe_dense_tp=1";
    }
    if inference["quant"] == "fp8" {
        spec += ",quant=fp8";
    }
    spec
}

#[test]
fn every_case_moves_the_ideal_bytes() {
    let (_, cases) =
        common::folder("cases").into_iter().find(|(f, _)| f == "cases").expect("cases");
    let mut seen = 0;
    for case in cases["cases"].as_array().expect("cases") {
        if case["engine"].is_null() {
            continue;
        }
        let name = case["case"].as_str().expect("a name");
        let model = common::model(case["model"].as_str().expect("a model"));
        let cluster = |spec: String| Cluster::new(&model, &spec.parse().expect("a spec"));
        let source = cluster(trainer(case)).expect("a trainer");
        let target = cluster(engine(case)).expect("an engine");
        let replicas = case["inference"]["engines"].as_u64().expect("engines");
        let plan = fleet::plan(&source, &target, replicas, 8).expect("a plan");
        assert_eq!(plan.defects, Vec::<String>::new(), "{name}");
        let ideal = case["P_bytes"]["max"].as_u64().expect("bytes");
        assert!(plan.per_target.iter().all(|&bytes| bytes == ideal), "{name}: {ideal}");
        let most = plan.per_source.iter().copied().max().expect("a source") as f64;
        let bound = case["min_send_per_trainer_rank_pp_bound"].as_f64().expect("a bound");
        println!("{name}: {} {} send {:.4}", source.ranks(), target.ranks(), most / bound);
        assert!(most <= 1.05 * bound, "{name}: {most} of {bound}");
        let unique = case["unique_bytes_per_inference_node"].as_u64().expect("bytes");
        let entering = plan.host_in.iter().copied().max().expect("a host");
        assert_eq!(entering, unique, "{name}: {:?}", plan.host_in);
        seen += 1;
    }
    assert_eq!(seen, 19);
}
