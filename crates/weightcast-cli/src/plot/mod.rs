//! `weightcast plot`: turns the JSON of a bench, of the demo or of a scenario into an SVG picture.
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

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::output::print;

/// Largest file that is read: the largest scenario there is has a few MiB.
const MOST_BYTES: u64 = 64 << 20;

/// Arguments of `plot`.
#[derive(Args)]
pub(crate) struct Plot {
    /// JSON of the demo, of a bench, or of `sim --scenario`; its content says which
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
    let text = read(file)?;
    let svg = svg_of(&text).with_context(|| file.display().to_string())?;
    if output == Path::new("-") {
        return print(&svg);
    }
    std::fs::write(&output, svg).with_context(|| format!("cannot write {}", output.display()))?;
    print(&format!("picture: {}\n", output.display()))
}

fn read(file: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", file.display());
    let mut text = String::new();
    let opened = File::open(file).with_context(cannot)?;
    opened.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(cannot)?;
    if text.len() as u64 > MOST_BYTES {
        bail!(
            "{} is larger than {} MiB: no file that is drawn is",
            file.display(),
            MOST_BYTES >> 20
        );
    }
    Ok(text)
}
