//! `weightcast record`: has a server write down its last minutes.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use weightcast::{Options, Role, WrittenRecording};

/// Arguments of `record`.
#[derive(Args)]
pub(crate) struct RecordOf {
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
    /// Copy the recording here, where the server is on this host and of this user
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: RecordOf) -> anyhow::Result<()> {
    let options = Options {
        server: arguments.server,
        token_file: arguments.token_file,
        job: arguments.job,
        ..Options::new(Role::Rollout)
    };
    let WrittenRecording { path, events } = weightcast::record(&options)?;
    let path = match arguments.output {
        None => path,
        Some(output) => {
            std::fs::copy(&path, &output).with_context(|| {
                format!(
                    "the server has written {} on its own host, for its own user; to copy that to {}",
                    path.display(),
                    output.display()
                )
            })?;
            output
        }
    };
    match arguments.json {
        true => println!("{}", serde_json::json!({ "path": path, "events": events })),
        false => println!(
            "{events} events: {}\nplay them back: weightcast replay {}",
            path.display(),
            path.display()
        ),
    }
    Ok(())
}
