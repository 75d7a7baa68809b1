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

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::per_process::PerProcess;

/// Events that lie beside each other in the picture: those of one handle, or of one group in a server.
pub(super) type TrackName = String;

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

/// One finished span.
pub(super) struct FinishedSpan {
    pub(super) name: &'static str,
    pub(super) track: TrackName,
    /// Microseconds since 1970 at the start, by the wall clock.
    pub(super) start: u64,
    /// Microseconds.
    pub(super) duration: f64,
    pub(super) fields: Map<String, Value>,
}

/// Adds a span to the file.
pub(super) fn write(span: FinishedSpan) {
    if let Some(file) = lock().as_mut() {
        file.add(span, process::id());
    }
}

impl TraceFile {
    fn add(&mut self, span: FinishedSpan, pid: u32) {
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
                "ts": span.start, "dur": span.duration, "args": span.fields,
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

/// What the process is called in pictures: its program, without the path.
fn program() -> String {
    let name = std::env::args().next().unwrap_or_default();
    let file = Path::new(&name).file_name().map(|name| name.to_string_lossy().into_owned());
    file.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_names_itself_and_its_tracks_once() {
        let path = std::env::temp_dir().join(format!("weightcast-trace-{}.json", process::id()));
        let _ = std::fs::remove_file(&path);
        let spans = |track: &str, start| FinishedSpan {
            name: "call",
            track: track.to_owned(),
            start,
            duration: 1.5,
            fields: Map::new(),
        };
        let file = |path: &Path| TraceFile {
            path: path.to_path_buf(),
            file: opened(path).unwrap(),
            tracks: BTreeMap::new(),
            named: false,
            failed: false,
        };
        let (mut first, mut second) = (file(&path), file(&path));
        first.add(spans("a", 1), 10);
        second.add(spans("a", 2), 11);
        first.add(spans("b", 3), 10);
        first.add(spans("a", 4), 10);
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
