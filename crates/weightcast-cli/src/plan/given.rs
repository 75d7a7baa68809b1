//! A side of a transfer as it is given: a spec, for which there are rules, or a file of layouts that were read.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use weightcast_fleet::{Cluster, LayoutFile, MOST_FILE_BYTES, Spec};

use super::layout::read_model;

/// A side as it is given.
#[derive(Debug, Clone)]
pub(crate) enum GivenSide {
    /// By rule.
    Rule(Spec),
    /// A file of the layouts of all ranks.
    File(PathBuf),
    /// The text of such a file.
    Text(String),
}

impl FromStr for GivenSide {
    type Err = String;

    fn from_str(text: &str) -> Result<GivenSide, String> {
        if text.trim_start().starts_with('{') {
            return Ok(GivenSide::Text(text.to_owned()));
        }
        if Path::new(text).extension().is_some_and(|end| end == "json") {
            return Ok(GivenSide::File(text.into()));
        }
        let spec = text.parse().map_err(|error| format!("{error}; or give a file FILE.json"));
        spec.map(GivenSide::Rule)
    }
}

impl fmt::Display for GivenSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivenSide::Rule(spec) => spec.fmt(f),
            GivenSide::File(file) => file.display().fmt(f),
            GivenSide::Text(_) => f.write_str("layouts"),
        }
    }
}

impl GivenSide {
    /// What its ranks hold; by rule, of the model of this config.
    pub(crate) fn cluster(&self, config: Option<&Path>) -> anyhow::Result<Cluster> {
        match self {
            GivenSide::Rule(spec) => {
                let Some(config) = config else {
                    bail!("{spec} is a rule: give the model's config.json (--config)")
                };
                Ok(Cluster::new(&read_model(config)?, spec)?)
            }
            GivenSide::File(file) => {
                let read = || -> anyhow::Result<Cluster> { of_text(&text(file)?) };
                read().with_context(|| file.display().to_string())
            }
            GivenSide::Text(text) => of_text(text),
        }
    }
}

fn of_text(text: &str) -> anyhow::Result<Cluster> {
    Ok(Cluster::of_file(&LayoutFile::parse(text)?)?)
}

/// The text of a file, and of one that is too long a byte more than is read.
fn text(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file)?;
    opened.take(MOST_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
