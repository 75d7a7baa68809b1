//! Stops a read at one of its points until the test lets it go on, or something has cancelled it: then
//! whoever did must wait for it, so it goes on only once they do, or have gone on without it.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use weightcast_transport::{HoldPoint, Holds};

/// One for a world; clones share it.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<GateState>,
    changed: Condvar,
    stopped: Notify,
    /// The thread that drives all control threads is in one of them.
    busy: AtomicBool,
}

#[derive(Default)]
struct GateState {
    /// Where to stop, after so many times that a read came by.
    at: Option<(HoldPoint, usize)>,
    held: bool,
    /// Of the reads that run, by their workers.
    running: BTreeMap<usize, Arc<AtomicBool>>,
    driver: String,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.state.lock().expect("no panic while held")
    }

    /// For the reads of one reader, or for what serves them.
    pub(super) fn holds(&self) -> Holds {
        let gate = self.clone();
        Holds::new(move |point| gate.pass(point))
    }

    /// The next read stops when it comes by this point after having been there so often.
    pub(super) fn stop_at(&self, point: HoldPoint, before: usize) {
        let mut state = self.state();
        state.at = Some((point, before));
        state.driver = this_thread();
    }

    /// Nothing is stopped any more.
    pub(super) fn open(&self) {
        let mut state = self.state();
        (state.at, state.held) = (None, false);
        self.0.changed.notify_all();
    }

    /// Whether a read stands at a point.
    pub(super) fn is_held(&self) -> bool {
        self.state().held
    }

    /// Waits until one does.
    pub(super) async fn held(&self) {
        while !self.is_held() {
            self.0.stopped.notified().await;
        }
    }

    /// A control thread begins to do something, or has done it.
    pub(super) fn busy(&self, busy: bool) {
        self.0.busy.store(busy, Ordering::SeqCst);
    }

    /// What cancels the read of a worker that runs now.
    pub(super) fn running(&self, worker: usize, cancel: Option<Arc<AtomicBool>>) {
        let mut state = self.state();
        match cancel {
            Some(cancel) => drop(state.running.insert(worker, cancel)),
            None => drop(state.running.remove(&worker)),
        }
    }

    fn pass(&self, point: HoldPoint) {
        let mut state = self.state();
        match &mut state.at {
            Some((at, 0)) if *at == point => state.at = None,
            Some((at, before)) if *at == point => {
                *before -= 1;
                return;
            }
            _ => return,
        }
        state.held = true;
        self.0.stopped.notify_one();
        // Who cancels it waits for it from then on, or has gone on without it: then it stays.
        while state.held && !(state.cancelled() && self.is_awaited(&state.driver)) {
            // The word of a control thread that wakes nobody.
            let waited = self.0.changed.wait_timeout(state, Duration::from_millis(1));
            state = waited.expect("no panic while held").0;
        }
        state.held = false;
    }

    fn is_awaited(&self, driver: &str) -> bool {
        self.0.busy.load(Ordering::SeqCst) && sleeps(driver)
    }
}

impl GateState {
    fn cancelled(&self) -> bool {
        self.running.values().any(|cancel| cancel.load(Ordering::Acquire))
    }
}

/// The name of the running thread in `/proc`.
pub(super) fn this_thread() -> String {
    let link = fs::read_link("/proc/thread-self").expect("Linux");
    format!("/proc/{}/stat", link.display())
}

/// Whether that thread waits for something.
pub(super) fn sleeps(thread: &str) -> bool {
    let stat = fs::read_to_string(thread).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}
