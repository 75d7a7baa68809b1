//! One published transfer.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use weightcast_fleet::Cluster;
use weightcast_fleet::movement::{self, AssumedMachine, Cost, FleetPlan, UpdatePart};

use super::{model, specs};

/// Machines for which the published updates are predicted: the ways that are built, and what could be.
const MACHINES: [&str; 2] = ["h100-tcp", "h100-rdma"];
/// Bytes that a source may use for what it converts.
const BUDGET: u64 = 1 << 30;
/// Seconds that are reported in words, by how the names of their cases begin: the first two by the two-second post
/// (which gives no layout of the engines, so that three are planned), the last by its update.
const REPORTED: [(&str, f64); 3] =
    [("seed000/Qwen3-235B", 2.0), ("seed000/DSV2-Lite PoC fp8", 0.44), ("slime/Qwen3-235B", 8.0)];

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
    pub(super) updates: Vec<PredictedUpdate>,
    pub(super) reported_s: Option<f64>,
    pub(super) copies: u64,
    pub(super) messages: u64,
    pub(super) plan_s: f64,
    pub(super) coverage: String,
}

/// A whole update as predicted for one machine.
#[derive(Serialize)]
pub(super) struct PredictedUpdate {
    pub(super) machine: AssumedMachine,
    pub(super) parts: Vec<UpdatePart>,
    pub(super) predicted_s: f64,
}

fn update(plan: &FleetPlan, machine: AssumedMachine) -> PredictedUpdate {
    let cost = Cost::of(plan, &machine, BUDGET);
    PredictedUpdate { machine, predicted_s: cost.predicted(), parts: cost.parts }
}

fn reported(case: &Value, name: &str) -> Option<f64> {
    let in_words = || REPORTED.iter().find(|(begin, _)| name.starts_with(begin)).map(|r| r.1);
    case["reported_rdma_ms"].as_f64().map(|ms| ms / 1e3).or_else(in_words)
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
    let machines =
        MACHINES.map(|name| AssumedMachine::named(name).expect("a machine that is described"));
    let plan = movement::plan(&source, &target, replicas, machines[0].gpus_per_host)?;
    let plan_s = started.elapsed().as_secs_f64();
    let lower_bound_s = Cost::of(&plan, &machines[0], BUDGET).lower_bound;
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
        lower_bound_s,
        updates: machines.map(|machine| update(&plan, machine)).into(),
        reported_s: reported(case, name),
        copies: plan.copies,
        messages: plan.messages,
        plan_s,
        coverage: plan.defects.first().cloned().unwrap_or_else(|| "exact".into()),
        source: from,
        target: to,
    })
}
