//! Worlds in parallel: each thread plays one world, and then takes the next seed.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Threads that this machine can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Calls `play` with every seed. Each thread has a `T` of its own; returns them all. A seed for
/// which `play` returns false is the last that matters: higher seeds may be left out.
pub(crate) fn for_each<T: Default + Send>(
    seeds: Range<u64>,
    threads: usize,
    play: impl Fn(&mut T, u64) -> bool + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let end = AtomicU64::new(seeds.end);
    let work = || {
        let mut own = T::default();
        loop {
            let seed = next.fetch_add(1, SeqCst);
            if seed >= end.load(SeqCst) {
                return own;
            }
            if !play(&mut own, seed) {
                end.fetch_min(seed, SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("worlds catch panics")).collect()
    })
}
