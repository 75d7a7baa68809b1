//! `weightcast plot`: turns the JSON of a bench, of the demo or of a scenario, or a server's recording, into an SVG
//! picture.
//!
//! `kinds` tells what a file is; `reading` has what lies in it, `picture` what is shown of that, as data, `svg` draws
//! it. All of that is pure: this file alone reads and writes.

mod kinds;
mod numbers;
mod picture;
mod reading;
mod svg;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use weightcast_protocol::limits::RECORDING_BYTES;
use weightcast_protocol::recording::{MachineKind, Recording, RecordingError};

use crate::output::print;

/// Largest JSON that is read: the largest scenario there is has a few MiB.
const MOST_BYTES: usize = 64 << 20;

/// Arguments of `plot`.
#[derive(Args)]
pub(crate) struct Plot {
    /// JSON of the demo, of a bench, or of `sim --scenario`, or a server's recording; its content says which
    file: PathBuf,
    /// Where the picture goes, `-` for standard output; beside FILE, with the ending .svg, by default
    #[arg(long, value_name = "FILE.svg")]
    output: Option<PathBuf>,
}

/// The SVG of what a file's text tells, as `plot` draws it.
///
/// Errors: no JSON, no kind of file that can be drawn, not as that kind is written, or nothing measured.
pub fn svg_of(text: &str) -> anyhow::Result<String> {
    Ok(svg::draw(&kinds::picture(text)?))
}

pub(crate) fn run(arguments: &Plot) -> anyhow::Result<()> {
    let file = &arguments.file;
    let output = arguments.output.clone().unwrap_or_else(|| file.with_extension("svg"));
    let same = matches!((output.canonicalize(), file.canonicalize()), (Ok(a), Ok(b)) if a == b);
    ensure!(!same, "{} would be written over: choose another --output", file.display());
    let svg = read(file).and_then(|bytes| drawn(&bytes));
    let svg = svg.with_context(|| format!("cannot draw {}", file.display()))?;
    if output == Path::new("-") {
        return print(&svg);
    }
    std::fs::write(&output, svg).with_context(|| format!("cannot write {}", output.display()))?;
    print(&format!("picture: {}\n", output.display()))
}

/// No more than any file that is drawn has.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(RECORDING_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn drawn(bytes: &[u8]) -> anyhow::Result<String> {
    match Recording::decode(bytes) {
        Err(RecordingError::Foreign) => {}
        recording => return recorded(&recording?),
    }
    ensure!(
        bytes.len() <= MOST_BYTES,
        "larger than {} MiB: no file that is drawn is",
        MOST_BYTES >> 20
    );
    svg_of(std::str::from_utf8(bytes).context("no recording, and not UTF-8")?)
}

fn recorded(recording: &Recording) -> anyhow::Result<String> {
    ensure!(
        recording.head.kind == MachineKind::Server,
        "recording of a session: `weightcast replay` tells its story; only a server's has a picture"
    );
    let job = reading::recording::read(recording)?;
    ensure!(!job.behind.is_empty(), "the recorded server knew no model: there is nothing to draw");
    Ok(svg::draw(&picture::recording::picture(&job)))
}
