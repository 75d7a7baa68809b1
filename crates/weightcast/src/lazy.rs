//! The server that starts itself: one per job name and host, found by a lock file and a Unix
//! socket, detached, gone when idle.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use weightcast_transport::Secret;

use crate::{Error, auth};

/// How long the first process waits for the server that it started.
const START: Duration = Duration::from_secs(20);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// Address and token of the job's server, which is started if it is not there.
pub(crate) fn find_or_start(
    job: &str,
    command: &[String],
    deadline: Duration,
) -> Result<(String, Secret), Error> {
    let give_up = Instant::now() + deadline;
    let directory = directory(job)?;
    let socket = directory.join("server.sock");
    let token_file = directory.join("token");
    let lock = open_lock(&directory.join("lock"))?;
    take(&lock, &directory, give_up)?;
    if UnixStream::connect(&socket).is_err() {
        write_token(&token_file)?;
        start(command, &socket, &token_file, &directory.join("server.log"), give_up)?;
    }
    Ok((format!("unix:{}", socket.display()), auth::read_token(&token_file)?))
}

/// A directory that only this user can enter: that is what guards the socket.
fn directory(job: &str) -> Result<PathBuf, Error> {
    let named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if job.is_empty() || job.len() > 64 || !job.chars().all(named) || job.starts_with('.') {
        return Err(Error::Config {
            what: "job name".to_owned(),
            problem: format!("{job:?} is not 1 to 64 of A-Z a-z 0-9 . _ -"),
        });
    }
    let user = rustix::process::getuid().as_raw();
    let base = match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("weightcast"),
        None => std::env::temp_dir().join(format!("weightcast-{user}")),
    };
    for path in [base.clone(), base.join(job)] {
        let made = DirBuilder::new().mode(0o700).create(&path);
        let found = fs::symlink_metadata(&path)
            .map_err(|e| Error::io(format!("make {}", path.display()), made.err().unwrap_or(e)))?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            return Err(Error::Config {
                what: format!("directory {}", path.display()),
                problem: "must belong to this user alone (mode 0700); remove it".to_owned(),
            });
        }
    }
    Ok(base.join(job))
}

fn open_lock(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|e| Error::io(format!("open {}", path.display()), e))
}

/// Waits for the lock: whoever holds it is starting the server.
fn take(lock: &File, directory: &Path, give_up: Instant) -> Result<(), Error> {
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < give_up => {
                std::thread::sleep(LOOK);
            }
            Err(e) => {
                return Err(Error::io(format!("lock {}", directory.display()), e.into()));
            }
        }
    }
}

fn write_token(path: &Path) -> Result<(), Error> {
    let token = auth::new_token()?;
    let _ = fs::remove_file(path);
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(token.expose()))
        .map_err(|e| Error::io(format!("write {}", path.display()), e))
}

fn start(
    command: &[String],
    socket: &Path,
    token: &Path,
    log: &Path,
    give_up: Instant,
) -> Result<(), Error> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Error::Config {
            what: "server".to_owned(),
            problem: "none is configured: set WEIGHTCAST_SERVER, pass server=, or run \
                      `weightcast serve`"
                .to_owned(),
        });
    };
    let what = || format!("start the server with {program}");
    let log_file = OpenOptions::new().create(true).append(true).mode(0o600).open(log);
    let log_file = log_file.map_err(|e| Error::io(what(), e))?;
    let mut child = Command::new(program)
        .args(arguments)
        .args(["serve", "--address"])
        .arg(format!("unix:{}", socket.display()))
        .arg("--token-file")
        .arg(token)
        .args(["--idle-exit", "60"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log_file)
        // A group of its own: Ctrl-C in the job's terminal does not reach it.
        .process_group(0)
        .spawn()
        .map_err(|e| Error::io(what(), e))?;
    let give_up = give_up.min(Instant::now() + START);
    while UnixStream::connect(socket).is_err() {
        if let Ok(Some(status)) = child.try_wait() {
            let problem = format!("ended with {status}; see {}", log.display());
            return Err(Error::Config { what: what(), problem });
        }
        if Instant::now() > give_up {
            let problem = format!("did not listen in time; see {}", log.display());
            return Err(Error::Config { what: what(), problem });
        }
        std::thread::sleep(LOOK);
    }
    // It outlives this process; until then somebody must take its exit status.
    std::thread::spawn(move || child.wait());
    Ok(())
}
