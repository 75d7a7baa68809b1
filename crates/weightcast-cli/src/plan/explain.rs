//! `weightcast plan explain`: one tensor, or all that one rank gets.

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use weightcast_fleet::movement::{self, RankRoute};

use super::{GivenTransfer, PlannedTransfer};
use crate::output;

/// Show where the bytes of a tensor come from and go to; or all that a rank gets, with --rank.
#[derive(Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    transfer: PlannedTransfer,
    /// A published name, such as model.layers.0.self_attn.q_proj.weight; all, if none is given
    #[arg(long)]
    tensor: Option<String>,
    /// A target rank; all, if none is given
    #[arg(long)]
    rank: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RouteLine<'a> {
    tensor: &'a str,
    slice: String,
    bytes: u64,
    target: u32,
    parameter: &'a str,
    target_start: u64,
    expert: Option<u64>,
    source: u32,
    /// All that hold it.
    sources: &'a [u32],
}

pub(super) fn run(explain: &Explain) -> anyhow::Result<()> {
    if explain.tensor.is_none() && explain.rank.is_none() {
        bail!("name a tensor (--tensor) or a target rank (--rank)");
    }
    let routes = routes(&explain.transfer, explain.tensor.as_deref(), explain.rank)?;
    let lines: Vec<RouteLine<'_>> = routes.iter().map(line).collect();
    output::print(&match explain.json {
        true => serde_json::to_string(&lines)? + "\n",
        false => lines.iter().map(told).collect(),
    })
}

/// What `weightcast plan explain --json` prints, for a program.
pub fn explain_json(
    transfer: GivenTransfer,
    tensor: Option<&str>,
    rank: Option<u64>,
) -> anyhow::Result<String> {
    let routes = routes(&transfer.parsed()?, tensor, rank)?;
    let lines: Vec<RouteLine<'_>> = routes.iter().map(line).collect();
    Ok(serde_json::to_string(&lines)?)
}

fn routes(
    transfer: &PlannedTransfer,
    tensor: Option<&str>,
    rank: Option<u64>,
) -> anyhow::Result<Vec<RankRoute>> {
    let (source, target) = transfer.clusters()?;
    let routes = movement::routes(&source, &target, rank, tensor)?;
    if routes.is_empty() {
        let name = tensor.unwrap_or("anything");
        let near = movement::nearest_names(&target, name);
        bail!("no such rank holds {name}; nearest names: {}", near.join(", "));
    }
    Ok(routes)
}

fn told(line: &RouteLine<'_>) -> String {
    let slot = line.expert.map_or(String::new(), |slot| format!("[{slot}]"));
    format!(
        "{}{} -> rank {} {}{slot}[{}:], {} bytes from source rank {} of {:?}\n",
        line.tensor,
        line.slice,
        line.target,
        line.parameter,
        line.target_start,
        line.bytes,
        line.source,
        line.sources
    )
}

fn line(route: &RankRoute) -> RouteLine<'_> {
    RouteLine {
        tensor: &route.tensor,
        slice: route.slice.to_string(),
        bytes: route.bytes,
        target: route.target,
        parameter: &route.parameter,
        target_start: route.target_start,
        expert: route.expert,
        source: route.source,
        sources: &route.sources,
    }
}
