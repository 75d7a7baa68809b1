//! `weightcast record`: has a server write down its last minutes.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use weightcast::WrittenRecording;

use super::asked::JobServer;

/// Arguments of `record`.
#[derive(Args)]
pub(crate) struct RecordOf {
    #[command(flatten)]
    asked: JobServer,
    /// Copy the recording here, where the server is on this host and of this user
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: RecordOf) -> anyhow::Result<()> {
    let WrittenRecording { path, events } = weightcast::record(&arguments.asked.options())?;
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
