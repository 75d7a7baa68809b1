//! `weightcast replay`: the story of one simulated world, or of a recording.

use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use serde::Serialize;
use weightcast_protocol::limits::RECORDING_BYTES;
use weightcast_protocol::recording::Recording;
use weightcast_sim::{
    PushOptions, Retelling, RetoldEnd, Story, UpdateOptions, replay, retell, tell_pushes,
    tell_updates,
};

use super::harshness::Harsh;

pub(crate) const STATUS: &str = "\
Of a recording, the status is 0 if all outputs are as recorded and every invariant holds, 1 if an invariant is broken, \
the machine fails, or puts something else out, 2 if the file is no recording that this build can read.";

/// Arguments of `replay`.
#[derive(Args)]
pub(crate) struct Replay {
    /// A seed, or the file of a recording
    #[arg(value_name = "SEED|FILE", value_parser = what)]
    what: Replayed,
    /// From this step on
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Up to this step
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    /// The seed is one of a world of engine updates (`sim --updates`)
    #[arg(long, conflicts_with_all = ["from", "to", "servers", "call_deadline", "fault_rate", "harsh"])]
    updates: bool,
    /// The seed is one of a world of pushes (`sim --pushes`)
    #[arg(long, conflicts_with_all = [
        "from", "to", "updates", "servers", "call_deadline", "fault_rate", "harsh",
    ])]
    pushes: bool,
    #[command(flatten)]
    harsh: Harsh,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Replayed {
    World(u64),
    Recording(PathBuf),
}

/// A number is a seed. A file of such a name has a path that is no number.
fn what(text: &str) -> Result<Replayed, String> {
    match text.parse() {
        Ok(seed) => Ok(Replayed::World(seed)),
        Err(_) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err("no seed is that large".to_owned())
        }
        Err(_) => Ok(Replayed::Recording(text.into())),
    }
}

/// The exit status: see [`STATUS`].
pub(crate) fn run(arguments: &Replay) -> i32 {
    let steps = arguments.from..=arguments.to;
    let told = match &arguments.what {
        Replayed::World(seed) if arguments.updates => tell_world_of_updates(*seed, arguments.json),
        Replayed::World(seed) if arguments.pushes => tell_world_of_pushes(*seed, arguments.json),
        Replayed::World(seed) => tell_world(*seed, arguments, steps),
        Replayed::Recording(file) => tell_recording(file, arguments, steps),
    };
    told.unwrap_or_else(|error| {
        eprintln!("weightcast: {error:#}");
        2
    })
}

fn tell_world(seed: u64, arguments: &Replay, steps: RangeInclusive<u64>) -> anyhow::Result<i32> {
    let options = arguments.harsh.harshness().options(seed);
    let (report, events) = replay(seed, &options);
    tell(&Story::of(&report, &options, &events, steps), arguments.json)?;
    Ok(0)
}

fn tell_world_of_updates(seed: u64, json: bool) -> anyhow::Result<i32> {
    tell(&tell_updates(seed, &UpdateOptions::drawn(seed)).story(), json)?;
    Ok(0)
}

fn tell_world_of_pushes(seed: u64, json: bool) -> anyhow::Result<i32> {
    tell(&tell_pushes(seed, &PushOptions::drawn(seed)).story(), json)?;
    Ok(0)
}

fn tell_recording(
    file: &Path,
    arguments: &Replay,
    steps: RangeInclusive<u64>,
) -> anyhow::Result<i32> {
    let options = arguments.harsh.arguments();
    ensure!(options.is_empty(), "{options} is for worlds; a recording goes as it went");
    let named = || format!("cannot replay {}", file.display());
    let recording = read(file).with_context(named)?;
    let told = retell(&recording).with_context(named)?;
    tell(&Retelling::of(&recording, &told, steps), arguments.json)?;
    Ok(i32::from(told.1 != RetoldEnd::Faithful))
}

/// No more than any recording has.
fn read(file: &Path) -> anyhow::Result<Recording> {
    let mut bytes = Vec::new();
    File::open(file)?.take(RECORDING_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Recording::decode(&bytes)?)
}

fn tell(story: &(impl Display + Serialize), json: bool) -> anyhow::Result<()> {
    // Whoever reads may stop at any line.
    let mut out = std::io::stdout().lock();
    let _ = match json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(story)?),
        false => writeln!(out, "{story}"),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_seed_and_all_else_is_a_file() {
        for seed in [0, 7, u64::MAX] {
            assert_eq!(what(&seed.to_string()), Ok(Replayed::World(seed)));
        }
        for file in ["a.recording", "./7", "-1", "7x", ""] {
            assert_eq!(what(file), Ok(Replayed::Recording(file.into())), "{file}");
        }
        assert!(what("18446744073709551616").is_err(), "a slip of the finger, and no file");
    }
}
