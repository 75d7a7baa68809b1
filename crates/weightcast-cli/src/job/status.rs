//! `weightcast status`: what a server knows, as a table or as JSON.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use weightcast::wire::{ModelStatus, ReadingStatus, ReplicaStatus};
use weightcast::{Options, Status};

use super::asked::JobServer;
use super::serve::positive;
use crate::output::{self, size, time};

/// Clears a terminal, and puts its cursor into the first place.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Arguments of `status`.
#[derive(Args)]
pub(crate) struct StatusOf {
    #[command(flatten)]
    asked: JobServer,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Ask again every so many seconds (2 if not given), until it is interrupted. A terminal is
    /// redrawn; with `--json` each answer is a line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = positive)]
    watch: Option<f64>,
}

pub(crate) fn run(arguments: StatusOf) -> anyhow::Result<()> {
    let options = arguments.asked.options();
    match arguments.watch {
        Some(seconds) => watch(&options, arguments.json, Duration::from_secs_f64(seconds)),
        None => {
            let status = weightcast::status(&options)?;
            output::print(&if arguments.json {
                status_json(&status) + "\n"
            } else {
                table(&status)
            })
        }
    }
}

/// Asks until the reader of the output is gone. A server that can't be reached is asked again.
fn watch(options: &Options, json: bool, every: Duration) -> anyhow::Result<()> {
    let clears = !json && std::io::stdout().is_terminal();
    loop {
        let answer = weightcast::status(options);
        let shown = match (&answer, json) {
            (Ok(status), true) => {
                serde_json::to_string(status).expect("maps with string names always serialise")
                    + "\n"
            }
            (Ok(status), false) => table(status),
            (Err(error), _) => format!("weightcast: {error}\n"),
        };
        if let (Err(_), true) = (&answer, json) {
            eprint!("{shown}"); // standard output has only JSON
        } else if !output::print_while_read(&block(&shown, clears))? {
            return Ok(());
        }
        std::thread::sleep(every);
    }
}

/// One answer of several: a terminal is cleared before the answer; elsewhere an empty line follows the answer.
fn block(shown: &str, clears: bool) -> String {
    match clears {
        true => format!("{CLEAR}{shown}"),
        false if shown.starts_with('{') => shown.to_owned(),
        false => format!("{shown}\n"),
    }
}

/// The status as JSON, field by field as in `proto/weightcast.proto`.
pub fn status_json(status: &Status) -> String {
    serde_json::to_string_pretty(status).expect("maps with string names always serialise")
}

fn table(status: &Status) -> String {
    let mut text = format!(
        "{} sessions, {} manifests ({} bytes)\n",
        status.sessions, status.manifests, status.manifest_bytes
    );
    for model in &status.models {
        model_table(&mut text, model);
    }
    for loss in &status.losses {
        let _ = writeln!(
            text,
            "\nlost version {} of {} with {}: {}",
            loss.version, loss.model, loss.replica, loss.reason
        );
    }
    let counted: Vec<_> = status.counters.iter().filter(|(_, count)| **count > 0).collect();
    if !counted.is_empty() {
        let counted: Vec<_> =
            counted.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let _ = writeln!(text, "\nsince the start: {}", counted.join(", "));
    }
    // The reason of a loss is a client's text, whose control characters could change the terminal.
    text.retain(|character| character == '\n' || !character.is_control());
    text
}

fn model_table(text: &mut String, model: &ModelStatus) {
    let _ = writeln!(
        text,
        "\nmodel {}  epoch {}  revision {}",
        model.name, model.epoch, model.revision
    );
    for version in model.versions.iter().rev() {
        let _ = writeln!(text, "  version {:<8} {}", version.version, version.replicas.join(", "));
    }
    for replica in &model.replicas {
        replica_table(text, replica);
    }
    for replica in model.replicas.iter().filter(|replica| !replica.retains.is_empty()) {
        let kept: Vec<String> = replica.retains.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "  {} retains version {}", replica.name, kept.join(", "));
    }
    for reader in &model.readers {
        let relay = model.replicas.iter().any(|r| r.name == reader.source && r.state == "reading");
        let still = if relay { ", which is still reading it" } else { "" };
        let _ = writeln!(
            text,
            "  {} reads version {} from {}{still}",
            reader.reader, reader.version, reader.source
        );
    }
    for replica in &model.replicas {
        if let Some(reading) = &replica.reading {
            let _ = writeln!(text, "  {} has {}", replica.name, so_far(reading));
        }
    }
}

/// Progress of a read: `1.00 GB of 4.00 GB of version 7, 250.00 MB/s, 12 s left`.
fn so_far(reading: &ReadingStatus) -> String {
    let (arrived, total) = (size(reading.arrived_bytes), size(reading.total_bytes));
    let rate = reading.bytes_per_s.map_or(String::new(), |rate| format!(", {}/s", size(rate)));
    let left = reading.remaining_s.map_or(String::new(), |left| format!(", {} left", time(left)));
    format!("{arrived} of {total} of version {}{rate}{left}", reading.version)
}

