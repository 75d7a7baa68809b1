//! `weightcast plan`: a transfer between whole clusters, its bytes, its time, its proof.

mod explain;
mod given;
pub(crate) mod layout;
mod lock;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use weightcast_fleet::Cluster;
use weightcast_fleet::movement::{self, Assumed, AssumedMachine, Cost};

use crate::output;
use given::GivenSide;
use layout::GRAMMAR;
use report::PlanReport;

pub use explain::explain_json;

/// Most ranks of a host, and most engines.
const MOST_GPUS: u64 = 1024;
const MOST_REPLICAS: u64 = 65_536;

/// Plan a transfer from all ranks of a trainer to all ranks of engines.
///
/// Which source sends what to which rank and host, proved to write every byte exactly once; bytes for each rank and
/// host; the predicted time of a whole update on a machine, part by part, beside the bound that the NICs set. Nothing is
/// moved.
#[derive(Args)]
#[command(after_help = GRAMMAR, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    command: Option<PlanCommand>,
    #[command(flatten)]
    transfer: Option<PlannedTransfer>,
    /// Ranks, and NICs, of a host
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=MOST_GPUS))]
    gpus_per_host: u64,
    /// Machine whose figures predict the time: host-tcp, h100-tcp or h100-rdma (not built)
    #[arg(long, value_name = "NAME", default_value = AssumedMachine::ALL[0].name, value_parser = machine)]
    machine: AssumedMachine,
    /// Rate of a NIC, in gigabits a second, instead of the machine's
    #[arg(long, value_parser = rate)]
    nic_gbps: Option<f64>,
    /// Bytes that a source may use for weights that it converts
    #[arg(long, default_value_t = 1 << 30)]
    budget: u64,
    /// Write the plan's summary to a file; if it exists, check and fail on a difference
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum PlanCommand {
    /// Show where the bytes of a tensor come from and go to
    Explain(Box<explain::Explain>),
    /// Compare two lock files
    Diff(lock::Diff),
}

/// What is to be moved.
#[derive(Args)]
pub(super) struct PlannedTransfer {
    /// The model's config.json, as Hugging Face writes it; for a SPEC
    #[arg(long, value_name = "CONFIG.json")]
    pub(super) config: Option<PathBuf>,
    /// Who has the weights: by rule, or a file of their layouts
    #[arg(long, value_name = "SPEC|FILE.json")]
    pub(super) source: GivenSide,
    /// Who gets them
    #[arg(long, value_name = "SPEC|FILE.json")]
    pub(super) target: GivenSide,
    /// Number of engines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST_REPLICAS))]
    pub(super) replicas: u64,
}

impl PlannedTransfer {
    /// Both sides.
    pub(super) fn clusters(&self) -> anyhow::Result<(Cluster, Cluster)> {
        let config = self.config.as_deref();
        let source = self.source.cluster(config).context("--source")?;
        let target = self.target.cluster(config).context("--target")?;
        Ok((source, target))
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("give a rate above 0".into()),
    }
}

fn machine(name: &str) -> Result<AssumedMachine, String> {
    let names = || AssumedMachine::ALL.map(|machine| machine.name).join(", ");
    AssumedMachine::named(name).ok_or_else(|| format!("known machines are {}", names()))
}

impl PlanArguments {
    /// The machine with the figures that are given.
    fn machine(&self) -> AssumedMachine {
        let mut machine = AssumedMachine { gpus_per_host: self.gpus_per_host, ..self.machine };
        if let Some(gigabits) = self.nic_gbps {
            machine.nic = Assumed { value: gigabits * 1e9 / 8.0, from: "given: --nic-gbps" };
        }
        machine
    }
}

pub(crate) fn run(plan: &PlanArguments) -> anyhow::Result<()> {
    match &plan.command {
        Some(PlanCommand::Explain(explain)) => explain::run(explain),
        Some(PlanCommand::Diff(diff)) => lock::run(diff),
        None => make(plan),
    }
}

