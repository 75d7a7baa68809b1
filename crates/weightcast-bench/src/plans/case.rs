//! One published transfer.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use weightcast_fleet::Cluster;
use weightcast_fleet::movement::{self, Cost, Hardware};

use super::{model, specs};

/// Ranks of a host that the data set's bounds assume.
const GPUS_PER_HOST: u64 = 8;
/// Bytes a second of a NIC that the data set's bounds assume.
const NIC: f64 = 50e9;

#[derive(Serialize)]
pub(super) struct CaseRow {
    pub(super) case: String,
    pub(super) source: String,
    pub(super) target: String,
    pub(super) per_target_bytes: u64,
    pub(super) target_of_ideal: f64,
    pub(super) send_of_ideal: f64,
    pub(super) host_in_of_ideal: Option<f64>,
    pub(super) lower_bound_s: f64,
    pub(super) predicted_s: f64,
    pub(super) reported_s: Option<f64>,
    pub(super) copies: u64,
    pub(super) messages: u64,
    pub(super) plan_s: f64,
    pub(super) coverage: String,
}

/// All cases that name a model.
pub(super) fn all(data: &Path) -> anyhow::Result<Vec<CaseRow>> {
    let file = data.join("cases/cases.json");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let cases: Value = serde_json::from_str(&text)?;
    let cases = cases["cases"].as_array().context("cases.json lists no cases")?;
    cases.iter().filter(|case| case["model"].is_string()).map(|case| row(data, case)).collect()
}

fn row(data: &Path, case: &Value) -> anyhow::Result<CaseRow> {
    let name = case["case"].as_str().context("a case without a name")?;
    let (from, to) = (specs::trainer(case).context("a case without ranks")?, specs::engine(case));
    let model = model(data, case["model"].as_str().unwrap_or_default())?;
    let started = Instant::now();
    let source = Cluster::new(&model, &from.parse()?)?;
    let target = Cluster::new(&model, &to.parse()?)?;
    let replicas = case["inference"]["engines"].as_u64().unwrap_or(1);
    let plan = movement::plan(&source, &target, replicas, GPUS_PER_HOST)?;
    let plan_s = started.elapsed().as_secs_f64();
    let hardware = Hardware { gpus_per_host: GPUS_PER_HOST, nic: NIC, budget: 1 << 30 };
    let cost = Cost::of(&plan, &hardware);
    let most = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
    let ideal = |value: &Value| value.as_f64().context("a case without ideal bytes");
    let send = &case["min_send_per_trainer_rank_pp_bound"];
    let send = if send.is_null() { &case["min_send_per_trainer_rank"] } else { send };
    let unique = case["unique_bytes_per_inference_node"].as_f64();
    Ok(CaseRow {
        case: name.to_owned(),
        per_target_bytes: most(&plan.per_target),
        target_of_ideal: most(&plan.per_target) as f64 / ideal(&case["P_bytes"]["max"])?,
        send_of_ideal: most(&plan.per_source) as f64 / ideal(send)?,
        host_in_of_ideal: unique.map(|unique| most(&plan.host_in) as f64 / unique),
        lower_bound_s: cost.lower_bound,
        predicted_s: cost.predicted,
        reported_s: case["reported_rdma_ms"].as_f64().map(|ms| ms / 1e3),
        copies: plan.copies,
        messages: plan.messages,
        plan_s,
        coverage: plan.defects.first().cloned().unwrap_or_else(|| "exact".into()),
        source: from,
        target: to,
    })
}
