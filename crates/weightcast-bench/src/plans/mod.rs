//! `weightcast bench plan`: plans the transfers that published systems report, and shows what
//! planning costs against ranks and models.

mod case;
mod cost;
mod specs;
mod update;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use weightcast_fleet::model::ModelSpec;

use case::CaseRow;
use cost::CostRow;

/// Plan the transfers that published systems report, and time the planner.
///
/// Reads the layout data set: cases/cases.json and configs/. Nothing is moved.
#[derive(Args)]
pub(crate) struct PlanOf {
    /// The data set's folder
    #[arg(long, value_name = "DIR", default_value = "crates/weightcast-fleet/tests/data")]
    data: PathBuf,
    /// Runs of each timing; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PlansReport {
    cases: Vec<CaseRow>,
    cost_by_ranks: Vec<CostRow>,
    cost_by_model: Vec<CostRow>,
}

pub(crate) fn run(asked: &PlanOf) -> anyhow::Result<()> {
    let report = PlansReport {
        cases: case::all(&asked.data)?,
        cost_by_ranks: cost::by_ranks(&asked.data, asked.runs)?,
        cost_by_model: cost::by_model(&asked.data, asked.runs)?,
    };
    match asked.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", table(&report)),
    }
    Ok(())
}

/// Reads a model from a config of the data set.
fn model(data: &Path, name: &str) -> anyhow::Result<ModelSpec> {
    weightcast_cli::read_model(&data.join("configs").join(format!("{name}.json")))
        .with_context(|| format!("model {name}"))
}

/// A bar chart of the seconds for a whole cluster.
fn chart(what: &str, rows: &[CostRow]) -> String {
    let most = rows.iter().map(|row| row.cluster_s).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("\n```\nseconds for a whole cluster, by {what}\n");
    for row in rows {
        let bar = "#".repeat((row.cluster_s / most * 50.0).ceil() as usize);
        text += &format!("{:>16}  {bar} {:.3}\n", row.what, row.cluster_s);
    }
    text + "```\n"
}

fn table(report: &PlansReport) -> String {
    let mut text = String::from(
        "| case | P GB | P of ideal | send of ideal | host in of ideal | bound s | \
         copies | messages | planned s | coverage |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in &report.cases {
        let host = row.host_in_of_ideal.map_or("-".into(), |r| format!("{r:.4}"));
        text += &format!(
            "| {} | {:.3} | {:.4} | {:.4} | {host} | {:.3} | {} | {} | {:.2} | {} |\n",
            row.case,
            row.per_target_bytes as f64 / 1e9,
            row.target_of_ideal,
            row.send_of_ideal,
            row.lower_bound_s,
            row.copies,
            row.messages,
            row.plan_s,
            row.coverage,
        );
    }
    text += &update::table(&report.cases);
    for (what, rows) in [("ranks", &report.cost_by_ranks), ("model", &report.cost_by_model)] {
        text += &format!(
            "\n| {what} | tensors | ranks | cluster s | one rank s |\n|---|---|---|---|---|\n"
        );
        for row in rows {
            let CostRow { what, tensors, ranks, cluster_s, rank_s } = row;
            text += &format!(
                "| {what} | {tensors} | {ranks} -> {ranks} | {cluster_s:.3} | {rank_s:.3} |\n"
            );
        }
        text += &chart(what, rows);
    }
    text
}
