//! Starts a job's server and waits until it listens, or says why it does not.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::job_files::JobFiles;
use super::{LOOK, unreachable};
use crate::error::Error;

/// How long the first process waits for the server that it started.
const START: Duration = Duration::from_secs(20);
/// How much of a log's end is looked at for its last line, and how much of that is shown.
const TAIL_BYTES: u64 = 4 << 10;
const LINE_CHARS: usize = 500;

/// Starts the server, detached.
///
/// # Errors
/// `ServerUnreachable` with the last line of its log if it ends or does not listen in time.
pub(super) fn start(command: &[String], place: &JobFiles, give_up: Instant) -> Result<(), Error> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Error::Config {
            what: "server".to_owned(),
            problem: "none is configured: set WEIGHTCAST_SERVER, pass server=, or run \
                      `weightcast serve`"
                .to_owned(),
        });
    };
    let failed = |e| Error::io(format!("start the server with {program}"), e);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&place.log);
    let log = log.map_err(failed)?;
    // What the log has already was written by earlier servers.
    let logged = log.metadata().map_err(failed)?.len();
    let mut server = Command::new(program);
    server
        .args(arguments)
        .args(["serve", "--detached", "--address"])
        .arg(place.address())
        .arg("--token-file")
        .arg(&place.token_file)
        .args(["--idle-exit", "60"])
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // Detached: Ctrl-C in the job's terminal does not reach the server, and the server holds no
    // pipe by which the job's processes wait for each other's end.
    let mut child = weightcast_transport::detach(&mut server).spawn().map_err(failed)?;
    if let Err(problem) = await_socket(&mut child, &place.socket, give_up) {
        let said = match last_line(&place.log, logged) {
            Some(line) => format!("and last said {line:?}"),
            None => "and said nothing".to_owned(),
        };
        return Err(unreachable(place, format!("{program} {problem} {said}")));
    }
    // The server outlives this process. If it ends earlier, this thread takes its exit status.
    std::thread::spawn(move || child.wait());
    Ok(())
}

fn await_socket(child: &mut Child, socket: &Path, give_up: Instant) -> Result<(), String> {
    let give_up = give_up.min(Instant::now() + START);
    while UnixStream::connect(socket).is_err() {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("ended with {status}"));
        }
        if Instant::now() > give_up {
            // End the server: it would come up with a token that the next process to try replaces.
            let _ = child.kill();
            let _ = child.wait();
            return Err("did not listen in time".to_owned());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The last line that was written to the log after `start`, without what a terminal would obey.
fn last_line(log: &Path, start: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let end = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(start.max(end.saturating_sub(TAIL_BYTES)))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let line = tail.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(LINE_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::CallError;

    use super::*;

    /// A job's place in a fresh directory.
    fn place() -> JobFiles {
        let name = crate::auth::new_token().unwrap().expose()[..8].escape_ascii().to_string();
        let directory = std::env::temp_dir().join(format!("wc-{name}"));
        std::fs::create_dir(&directory).unwrap();
        let [lock, token_file, log, socket] =
            ["lock", "token", "server.log", "server.sock"].map(|file| directory.join(file));
        JobFiles { lock, token_file, log, socket }
    }

    /// Why `sh -c script` is no server.
    fn reason(script: &str, place: &JobFiles, patience: Duration) -> String {
        let command = ["sh", "-c", script].map(str::to_owned);
        match start(&command, place, Instant::now() + patience) {
            Err(Error::Call(CallError::ServerUnreachable { server, reason })) => {
                assert_eq!(server, place.address());
                assert!(reason.ends_with(&format!("its log is {}", place.log.display())));
                reason
            }
            other => panic!("{other:?}"),
        }
    }

    /// A server that comes up later would ask for a token that has been replaced.
    #[test]
    fn a_server_that_comes_too_late_is_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let nowhere = Path::new("/nonexistent/server.sock");
        let said = await_socket(&mut child, nowhere, Instant::now());
        assert_eq!(said, Err("did not listen in time".to_owned()));
        assert!(child.try_wait().unwrap().is_some(), "it is gone");
    }

    #[test]
    fn a_server_that_ends_is_quoted() {
        let place = place();
        let first = reason("echo one >&2; echo 'no \"luck\"' >&2; exit 3", &place, START);
        assert!(first.starts_with(r#"sh ended with exit status: 3 and last said "no \"luck\"";"#));
        let second = reason("exit 4", &place, START);
        assert!(second.starts_with("sh ended with exit status: 4 and said nothing;"), "{second}");
        let log = std::fs::read_to_string(&place.log).unwrap();
        assert_eq!(log, "one\nno \"luck\"\n");
        std::fs::remove_dir_all(place.log.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_server_that_never_listens_is_stopped() {
        let place = place();
        let reason = reason("exec sleep 1000", &place, Duration::ZERO);
        assert!(reason.starts_with("sh did not listen in time and said nothing;"), "{reason}");
        std::fs::remove_dir_all(place.log.parent().unwrap()).unwrap();
    }

    #[test]
    fn of_a_long_log_only_the_end_is_read() {
        let place = place();
        let script = "yes 0123456789 | head -n 10000 >&2; printf '\\033[1mlast\\n\\n' >&2; exit 1";
        let reason = reason(script, &place, START);
        assert!(reason.contains("said \"[1mlast\";"), "{reason}");
        std::fs::remove_dir_all(place.log.parent().unwrap()).unwrap();
    }
}
