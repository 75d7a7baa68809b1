//! Where recordings are written: files that only this user can read, of which few stay.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weightcast_protocol::recording::{Recording, RecordingCause};

use crate::error::Error;
use crate::limits::{KEPT_RECORDINGS, KEPT_RECORDINGS_BYTES};
use crate::private::{make_private, own_directory};

/// Within this user's directory. No job has that name: theirs don't start with a dot.
const OWN: &str = ".recordings";
const ENDING: &str = ".recording";
const DRAFT: &str = ".draft";
/// A draft is written within seconds.
const DRAFT_AGE: Duration = Duration::from_secs(3_600);

/// The directory of recordings; nothing is made before one is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordingFiles {
    directory: Option<PathBuf>,
}

/// A recording that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenRecording {
    /// Where, on the host of who wrote it.
    pub path: PathBuf,
    /// Events in it.
    pub events: u64,
}

/// How long it is since 1970.
pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl RecordingFiles {
    /// In this directory, which is made if it is not there; by default in one of this user.
    pub(crate) fn within(directory: Option<&Path>) -> Result<Self, Error> {
        let found = directory.map(std::path::absolute).transpose();
        let directory = found.map_err(|e| Error::io("find the directory of recordings", e))?;
        Ok(Self { directory })
    }

    /// Writes a recording, whole or not at all. Of those with the same machine and cause the oldest make room.
    pub(crate) fn write(&self, recording: &Recording) -> Result<WrittenRecording, Error> {
        let directory = self.made()?;
        let kind = format!("{}-{}-", recording.head.kind, cause(&recording.head.cause));
        let name = name(&kind)?;
        let path = directory.join(format!("{name}{ENDING}"));
        let failed = |e| Error::io(format!("write the recording {}", path.display()), e);
        let draft = directory.join(format!(".{name}{DRAFT}"));
        let written = write_new(&draft, &recording.encode());
        let placed = written.and_then(|()| fs::rename(&draft, &path));
        if placed.is_err() {
            let _ = fs::remove_file(&draft);
        }
        placed.map_err(failed)?;
        make_room(&directory, &kind);
        Ok(WrittenRecording { path, events: recording.head.events })
    }

    fn made(&self) -> Result<PathBuf, Error> {
        let Some(directory) = &self.directory else {
            let own = own_directory()?.join(OWN);
            make_private(&own)?;
            return Ok(own);
        };
        fs::create_dir_all(directory)
            .map_err(|e| Error::io(format!("make the directory {}", directory.display()), e))?;
        Ok(directory.clone())
    }
}

/// A name that no other writer takes: the shards of one process may fail together, and hosts may share the directory. In
/// order of time within a kind.
fn name(kind: &str) -> Result<String, Error> {
    let mut random = [0; 4];
    getrandom::fill(&mut random)
        .map_err(|e| Error::io("name a recording", std::io::Error::other(e.to_string())))?;
    let (ms, process) = (since_1970().as_millis(), std::process::id());
    Ok(format!("{kind}{ms:013}-{process}-{:08x}", u32::from_le_bytes(random)))
}

fn cause(cause: &RecordingCause) -> &'static str {
    match cause {
        RecordingCause::Asked => "asked",
        RecordingCause::Panic => "panic",
        RecordingCause::FailedCall(_) => "failed",
    }
}

/// A file that nobody else could have made before, or read since.
fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Files of a directory whose names begin and end like this, with their sizes in bytes.
fn files_of(directory: &Path, beginning: &str, ending: &str) -> Vec<(String, u64)> {
    let listed = fs::read_dir(directory).into_iter().flatten().flatten();
    let named = listed.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let wanted = name.starts_with(beginning) && name.ends_with(ending);
        wanted.then_some((name, entry.metadata().ok()?.len()))
    });
    named.collect()
}

/// Removes drafts that nobody goes on with: their writers were killed, perhaps on other hosts.
fn remove_old_drafts(directory: &Path, kind: &str) {
    for (name, _) in files_of(directory, &format!(".{kind}"), DRAFT) {
        let path = directory.join(name);
        let changed = fs::metadata(&path).and_then(|file| file.modified()).ok();
        if changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > DRAFT_AGE) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the oldest of a kind while there are too many, or they are too large. The newest stays. What cannot be removed
/// is nobody's problem now.
fn make_room(directory: &Path, kind: &str) {
    remove_old_drafts(directory, kind);
    let mut found = files_of(directory, kind, ENDING);
    found.sort_unstable();
    let mut bytes = 0;
    for (place, (name, size)) in found.iter().rev().enumerate() {
        bytes += size;
        if place > 0 && (place >= KEPT_RECORDINGS || bytes > KEPT_RECORDINGS_BYTES) {
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

#[cfg(test)]
mod tests;
