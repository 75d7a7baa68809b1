//! Writes every mutant of a crate into its sources at once, each behind a number that `WEIGHTCAST_MUTANT` chooses
//! when the tests run ("mutant schemata", Untch, Offutt and Harrold 1993). A crate is compiled once instead of once
//! for each mutant, so thousands can be judged. `.ci/mutate` drives it; the sources it is given are a worktree's.
//!
//! With `WEIGHTCAST_REACHED=FILE` the tests run unchanged and write the numbers of all mutants that they reach.

mod files;
mod render;
mod rules;
mod swaps;
mod values;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use serde::Serialize;

/// Writes all mutants of crates into their sources, and a list of them as JSON to standard output.
#[derive(Parser)]
struct Arguments {
    /// Folders of the crates, with `src/lib.rs` or `src/main.rs`. Their sources are overwritten
    #[arg(required = true)]
    crates: Vec<PathBuf>,
    /// Files to leave alone: a path that ends so is not mutated
    #[arg(long)]
    leave: Vec<String>,
    /// A file with the numbers of mutants to leave out, one a line: those that do not compile
    #[arg(long)]
    without: Option<PathBuf>,
}

/// A mutant, as `.ci/mutate` reads it.
#[derive(Serialize)]
struct Mutant {
    number: u32,
    file: String,
    line: usize,
    rule: &'static str,
    original: String,
    replacement: String,
}

/// What a stretch of a written file is about, to find the mutant that a compiler's error means.
#[derive(Serialize)]
struct Stretch {
    file: String,
    from: usize,
    to: usize,
    numbers: Vec<u32>,
}

#[derive(Default, Serialize)]
struct Listing {
    mutants: Vec<Mutant>,
    stretches: Vec<Stretch>,
}

/// What each crate gets: whether a mutant is the chosen one, and a note of those that were reached.
const SUPPORT: &str = include_str!("support.rs.txt");

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let without: BTreeSet<u32> = match &arguments.without {
        Some(path) => fs::read_to_string(path)
            .with_context(|| format!("reading {}", path.display()))?
            .lines()
            .map(|line| line.trim().parse().with_context(|| format!("no number: {line}")))
            .collect::<Result<_>>()?,
        None => BTreeSet::new(),
    };
    let mut listing = Listing::default();
    let mut next = 1;
    for folder in &arguments.crates {
        for file in files::sources(folder, &arguments.leave)? {
            let text = fs::read_to_string(&file.path)?;
            let mut written = String::new();
            if file.mutated {
                let edits = rules::edits(&text)
                    .with_context(|| format!("reading {}", file.path.display()))?;
                next = render::write(
                    &text,
                    edits,
                    next,
                    &without,
                    &file.path,
                    &mut written,
                    &mut listing,
                );
            } else {
                written.push_str(&text);
            }
            if file.root {
                written.push_str(SUPPORT);
            }
            fs::write(&file.path, written)?;
        }
    }
    println!("{}", serde_json::to_string(&listing)?);
    Ok(())
}
