//! `weightcast replay`: the story of one simulated world.

use std::io::Write;

use clap::Args;
use weightcast_sim::{Story, replay};

use super::harshness::Harsh;

/// Arguments of `replay`.
#[derive(Args)]
pub(crate) struct Replay {
    /// The seed
    seed: u64,
    /// From this step on
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Up to this step
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    #[command(flatten)]
    harsh: Harsh,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Replay) -> anyhow::Result<()> {
    let options = arguments.harsh.harshness().options(arguments.seed);
    let (report, events) = replay(arguments.seed, &options);
    let story = Story::of(&report, &options, &events, arguments.from..=arguments.to);
    // Whoever reads may stop at any line.
    let mut out = std::io::stdout().lock();
    let _ = match arguments.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&story)?),
        false => writeln!(out, "{story}"),
    };
    Ok(())
}
