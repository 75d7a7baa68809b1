//! Where a job's server is found: files in directories that only this user can enter.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::limits::SOCKET_PATH_BYTES;
use crate::private::{make_private, named_directory, of_this_user, own_directory};

/// Where a socket goes if its path would be too long. Short everywhere, whatever `TMPDIR` is.
const SHORT: &str = "/tmp";

/// The files of one job's server.
#[derive(Debug)]
pub(super) struct JobFiles {
    pub(super) lock: PathBuf,
    pub(super) token_file: PathBuf,
    pub(super) log: PathBuf,
    pub(super) socket: PathBuf,
}

impl JobFiles {
    /// The files of a job. Makes their directories, whose modes guard the socket.
    pub(super) fn of(job: &str) -> Result<Self, Error> {
        let named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if job.is_empty() || job.len() > 64 || !job.chars().all(named) || job.starts_with('.') {
            return Err(Error::Config {
                what: "job name".to_owned(),
                problem: format!("{job:?} is not 1 to 64 of A-Z a-z 0-9 . _ -"),
            });
        }
        Self::within(&own_directory()?.join(job), Path::new(SHORT))
    }

    /// The files of a job, if there ever was such a job. Makes nothing for any other.
    pub(super) fn existing(job: &str) -> Result<Option<Self>, Error> {
        match fs::symlink_metadata(named_directory()?.join(job)) {
            Ok(_) => Self::of(job).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The names of the user's jobs that have such files.
    pub(super) fn jobs() -> Result<Vec<String>, Error> {
        let Ok(listed) = fs::read_dir(named_directory()?) else { return Ok(Vec::new()) };
        let mut jobs: Vec<String> =
            listed.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        jobs.sort_unstable();
        Ok(jobs)
    }

    /// Whether a server listens there.
    pub(super) fn is_served(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }

    fn within(directory: &Path, short: &Path) -> Result<Self, Error> {
        make_private(directory)?;
        Ok(Self {
            lock: directory.join("lock"),
            token_file: directory.join("token"),
            log: directory.join("server.log"),
            socket: socket(directory, short)?,
        })
    }

    pub(super) fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

/// The socket's path: beside the other files; if that is too long, in `short`, under a name that no
/// other directory has.
fn socket(directory: &Path, short: &Path) -> Result<PathBuf, Error> {
    let beside = directory.join("server.sock");
    let length = beside.as_os_str().len();
    if length <= SOCKET_PATH_BYTES {
        return Ok(beside);
    }
    let elsewhere = of_this_user(short);
    make_private(&elsewhere).map_err(|error| Error::Config {
        what: format!("socket {}", beside.display()),
        problem: format!(
            "its path has {length} bytes, the system's limit is {SOCKET_PATH_BYTES}, and it cannot \
             be elsewhere ({error}): set XDG_RUNTIME_DIR to a shorter directory"
        ),
    })?;
    let name = blake3::hash(directory.as_os_str().as_bytes()).to_hex();
    Ok(elsewhere.join(format!("{}.sock", &name[..32])))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A directory of this length in bytes, below a fresh one that is returned as well.
    fn directory(length: usize) -> (PathBuf, PathBuf) {
        let name = format!("wc-{}", crate::auth::new_token().unwrap().expose()[..8].escape_ascii());
        let top = Path::new("/tmp").join(name);
        make_private(&top).unwrap();
        let name = "d".repeat(length - top.as_os_str().len() - 1);
        (top.join(name), top)
    }

    #[test]
    fn a_socket_lies_beside_the_log_if_its_path_can_be_bound() {
        let longest = SOCKET_PATH_BYTES - "/server.sock".len();
        for (length, beside) in [(longest, true), (longest + 1, false)] {
            let (directory, top) = directory(length);
            let place = JobFiles::within(&directory, &top).unwrap();
            std::os::unix::net::UnixListener::bind(&place.socket).unwrap();
            assert_eq!(place.socket.parent() == Some(&directory), beside);
            let parent = fs::metadata(place.socket.parent().unwrap()).unwrap();
            assert_eq!(parent.mode() & 0o777, 0o700);
            fs::remove_dir_all(top).unwrap();
        }
    }

    #[test]
    fn long_directories_do_not_share_a_socket() {
        let (one, top) = directory(150);
        let other = one.with_extension("other");
        let [one, other] = [one, other].map(|path| JobFiles::within(&path, &top).unwrap().socket);
        assert_ne!(one, other);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn nowhere_to_put_the_socket_is_said_at_once() {
        let (directory, top) = directory(150);
        let nowhere = top.join("nowhere");
        let error = JobFiles::within(&directory, &nowhere).unwrap_err().to_string();
        let socket = directory.join("server.sock");
        for part in [&*socket.to_string_lossy(), "162 bytes", "107", "XDG_RUNTIME_DIR"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        fs::remove_dir_all(top).unwrap();
    }
}
