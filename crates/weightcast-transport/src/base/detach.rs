//! A process that outlives the one that starts it, and keeps nothing of it open.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;
/// Where the search ends on kernels that cannot mark a range: no process here has more open.
const LAST: libc::c_int = 1 << 16;

/// Has the command run in a session of its own, with none of this process's files but the three that
/// it is given. So the end of a pipe of this process does not depend on the command, and a terminal's
/// signals do not reach the command.
pub fn detach(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec, `alone` makes system calls only: it takes no lock and allocates
    // nothing.
    unsafe { command.pre_exec(alone) }
}

/// Runs in the child, before its program.
fn alone() -> io::Result<()> {
    // SAFETY: neither call takes an address. What is marked is closed by `exec`, not before.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        let marks = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, marks) < 0 {
            for descriptor in FIRST as libc::c_int..LAST {
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::process::{Child, Stdio};

    use super::*;

    /// The numbers of a process's files.
    fn files(of: &Child) -> Vec<String> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", of.id())).unwrap();
        let mut files: Vec<_> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    }

    #[test]
    fn a_detached_process_holds_no_pipe_of_its_parent() {
        let (_end, other) = io::pipe().unwrap();
        // SAFETY: the descriptor is open; programs that are started from now on have it.
        unsafe { libc::fcntl(other.as_raw_fd(), libc::F_SETFD, 0) };
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = detach(&mut command).spawn().unwrap();
        // It runs, and the files that it was loaded from are closed, once it has answered.
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        to.write_all(b"a").unwrap();
        from.read_exact(&mut [0]).unwrap();
        let files = files(&child);
        // SAFETY: a system call on a number.
        let session = unsafe { libc::getsid(child.id() as i32) };
        drop(to);
        child.wait().unwrap();
        assert_eq!(files, ["0", "1", "2"]);
        assert_eq!(session, child.id() as i32);
    }

    #[test]
    fn a_program_that_there_is_not_is_told() {
        assert!(detach(&mut Command::new("/there/is/no/such/program")).spawn().is_err());
    }

    /// Descriptors from the first on: this very test, once more, where the first one is open.
    #[test]
    fn not_even_the_first_descriptor_is_kept() {
        const INSIDE: &str = "WEIGHTCAST_TEST_FIRST_DESCRIPTOR";
        if std::env::var_os(INSIDE).is_none() {
            let name = "base::detach::tests::not_even_the_first_descriptor_is_kept";
            let mut again = Command::new("sh");
            again.args(["-c", r#"exec "$0" --exact "$1" 3</dev/null"#]);
            again.arg(std::env::current_exe().unwrap()).arg(name).env(INSIDE, "1");
            let done = again.output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            return;
        }
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = detach(&mut command).spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        to.write_all(b"a").unwrap();
        from.read_exact(&mut [0]).unwrap();
        let files = files(&child);
        drop(to);
        child.wait().unwrap();
        assert_eq!(files, ["0", "1", "2"]);
    }
}
