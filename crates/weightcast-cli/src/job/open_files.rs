//! The limit on open files: every session is a socket.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit, often 1,024, to the hard one. Without the right to do so, it stays.
pub fn allow_all() {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}
