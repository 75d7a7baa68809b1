//! `weightcast replay`: the story of one simulated world.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use weightcast_sim::{StoryEvent, replay};

use crate::harshness::Harsh;
use crate::sim::mutant_named;

/// Arguments of `replay`.
#[derive(Args)]
pub(crate) struct Replay {
    /// The seed
    seed: u64,
    /// With this mutant's safeguards switched off
    #[arg(long, conflicts_with_all = ["servers", "call_deadline", "fault_rate", "harsh"])]
    mutant: Option<String>,
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

#[derive(Serialize)]
struct Story<'a> {
    seed: u64,
    options: String,
    events: u64,
    lines: Vec<StoryLine<'a>>,
    violations: Vec<StoryViolation<'a>>,
}

#[derive(Serialize)]
struct StoryLine<'a> {
    step: u64,
    seconds: f64,
    who: &'a str,
    what: &'a str,
    invariant: Option<&'a str>,
}

#[derive(Serialize)]
struct StoryViolation<'a> {
    invariant: &'a str,
    step: u64,
    detail: &'a str,
}

pub(crate) fn run(arguments: &Replay) -> anyhow::Result<()> {
    let options = match &arguments.mutant {
        Some(name) => mutant_named(name)?.options(arguments.seed),
        None => arguments.harsh.harshness().options(arguments.seed),
    };
    let (report, lines) = replay(arguments.seed, &options);
    let wanted = arguments.from..=arguments.to;
    let lines: Vec<&StoryEvent> = lines.iter().filter(|line| wanted.contains(&line.step)).collect();
    // Whoever reads may stop at any line.
    let mut out = std::io::stdout().lock();
    let _ = if arguments.json {
        let violations = report.violations.iter().map(|violation| StoryViolation {
            invariant: &violation.invariant,
            step: violation.step,
            detail: &violation.detail,
        });
        let story = Story {
            seed: report.seed,
            options: options.to_string(),
            events: report.events,
            lines: lines.iter().copied().map(story_line).collect(),
            violations: violations.collect(),
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&story)?)
    } else {
        write!(out, "seed {}\n{options}\n", report.seed)
            .and_then(|()| lines.iter().try_for_each(|line| writeln!(out, "{line}")))
            .and_then(|()| {
                let violations = report.violations.len();
                writeln!(out, "\n{} events, {violations} violations", report.events)
            })
    };
    Ok(())
}

fn story_line(line: &StoryEvent) -> StoryLine<'_> {
    StoryLine {
        step: line.step,
        seconds: line.at.0 as f64 / 1e9,
        who: &line.who,
        what: &line.what,
        invariant: line.invariant.as_deref(),
    }
}