fn replica_table(text: &mut String, replica: &ReplicaStatus) {
    let version = replica.version.map_or("-".to_owned(), |version| version.to_string());
    let pending = replica.pending.as_ref().map_or(String::new(), |call| format!("  {call}"));
    let stale = match (replica.versions_behind, replica.stale_s) {
        (Some(behind), Some(since)) if behind > 0 => {
            format!(" ({behind} behind for {})", time(since))
        }
        _ => String::new(),
    };
    let _ = writeln!(
        text,
        "  replica {:<16} {:<8} {:<10} version {version}{stale}  {} of {} shards{pending}",
        replica.name,
        replica.role,
        replica.state,
        replica.shards.len(),
        replica.num_shards
    );
    for shard in &replica.shards {
        let state = if shard.connected { "connected" } else { "no stream" };
        let _ = writeln!(
            text,
            "    shard {:<4} {:<16} {:<22} {:>14} bytes  {state}, lease {:.1} s",
            shard.shard, shard.host, shard.data_address, shard.bytes, shard.lease_left_s
        );
    }
}

#[cfg(test)]
mod tests {
    use weightcast::wire::{LossStatus, ReaderStatus, ShardStatus, VersionStatus};

    use super::*;

    fn replica(name: &str, state: &str, version: Option<u64>, connected: bool) -> ReplicaStatus {
        let shard = ShardStatus {
            shard: 3,
            host: "host".to_owned(),
            data_address: "host:1".to_owned(),
            connected,
            lease_left_s: 1.25,
            bytes: 4_096,
            ..ShardStatus::default()
        };
        ReplicaStatus {
            name: name.to_owned(),
            role: "rollout".to_owned(),
            state: state.to_owned(),
            version,
            num_shards: 2,
            shards: vec![shard],
            pending: version.is_none().then(|| "update(latest)".to_owned()),
            versions_behind: version.map(|version| 7 - version),
            stale_s: version.map(|version| (7 - version) as f64 * 90.5),
            reading: version.is_none().then_some(ReadingStatus {
                version: 7,
                arrived_bytes: 1_000_000,
                total_bytes: 4_000_000,
                bytes_per_s: Some(250_000),
                remaining_s: Some(12.0),
                age_s: Some(4.0),
            }),
            ..ReplicaStatus::default()
        }
    }

    fn reads(reader: &str, source: &str) -> ReaderStatus {
        ReaderStatus { reader: reader.to_owned(), source: source.to_owned(), version: 7 }
    }

    fn holds(version: u64, replicas: &[&str]) -> VersionStatus {
        let replicas = replicas.iter().map(|name| (*name).to_owned()).collect();
        VersionStatus { epoch: 1, version, replicas }
    }

    #[test]
    fn all_that_is_known_is_in_the_table() {
        let model = ModelStatus {
            name: "policy".to_owned(),
            epoch: 1,
            revision: 9,
            versions: vec![holds(6, &["a"]), holds(7, &["b", "c"])],
            replicas: vec![
                replica("a", "holding", Some(6), true),
                ReplicaStatus { retains: vec![3, 5], ..replica("r", "reading", None, false) },
            ],
            readers: vec![reads("x", "r"), reads("y", "a")],
            retain: 0,
        };
        let loss = LossStatus {
            model: "policy".to_owned(),
            version: 5,
            replica: "t".to_owned(),
            reason: "no\x1b room".to_owned(),
            epoch: 1,
        };
        let counters = [("commits", 4), ("seals", 0), ("timeouts", 1)];
        let status = Status {
            term: 1,
            sessions: 2,
            manifests: 3,
            manifest_bytes: 400,
            models: vec![model],
            counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
            losses: vec![loss],
            version: "1.2.3".to_owned(),
        };
        let text = table(&status);
        let lines =
            text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
        let expected = [
            "2 sessions, 3 manifests (400 bytes)",
            "",
            "model policy epoch 1 revision 9",
            "version 7 b, c",
            "version 6 a",
            "replica a rollout holding version 6 (1 behind for 1 min 30 s) 1 of 2 shards",
            "shard 3 host host:1 4096 bytes connected, lease 1.2 s",
            "replica r rollout reading version - 1 of 2 shards update(latest)",
            "shard 3 host host:1 4096 bytes no stream, lease 1.2 s",
            "r retains version 3, 5",
            "x reads version 7 from r, which is still reading it",
            "y reads version 7 from a",
            "r has 1.00 MB of 4.00 MB of version 7, 250.00 KB/s, 12 s left",
            "",
            "lost version 5 of policy with t: no room",
            "",
            "since the start: commits 4, timeouts 1",
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
        assert_eq!(table(&Status::default()), "0 sessions, 0 manifests (0 bytes)\n");
    }

    #[test]
    fn what_is_not_known_of_a_read_is_not_told() {
        let unknown = ReadingStatus { version: 3, total_bytes: 2_000, ..ReadingStatus::default() };
        assert_eq!(so_far(&unknown), "0 B of 2.00 KB of version 3");
    }

    #[test]
    fn a_terminal_is_cleared_and_nothing_else_is() {
        assert_eq!(block("table\n", true), format!("{CLEAR}table\n"));
        assert_eq!(block("table\n", false), "table\n\n");
        assert_eq!(block("{}\n", false), "{}\n", "a line of JSON each");
    }
}
