//! Locks: a plan's summary in a file, for a CI job to check.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use weightcast_fleet::Cluster;

use super::report::PlanReport;

/// Compare two lock files; the exit status is 1 if they differ.
#[derive(Args)]
pub(crate) struct Diff {
    /// The one
    a: PathBuf,
    /// The other
    b: PathBuf,
}

/// What a lock says: everything that does not depend on the machine that planned.
#[derive(Serialize)]
pub(super) struct Lock<'a> {
    format: &'static str,
    source: &'a str,
    target: &'a str,
    replicas: u64,
    gpus_per_host: u64,
    /// Names of what all ranks of a side hold.
    source_layout: String,
    target_layout: String,
    coverage: &'a str,
    messages: u64,
    broadcast_bytes: u64,
    peak_staged_bytes: u64,
    per_target_bytes: Vec<[u64; 2]>,
    per_source_bytes: Vec<[u64; 2]>,
    host_bytes_in: Vec<[u64; 2]>,
    host_bytes_out: Vec<[u64; 2]>,
}

impl<'a> Lock<'a> {
    pub(super) fn new(
        report: &'a PlanReport,
        source: &Cluster,
        target: &Cluster,
    ) -> anyhow::Result<Lock<'a>> {
        Ok(Lock {
            format: "weightcast-plan/1",
            source: &report.source,
            target: &report.target,
            replicas: report.replicas,
            gpus_per_host: report.gpus_per_host,
            source_layout: source.digest()?,
            target_layout: target.digest()?,
            coverage: &report.coverage,
            messages: report.messages,
            broadcast_bytes: report.broadcast_bytes,
            peak_staged_bytes: report.peak_staged_bytes,
            per_target_bytes: runs(&report.per_target_bytes),
            per_source_bytes: runs(&report.per_source_bytes),
            host_bytes_in: runs(&report.host_bytes_in),
            host_bytes_out: runs(&report.host_bytes_out),
        })
    }
}

/// Equal neighbours as `[how many, bytes]`.
fn runs(bytes: &[u64]) -> Vec<[u64; 2]> {
    bytes.chunk_by(|a, b| a == b).map(|run| [run.len() as u64, run[0]]).collect()
}

/// Writes the lock, or checks the one that is there.
pub(super) fn hold(file: &Path, lock: &Lock<'_>) -> anyhow::Result<()> {
    let new = serde_json::to_value(lock)?;
    if !file.exists() {
        let text = serde_json::to_string_pretty(&new)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("weightcast: wrote {}", file.display());
        return Ok(());
    }
    let new = new.as_object().expect("a lock has fields");
    let differences = differences(&read(file)?, new);
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "the plan differs from {}; delete the file to lock the new one:\n{}",
        file.display(),
        differences.join("\n")
    )
}

pub(super) fn run(diff: &Diff) -> anyhow::Result<()> {
    let differences = differences(&read(&diff.a)?, &read(&diff.b)?);
    if differences.is_empty() {
        println!("no difference");
        return Ok(());
    }
    bail!("the plans differ:\n{}", differences.join("\n"))
}

fn read(file: &Path) -> anyhow::Result<Map<String, Value>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no lock file", file.display()))
}

/// Field by field.
fn differences(a: &Map<String, Value>, b: &Map<String, Value>) -> Vec<String> {
    let mut fields: Vec<&String> = a.keys().chain(b.keys()).collect();
    fields.sort();
    fields.dedup();
    let told = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    let differ = fields.into_iter().filter(|field| a.get(*field) != b.get(*field));
    differ.map(|f| format!("  {f}: {} -> {}", told(a.get(f)), told(b.get(f)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(a: &str, b: &str) -> Vec<String> {
        let [a, b] = [a, b].map(|text| serde_json::from_str(text).unwrap());
        differences(&a, &b)
    }

    #[test]
    fn locks_are_compared_in_the_fields_of_both() {
        let lock = r#"{"format": "x", "messages": 3}"#;
        assert!(told(lock, lock).is_empty());
        assert_eq!(told(lock, r#"{"format": "x", "messages": 4}"#), ["  messages: 3 -> 4"]);
        assert_eq!(told(lock, r#"{"format": "x"}"#), ["  messages: 3 -> nothing"]);
        assert_eq!(told(r#"{"format": "x"}"#, lock), ["  messages: nothing -> 3"]);
    }

    #[test]
    fn equal_neighbours_are_counted_together() {
        for (bytes, counted) in [
            (&[][..], &[][..]),
            (&[5], &[[1, 5]]),
            (&[5, 5, 5], &[[3, 5]]),
            (&[5, 5, 6, 5], &[[2, 5], [1, 6], [1, 5]]),
        ] {
            assert_eq!(runs(bytes), counted, "{bytes:?}");
            let again =
                runs(bytes).iter().flat_map(|&[n, b]| vec![b; n as usize]).collect::<Vec<_>>();
            assert_eq!(again, bytes);
        }
    }

    #[test]
    fn what_has_no_fields_is_no_lock() {
        let file = std::env::temp_dir().join(format!("weightcast-lock-{}", std::process::id()));
        for text in ["[]", "3", "", "{"] {
            std::fs::write(&file, text).unwrap();
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains("is no lock file"), "{text:?}: {error}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