fn make(plan: &PlanArguments) -> anyhow::Result<()> {
    let transfer = plan.transfer.as_ref().context("give --source and --target")?;
    let (source, target) = transfer.clusters()?;
    let (report, made) = report(plan, transfer, &source, &target)?;
    for warning in &made.warnings {
        eprintln!("weightcast: warning: {warning}");
    }
    output::print(&match plan.json {
        true => serde_json::to_string(&report)? + "\n",
        false => report.table(),
    })?;
    if let Some(file) = &plan.lock {
        lock::hold(file, &lock::Lock::new(&report, &source, &target)?)?;
    }
    match made.defects.first() {
        None => Ok(()),
        Some(defect) => bail!("the plan does not cover everything: {defect}"),
    }
}

/// Plans, and says what it comes to.
fn report(
    plan: &PlanArguments,
    transfer: &PlannedTransfer,
    source: &Cluster,
    target: &Cluster,
) -> anyhow::Result<(PlanReport, movement::FleetPlan)> {
    let started = Instant::now();
    let made = movement::plan(source, target, transfer.replicas, plan.gpus_per_host)?;
    let plan_s = started.elapsed().as_secs_f64();
    let machine = plan.machine();
    let cost = Cost::of(&made, &machine, plan.budget);
    Ok((PlanReport::new(transfer, machine, &made, &cost, plan_s), made))
}

/// Both sides as a command line has them; a side may be the text of a file of layouts.
#[derive(Debug)]
pub struct GivenTransfer {
    /// A model's config, for a side by rule.
    pub config: Option<PathBuf>,
    /// Who has the weights.
    pub source: String,
    /// Who gets them.
    pub target: String,
    /// Number of engines.
    pub replicas: u64,
}

impl GivenTransfer {
    fn parsed(self) -> anyhow::Result<PlannedTransfer> {
        let side = |text: &str| text.parse().map_err(anyhow::Error::msg);
        Ok(PlannedTransfer {
            config: self.config,
            source: side(&self.source).context("source")?,
            target: side(&self.target).context("target")?,
            replicas: self.replicas,
        })
    }
}

/// What `weightcast plan --json` prints, for a program; `machine` and `nic_gbps` as the command takes them. What the plan
/// does not cover is no error here: it stands in `coverage`.
pub fn plan_json(
    transfer: GivenTransfer,
    gpus_per_host: u64,
    machine: &str,
    nic_gbps: Option<f64>,
    budget: u64,
) -> anyhow::Result<String> {
    let within = |what: &str, value: u64, most: u64| match (1..=most).contains(&value) {
        true => Ok(()),
        false => bail!("{what} is {value}; 1 to {most} are supported"),
    };
    within("replicas", transfer.replicas, MOST_REPLICAS)?;
    within("gpus_per_host", gpus_per_host, MOST_GPUS)?;
    let machine = self::machine(machine).map_err(anyhow::Error::msg)?;
    let nic_gbps = nic_gbps.map(|gbps| rate(&gbps.to_string())).transpose();
    let plan = PlanArguments {
        command: None,
        transfer: Some(transfer.parsed()?),
        gpus_per_host,
        machine,
        nic_gbps: nic_gbps.map_err(anyhow::Error::msg)?,
        budget,
        lock: None,
        json: true,
    };
    let transfer = plan.transfer.as_ref().expect("just given");
    let (source, target) = transfer.clusters()?;
    Ok(serde_json::to_string(&report(&plan, transfer, &source, &target)?.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_above_nothing() {
        for (text, right) in [
            ("400", Some(400.0)),
            ("0.5", Some(0.5)),
            ("0", None),
            ("-1", None),
            ("inf", None),
            ("nan", None),
            ("x", None),
        ] {
            assert_eq!(rate(text).ok(), right, "{text}");
        }
    }

    #[test]
    fn machines_are_known_by_name() {
        for known in AssumedMachine::ALL {
            assert_eq!(machine(known.name), Ok(known));
        }
        let told = machine("a100").expect_err("unknown");
        assert_eq!(told, "known machines are host-tcp, h100-tcp, h100-rdma");
    }
}
