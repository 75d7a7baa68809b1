//! Threads that begin together, each on a processor of its own.
//!
//! On a virtual machine with two processors the kernel was seen to start a thread on the processor of the thread that
//! starts it, while the other processor was idle. Both threads take turns there, and the kernel moves one of them after
//! milliseconds: as long as a short transfer takes. (Probably the kernel takes an idle virtual processor, which its host
//! does not run, for one that the host has taken away.)

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processor that this thread runs on.
pub(crate) fn current() -> usize {
    sched_getcpu()
}

/// Moves this thread to another processor if it runs on this one, and it may run on others. Best effort: it may come
/// back at once.
pub(crate) fn leave(processor: usize) {
    if current() != processor {
        return;
    }
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(others) = without(&allowed, processor)
        && sched_setaffinity(None, &others).is_ok()
    {
        // Who may not undo that had better stay there than nowhere.
        let _best_effort = sched_setaffinity(None, &allowed);
    }
}

/// The same set without one processor, if another is left.
fn without(allowed: &CpuSet, processor: usize) -> Option<CpuSet> {
    let mut others = *allowed;
    if processor < CpuSet::MAX_CPU {
        others.unset(processor);
    }
    (others.count() > 0).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    #[test]
    fn whoever_may_run_elsewhere_is_left_the_others() {
        assert_eq!(without(&set(&[0, 1, 5]), 1), Some(set(&[0, 5])));
        assert_eq!(without(&set(&[0, 1]), 3), Some(set(&[0, 1])));
        assert_eq!(without(&set(&[2]), 2), None, "there is no other");
        assert_eq!(without(&set(&[2]), usize::MAX), Some(set(&[2])));
    }

    /// Where the thread may run is as before, wherever it runs then.
    #[test]
    fn a_thread_may_run_where_it_might_before() {
        let before = sched_getaffinity(None).unwrap();
        for processor in [current(), usize::MAX, current()] {
            leave(processor);
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        }
        let only = set(&[current()]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &only).unwrap();
                leave(current());
                assert_eq!(sched_getaffinity(None).unwrap(), only);
            });
        });
    }
}
