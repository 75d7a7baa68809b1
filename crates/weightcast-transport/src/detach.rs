//! A process that outlives the one that starts it, and keeps nothing of it open.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The first descriptor after standard input, output and error.
const FIRST: libc::c_uint = 3;
/// Where the search ends on kernels that cannot mark a range: no process here has more open.
const LAST: libc::c_int = 1 << 16;

/// Has the command run in a session of its own, with none of this process's files but the three that
/// it is given. Whoever waits for the end of a pipe of this process does not wait for it as well, and
/// a terminal's signals do not reach it.
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
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_detached_process_holds_no_pipe_of_its_parent() {
        let (mut end, other) = io::pipe().unwrap();
        // SAFETY: the descriptor is open; programs that are started from now on have it.
        unsafe { libc::fcntl(other.as_raw_fd(), libc::F_SETFD, 0) };
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = detach(&mut command).spawn().unwrap();
        drop(other);
        // Ends at once, or not before the child does.
        let read = std::thread::spawn(move || end.read(&mut [0]).unwrap());
        let files = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count();
        // SAFETY: a system call on a number.
        let session = unsafe { libc::getsid(child.id() as i32) };
        let alone = session == child.id() as i32 && files == 3;
        if !alone {
            child.kill().unwrap();
        }
        assert_eq!(read.join().unwrap(), 0);
        assert!(child.try_wait().unwrap().is_none() || !alone);
        let _ = child.kill();
        child.wait().unwrap();
        assert!(alone, "session {session}, {files} files");
    }
}
