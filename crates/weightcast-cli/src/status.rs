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
