//! How many threads copy and digest: a share of the CPUs that this process may use, since trainers and engines
//! compute on the others. Other processes of the host are not known here: bind ranks to CPUs of their own.

use std::sync::OnceLock;

/// Threads that copy, at least: in a read, an offload, and where scales are made. Two saturate the memory of
/// the smallest machines that were measured, of two CPUs.
pub const COPY_THREADS: usize = 2;

/// A part of all CPUs, within bounds.
struct ThreadShare {
    part: usize,
    least: usize,
    most: usize,
}

/// For what somebody waits for. More than eight gain nothing where memory or a link is the limit.
const COPYING: ThreadShare = ThreadShare { part: 4, least: COPY_THREADS, most: 8 };
/// For a seal: it runs in the background of training.
const SEALING: ThreadShare = ThreadShare { part: 8, least: 1, most: 4 };

impl ThreadShare {
    fn of(&self, cpus: usize) -> usize {
        (cpus / self.part).clamp(self.least, self.most)
    }
}

/// Threads that copy for whoever waits.
pub(crate) fn copying() -> usize {
    COPYING.of(cpus())
}

/// Threads that digest what was published.
pub(crate) fn sealing() -> usize {
    SEALING.of(cpus())
}

/// CPUs that this process may use, by its affinity and its control group; read once.
fn cpus() -> usize {
    static CPUS: OnceLock<usize> = OnceLock::new();
    *CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_with_the_machine() {
        let shares = |cpus| (COPYING.of(cpus), SEALING.of(cpus));
        assert_eq!(shares(1), (2, 1));
        assert_eq!(shares(8), (2, 1));
        assert_eq!(shares(16), (4, 2));
        assert_eq!(shares(64), (8, 4));
        assert_eq!(shares(1024), (8, 4));
    }
}
