//! `weightcast trace`: sums up the spans of calls that processes wrote, and joins the files of several
//! hosts into one picture.
//!
//! `reading` makes spans of text, `summary` counts spans, `joined` makes one file of several. All of that is
//! pure: this file alone reads and writes.

mod joined;
mod reading;
mod summary;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;

#[cfg(test)]
use self::reading::TraceContent;
use crate::output::print;

/// Largest file that is read: some ten million spans.
const MOST_BYTES: u64 = 2 << 30;

/// Arguments of `trace`.
#[derive(Args)]
pub(crate) struct Trace {
    /// Files that `open(trace=)`, `serve --trace` or `WEIGHTCAST_TRACE` named, of any processes and hosts
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How many of the slowest calls are listed
    #[arg(long, default_value_t = 10)]
    calls: usize,
    /// Write one file of all, for Perfetto (ui.perfetto.dev) or Chrome
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Trace) -> anyhow::Result<()> {
    let mut contents = Vec::new();
    for file in &arguments.files {
        let content = reading::read(&text_of(file)?);
        contents.push(content.with_context(|| file.display().to_string())?);
    }
    if let Some(output) = &arguments.output {
        let written = |file: &PathBuf| matches!((output.canonicalize(), file.canonicalize()), (Ok(a), Ok(b)) if a == b);
        let over = arguments.files.iter().any(written);
        ensure!(!over, "{} would be written over: choose another --output", output.display());
        std::fs::write(output, joined::text(&contents))
            .with_context(|| format!("cannot write {}", output.display()))?;
    }
    let summary = summary::of(&contents, arguments.calls);
    match arguments.json {
        true => print(&(serde_json::to_string_pretty(&summary)? + "\n")),
        false => print(&summary.to_string()),
    }
}

fn text_of(file: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", file.display());
    let mut text = String::new();
    let opened = File::open(file).with_context(cannot)?;
    opened.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(cannot)?;
    let whole = text.len() as u64 <= MOST_BYTES;
    ensure!(whole, "{} is larger than {} MiB: trace fewer steps", file.display(), MOST_BYTES >> 20);
    Ok(text)
}

#[cfg(test)]
fn content(lines: &[serde_json::Value]) -> TraceContent {
    let text: String = lines.iter().map(|line| format!("{line},\n")).collect();
    reading::read(&format!("[\n{text}")).expect("a trace")
}
