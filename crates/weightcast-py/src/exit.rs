//! The end of the interpreter, while daemon threads are in calls.
//!
//! From then on a thread that takes the GIL again is ended by Python in the midst of our frames, which
//! ends the process by a signal. So a call that is under way when the interpreter begins to end never
//! returns to it: its thread stays where it is, without the GIL, until the process is gone. An `atexit`
//! function sees to that, before anything is torn down: it closes all handles, which ends what their
//! threads wait for, and waits until no call is under way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use weightcast::ShardHandle;

/// What closing may take for readers that are still there; as where a `with` block ends in an error.
const HURRY: Duration = Duration::from_secs(2);
/// How long calls may take to notice: those that wait look ten times a second.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(2);

/// The thread that ends the interpreter: it alone goes on using it.
static ENDS: OnceLock<ThreadId> = OnceLock::new();
/// Calls whose threads will take the GIL again.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Every open handle.
static HANDLES: Mutex<Vec<Weak<ShardHandle>>> = Mutex::new(Vec::new());

/// Runs `call` without the GIL. Does not return on a thread that the interpreter leaves behind.
pub(crate) fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    CALLS.fetch_add(1, Ordering::SeqCst);
    let value = py.detach(|| {
        stay_if_left();
        let value = call();
        stay_if_left();
        value
    });
    CALLS.fetch_sub(1, Ordering::SeqCst);
    value
}

/// Whether the interpreter ends, and not by this thread: then it must not be used.
pub(crate) fn is_left() -> bool {
    ENDS.get().is_some_and(|ends| *ends != std::thread::current().id())
}

fn stay_if_left() {
    if is_left() {
        CALLS.fetch_sub(1, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }
}

/// Closes the handle when the interpreter ends, if it is open then.
pub(crate) fn close_at_exit(handle: &Arc<ShardHandle>) {
    let mut handles = HANDLES.lock().expect("no panic while held");
    handles.retain(|handle| handle.strong_count() > 0);
    handles.push(Arc::downgrade(handle));
}

/// Has `atexit` end what is under way.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(end, module)?,))?;
    let forked = wrap_pyfunction!(forked, module)?;
    let options = pyo3::types::PyDict::new(py);
    options.set_item("after_in_child", forked)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&options))?;
    Ok(())
}

#[pyfunction]
fn end(py: Python<'_>) {
    let _ = ENDS.set(std::thread::current().id());
    let handles = std::mem::take(&mut *HANDLES.lock().expect("no panic while held"));
    py.detach(|| {
        weightcast::wake_log_lines();
        std::thread::scope(|scope| {
            for handle in handles.iter().filter_map(Weak::upgrade) {
                scope.spawn(move || handle.close(HURRY));
            }
        });
        let give_up = Instant::now() + PATIENCE;
        while CALLS.load(Ordering::SeqCst) > 0 && Instant::now() < give_up {
            std::thread::sleep(LOOK);
        }
    });
}

/// The calls of a fork's parent are none of the child's.
#[pyfunction]
fn forked() {
    CALLS.store(0, Ordering::SeqCst);
}
