//! `weightcast status`: what a server knows, as a table or as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use weightcast::wire::{ModelStatus, ReplicaStatus};
use weightcast::{Options, Role, Status};

/// Arguments of `status`.
#[derive(Args)]
pub(crate) struct StatusOf {
    /// http://HOST:PORT or unix:/PATH
    #[arg(long, env = "WEIGHTCAST_SERVER")]
    server: Option<String>,
    /// File with the token
    #[arg(long, env = "WEIGHTCAST_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Without a server: the job whose processes have started one on this host; WEIGHTCAST_JOB, the
    /// Slurm job or this directory's by default
    #[arg(long)]
    job: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: StatusOf) -> anyhow::Result<()> {
    let options = Options {
        server: arguments.server,
        token_file: arguments.token_file,
        job: arguments.job,
        ..Options::new(Role::Rollout)
    };
    let status = weightcast::status(&options)?;
    if arguments.json {
        println!("{}", status_json(&status));
    } else {
        print!("{}", table(&status));
    }
    Ok(())
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
    for reader in &model.readers {
        let relay = model.replicas.iter().any(|r| r.name == reader.source && r.state == "reading");
        let still = if relay { ", which is still reading it" } else { "" };
        let _ = writeln!(
            text,
            "  {} reads version {} from {}{still}",
            reader.reader, reader.version, reader.source
        );
    }
}

fn replica_table(text: &mut String, replica: &ReplicaStatus) {
    let version = replica.version.map_or("-".to_owned(), |version| version.to_string());
    let pending = replica.pending.as_ref().map_or(String::new(), |call| format!("  {call}"));
    let _ = writeln!(
        text,
        "  replica {:<16} {:<8} {:<10} version {version}  {} of {} shards{pending}",
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
                replica("r", "reading", None, false),
            ],
            readers: vec![reads("x", "r"), reads("y", "a")],
            retain: 0,
        };
        let loss = LossStatus {
            model: "policy".to_owned(),
            version: 5,
            replica: "t".to_owned(),
            reason: "no room".to_owned(),
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
            "replica a rollout holding version 6 1 of 2 shards",
            "shard 3 host host:1 4096 bytes connected, lease 1.2 s",
            "replica r rollout reading version - 1 of 2 shards update(latest)",
            "shard 3 host host:1 4096 bytes no stream, lease 1.2 s",
            "x reads version 7 from r, which is still reading it",
            "y reads version 7 from a",
            "",
            "lost version 5 of policy with t: no room",
            "",
            "since the start: commits 4, timeouts 1",
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
        assert_eq!(table(&Status::default()), "0 sessions, 0 manifests (0 bytes)\n");
    }
}
