//! The server that starts itself: one per job name and host, found by a lock file and a Unix
//! socket, detached, gone when idle.

mod job;
mod job_files;
mod start;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use weightcast_protocol::CallError;
use weightcast_transport::Secret;

pub(crate) use self::job::of_this_process;
use self::job_files::JobFiles;
use crate::auth;
use crate::error::Error;

/// How often a process looks for what it waits for.
const LOOK: Duration = Duration::from_millis(20);

/// Address and token of the job's server, which is started if it is not there.
pub(crate) fn find_or_start(
    job: &str,
    command: &[String],
    deadline: Duration,
) -> Result<(String, Secret), Error> {
    let give_up = Instant::now() + deadline;
    let place = JobFiles::of(job)?;
    let _lock = lock(&place, give_up)?;
    if !place.is_served() {
        let _ = std::fs::remove_file(&place.token_file);
        auth::write_token(&place.token_file, &auth::new_token()?)?;
        start::start(command, &place, give_up)?;
    }
    Ok((place.address(), auth::read_token(&place.token_file)?))
}

/// Address and token of the job's server, if it runs. Starts nothing and makes nothing.
pub(crate) fn find(job: &str) -> Result<Option<(String, Secret)>, Error> {
    let Some(place) = JobFiles::existing(job)?.filter(JobFiles::is_served) else { return Ok(None) };
    Ok(Some((place.address(), auth::read_token(&place.token_file)?)))
}

/// The user's jobs on this host that have a server.
pub(crate) fn served_jobs() -> Result<Vec<String>, Error> {
    let is_served = |job: &String| {
        JobFiles::existing(job).ok().flatten().is_some_and(|place| place.is_served())
    };
    Ok(JobFiles::jobs()?.into_iter().filter(is_served).collect())
}

/// Waits for the lock, whose holder is starting the server.
fn lock(place: &JobFiles, give_up: Instant) -> Result<File, Error> {
    let failed = |e| Error::io(format!("lock {}", place.lock.display()), e);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&place.lock)
        .map_err(failed)?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < give_up => {
                std::thread::sleep(LOOK);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let reason = "another process of the job was starting it all this time";
                return Err(unreachable(place, reason.to_owned()));
            }
            Err(e) => return Err(failed(e.into())),
        }
    }
}

/// The server did not start; its log says more.
fn unreachable(place: &JobFiles, reason: String) -> Error {
    Error::Call(CallError::ServerUnreachable {
        server: place.address(),
        reason: format!("{reason}; its log is {}", place.log.display()),
    })
}
