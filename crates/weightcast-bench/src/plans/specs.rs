//! The specs of a published transfer, from its case in the data set.
//!
//! The tests of `weightcast-fleet` include this file too, so that both mean the same clusters.

use serde_json::Value;

/// The trainer's spec: `ddp` where the case gives no stages, Megatron where it gives degrees or
/// several stages, otherwise `fsdp2`. This fills what the sources leave open.
pub(crate) fn trainer(case: &Value) -> Option<String> {
    let trainer = &case["trainer"];
    let ranks = trainer["ranks"].as_u64()?;
    let Some(stages) = trainer["pp_ranges"].as_array() else {
        return Some(format!("ddp:dp={ranks},dtype={}", dtype(case)));
    };
    let size = |r: &Value| r[1].as_u64().unwrap_or(0).saturating_sub(r[0].as_u64().unwrap_or(0));
    let layers: Vec<String> = stages.iter().map(|r| size(r).to_string()).collect();
    let layers = layers.join("+");
    Some(match trainer["parallelism"].as_object() {
        Some(p) => format!(
            "megatron:tp={},pp={},cp={},ep={},dp={},pp_layers={layers}",
            p["tp"], p["pp"], p["cp"], p["ep"], p["dp"]
        ),
        None if stages.len() > 1 => {
            let each = ranks / stages.len() as u64;
            format!("megatron:pp={},dp={each},ep={each},pp_layers={layers}", stages.len())
        }
        None => format!("fsdp2:dp={ranks}"),
    })
}

/// The engine's spec; a whole copy if the case names no engine.
pub(crate) fn engine(case: &Value) -> String {
    let inference = &case["inference"];
    let Some(engine) = case["engine"].as_str() else {
        return format!("ddp:dtype={}", dtype(case));
    };
    let mut spec = format!("{engine}:tp={}", inference["tp"]);
    for key in ["ep", "attn_dp", "block"] {
        if let Some(value) = inference.get(key).filter(|v| !v.is_null()) {
            spec += &format!(",{key}={value}");
        }
    }
    if inference["moe_dense_tp1"] == true {
        spec += ",moe_dense_tp=1";
    }
    if inference["quant"] == "fp8" {
        spec += ",quant=fp8";
    }
    spec
}

/// The dtype of a case without an engine: BF16 if the case's name says so, otherwise FP32.
fn dtype(case: &Value) -> &'static str {
    let name = case["case"].as_str().unwrap_or_default();
    if name.contains("bf16") { "bf16" } else { "fp32" }
}
