//! The file with the spans of this process, in the JSON array format of Chrome's trace viewer: one event a
//! line. The closing bracket is left out, as the format permits, so a process that is killed leaves a file
//! that opens.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, OnceLock};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::finished_span::{FinishedSpan, TrackName, program};
use crate::error::Error;
use crate::per_process::PerProcess;

/// The file, while spans are written.
struct TraceFile {
    path: PathBuf,
    file: File,
    /// Numbers of the tracks that this process has named in the file.
    tracks: BTreeMap<TrackName, u64>,
    /// Whether the process has named itself.
    named: bool,
    /// Whether an event could not be written: said once.
    failed: bool,
}

static OPEN: AtomicBool = AtomicBool::new(false);

/// Whether spans are written.
pub(super) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed)
}

/// The file of this process. A fork opens its own, which may be the same.
fn lock() -> MutexGuard<'static, Option<TraceFile>> {
    static FIRST: OnceLock<PerProcess<Option<TraceFile>>> = OnceLock::new();
    PerProcess::lock(&FIRST)
}

/// Opens the file. False if this process writes it already.
pub(super) fn open(path: &Path) -> Result<bool, Error> {
    let config = |problem| Error::Config { what: "trace".to_owned(), problem };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut open = lock();
    if let Some(other) = open.as_ref() {
        return match other.path == path {
            true => Ok(false),
            false => Err(config(format!(
                "this process writes its spans to {} already, and has one trace file: name the same",
                other.path.display()
            ))),
        };
    }
    let failed = |error| config(format!("can't write to {}: {error}", path.display()));
    let file = opened(&path).map_err(failed)?;
    *open = Some(TraceFile { path, file, tracks: BTreeMap::new(), named: false, failed: false });
    OPEN.store(true, Ordering::Relaxed);
    Ok(true)
}

/// The file, to be added to. Whoever makes the file opens the array; this user alone reads it.
fn opened(path: &Path) -> std::io::Result<File> {
    match OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(b"[\n").map(|()| file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            OpenOptions::new().append(true).open(path)
        }
        Err(error) => Err(error),
    }
}

/// Adds a span to the file.
pub(super) fn write(span: &FinishedSpan) {
    if let Some(file) = lock().as_mut() {
        file.add(span, process::id());
    }
}

impl TraceFile {
    fn add(&mut self, span: &FinishedSpan, pid: u32) {
        let mut lines = String::new();
        if !std::mem::replace(&mut self.named, true) {
            line(
                &mut lines,
                &json!({
                    "ph": "M", "name": "process_name", "pid": pid, "tid": 0,
                    "args": { "name": program() },
                }),
            );
        }
        let since = span.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let next = self.tracks.len() as u64 + 1;
        let tid = *self.tracks.entry(span.track.clone()).or_insert_with(|| {
            line(
                &mut lines,
                &json!({
                    "ph": "M", "name": "thread_name", "pid": pid, "tid": next,
                    "args": { "name": span.track },
                }),
            );
            next
        });
        line(
            &mut lines,
            &json!({
                "ph": "X", "cat": "weightcast", "name": span.name, "pid": pid, "tid": tid,
                "ts": u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
                "dur": span.took.as_nanos() as f64 / 1e3, "args": span.fields,
            }),
        );
        // One write: lines of several processes must not mix.
        if let Err(error) = self.file.write_all(lines.as_bytes())
            && !std::mem::replace(&mut self.failed, true)
        {
            tracing::warn!(path = %self.path.display(), %error, "spans are missing in the trace file");
        }
    }
}

fn line(lines: &mut String, event: &Value) {
    lines.push_str(&event.to_string());
    lines.push_str(",\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Map;

    use super::*;

    #[test]
    fn each_process_names_itself_and_its_tracks_once() {
        let path = std::env::temp_dir().join(format!("weightcast-trace-{}.json", process::id()));
        let _ = std::fs::remove_file(&path);
        let spans = |track: &str, start| FinishedSpan {
            name: "call",
            track: track.to_owned(),
            at: UNIX_EPOCH + Duration::from_micros(start),
            took: Duration::from_nanos(1_500),
            fields: Map::new(),
            place: None,
        };
        let file = |path: &Path| TraceFile {
            path: path.to_path_buf(),
            file: opened(path).unwrap(),
            tracks: BTreeMap::new(),
            named: false,
            failed: false,
        };
        let (mut first, mut second) = (file(&path), file(&path));
        first.add(&spans("a", 1), 10);
        second.add(&spans("a", 2), 11);
        first.add(&spans("b", 3), 10);
        first.add(&spans("a", 4), 10);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let closed = text.trim_end().trim_end_matches(',').to_owned() + "]";
        let events: Vec<Value> = serde_json::from_str(&closed).unwrap();
        let short: Vec<_> = events
            .iter()
            .map(|event| {
                let name = event["name"].as_str().unwrap().to_owned();
                (name, event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap())
            })
            .collect();
        let expected = [
            ("process_name", 10, 0),
            ("thread_name", 10, 1),
            ("call", 10, 1),
            ("process_name", 11, 0),
            ("thread_name", 11, 1),
            ("call", 11, 1),
            ("thread_name", 10, 2),
            ("call", 10, 2),
            ("call", 10, 1),
        ];
        assert_eq!(short, expected.map(|(name, pid, tid)| (name.to_owned(), pid, tid)));
        assert_eq!((&events[2]["ts"], &events[2]["dur"]), (&json!(1), &json!(1.5)));
    }
}
