//! The handle: every call releases the GIL and can be interrupted.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use weightcast::engine_update::{FleetQuestion, RoutingQuestion};
use weightcast::{
    Condition, Error, Interrupted, LayoutSource, PushTerms, Revision, ShardHandle, Term, Version,
};

use crate::arguments::{self, seconds};
use crate::errors::{exception, locate};
use crate::exit::{close_at_exit, detached, is_left};
use crate::layout::PyLayout;
use crate::listing::PyListing;
use crate::machines::{from_json, to_json};
use crate::options::PyOptions;
use crate::pushed::{PyPushOutlook, PyPushed};
use crate::updated::PyUpdated;
use crate::view::PyView;
use crate::watch::watched;

/// How long a handle that was dropped without `close` takes to leave.
const LEAVE: Duration = Duration::from_secs(5);

/// One shard's session. `weightcast.Handle` wraps it.
#[pyclass(frozen, name = "Handle", module = "weightcast._core")]
pub(crate) struct PyHandle {
    inner: Arc<ShardHandle>,
    /// What the signal handler, or the exchange, raised while a call waited.
    raised: Arc<Mutex<Option<PyErr>>>,
    /// Called with an int32 array of the largest magnitudes of shared FP8 blocks.
    exchange: Mutex<Option<Py<PyAny>>>,
}

/// Name, dtype, global shape.
type TensorTuple = (String, &'static str, Vec<u64>);
/// Number, epoch.
type VersionTuple = (u64, u64);

#[pymethods]
impl PyHandle {
    /// Opens a handle for one shard, described by a `weightcast.Replica`.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        model: &str,
        replica: &Bound<'_, PyAny>,
        options: &Bound<'_, PyOptions>,
    ) -> PyResult<Self> {
        let replica = arguments::replica(replica)?;
        let options = &options.get().0;
        let raised = Arc::new(Mutex::new(None));
        let interrupted = interrupted(Arc::clone(&raised));
        let opened = detached(py, || {
            ShardHandle::open_interruptible(model, replica, options, Some(interrupted))
        });
        match opened {
            Ok(inner) => {
                let inner = Arc::new(inner);
                close_at_exit(&inner);
                warn(py, inner.warning())?;
                Ok(Self { inner, raised, exchange: Mutex::default() })
            }
            Err(error) => Err(raise(py, error, &raised)),
        }
    }

    #[pyo3(signature = (layout, deadline, exchange = None))]
    fn register(
        &self,
        py: Python<'_>,
        layout: PyRef<'_, PyLayout>,
        deadline: f64,
        exchange: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let (builder, regions) = (layout.builder.clone(), layout.regions.clone());
        let rules = layout.rules.clone();
        drop(layout);
        let deadline = seconds(deadline)?;
        self.call(py, |handle| match rules.0.is_empty() {
            true => handle.register(LayoutSource::Open(builder), regions, deadline),
            false => handle.register_transformed(&builder.build()?, &regions, rules, deadline),
        })?;
        *self.exchange.lock().expect("no panic while held") = exchange;
        Ok(())
    }

    /// Name, dtype and global shape of each tensor of the newest version.
    fn catalog(&self, py: Python<'_>, deadline: f64) -> PyResult<Vec<TensorTuple>> {
        let deadline = seconds(deadline)?;
        let catalog = self.call(py, |handle| handle.catalog(deadline))?;
        let tensor = |tensor: &weightcast::plan::Tensor| {
            (tensor.name().to_owned(), tensor.dtype().name(), tensor.shape().to_vec())
        };
        Ok(catalog.values().map(tensor).collect())
    }

    /// Fails, here and on the other shards, the call that they make: always raises.
    fn refuse(&self, py: Python<'_>, reason: String, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        self.call(py, |handle| Err(handle.refuse(reason, deadline)))
    }

    fn unregister(&self, py: Python<'_>, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        self.call(py, |handle| handle.unregister(deadline))
    }

    fn publish(
        &self,
        py: Python<'_>,
        version: u64,
        deadline: f64,
        seal: bool,
    ) -> PyResult<VersionTuple> {
        let deadline = seconds(deadline)?;
        let until = Instant::now() + deadline;
        let exchange = self.exchange.lock().expect("no panic while held");
        let exchange = exchange.as_ref().map(|exchange| exchange.clone_ref(py));
        let version = match exchange {
            None => self.call(py, |handle| handle.publish(version, deadline))?,
            Some(exchange) => {
                let mut exchange = |seen: &mut [i32]| self.exchanged(&exchange, seen);
                self.call(py, |handle| handle.publish_exchanging(version, &mut exchange, deadline))?
            }
        };
        if seal {
            let left = until.saturating_duration_since(Instant::now());
            self.call(py, |handle| handle.wait_sealed(left))?;
        }
        Ok((version.number, version.epoch.0))
    }

    fn wait_sealed(&self, py: Python<'_>, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        self.call(py, |handle| handle.wait_sealed(deadline))
    }

    fn unpublish(&self, py: Python<'_>, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        self.call(py, |handle| handle.unpublish(deadline))
    }

    #[pyo3(signature = (selector, deadline, progress = None))]
    fn replicate(
        &self,
        py: Python<'_>,
        selector: &Bound<'_, PyAny>,
        deadline: f64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyUpdated> {
        let (selector, deadline) = (arguments::selector(selector)?, seconds(deadline)?);
        let updated = match progress {
            None => self.call(py, |handle| handle.replicate(selector, deadline)),
            Some(progress) => watched(py, &progress, |watch| {
                self.call(py, |handle| handle.replicate_watched(selector, deadline, watch))
            }),
        };
        PyUpdated::of(py, updated?)
    }

    #[pyo3(signature = (selector, allow_rollback, staged, deadline, progress = None))]
    fn update(
        &self,
        py: Python<'_>,
        selector: &Bound<'_, PyAny>,
        allow_rollback: bool,
        staged: bool,
        deadline: f64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyUpdated> {
        let (selector, deadline) = (arguments::selector(selector)?, seconds(deadline)?);
        let update = |handle: &ShardHandle| match staged {
            true => handle.update_staged(selector, allow_rollback, deadline),
            false => handle.update(selector, allow_rollback, deadline),
        };
        let updated = match progress {
            None => self.call(py, update),
            Some(progress) => watched(py, &progress, |watch| {
                self.call(py, |handle| {
                    handle.update_watched(selector, allow_rollback, staged, deadline, watch)
                })
            }),
        };
        PyUpdated::of(py, updated?)
    }

    /// Pushes the version that is held, to replicas by name or to all rollouts that accept.
    #[pyo3(signature = (version, to, deadline, patience))]
    fn push(
        &self,
        py: Python<'_>,
        version: Option<u64>,
        to: Option<Vec<String>>,
        deadline: f64,
        patience: f64,
    ) -> PyResult<PyPushed> {
        let (deadline, patience) = (seconds(deadline)?, seconds(patience)?);
        let options = PushTerms { version, to, deadline, patience };
        PyPushed::of(py, self.call(py, |handle| handle.push(&options))?)
    }

    /// What a push would do at each shard, and why.
    #[pyo3(signature = (version, to, deadline))]
    fn explain_push(
        &self,
        py: Python<'_>,
        version: Option<u64>,
        to: Option<Vec<String>>,
        deadline: f64,
    ) -> PyResult<Vec<PyPushOutlook>> {
        let terms = PushTerms { version, to, deadline: seconds(deadline)?, ..PushTerms::default() };
        let outlooks = self.call(py, |handle| handle.explain_push(&terms))?;
        Ok(outlooks.into_iter().map(PyPushOutlook::of).collect())
    }

    /// Waits for a push; `before` is called with its version before the memory changes.
    #[pyo3(signature = (before, deadline))]
    fn accept(
        &self,
        py: Python<'_>,
        before: Option<Py<PyAny>>,
        deadline: f64,
    ) -> PyResult<PyUpdated> {
        let deadline = seconds(deadline)?;
        let mut told = |version: Version| match &before {
            None => true,
            Some(before) => Python::attach(|py| match before.call1(py, (version.number,)) {
                Ok(_) => true,
                Err(error) => {
                    *self.raised.lock().expect("no panic while held") = Some(error);
                    false
                }
            }),
        };
        PyUpdated::of(py, self.call(py, |handle| handle.accept(&mut told, deadline))?)
    }

    fn retain(
        &self,
        py: Python<'_>,
        selector: &Bound<'_, PyAny>,
        deadline: f64,
    ) -> PyResult<(u64, u64)> {
        let (selector, deadline) = (arguments::selector(selector)?, seconds(deadline)?);
        let version = self.call(py, |handle| handle.retain(selector, deadline))?;
        Ok((version.number, version.epoch.0))
    }

    fn let_go(&self, py: Python<'_>, version: u64, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        self.call(py, |handle| handle.let_go(version, deadline))
    }

    fn view(
        &self,
        py: Python<'_>,
        selector: &Bound<'_, PyAny>,
        shard: Option<u32>,
        deadline: f64,
    ) -> PyResult<PyView> {
        let (selector, deadline) = (arguments::selector(selector)?, seconds(deadline)?);
        self.call(py, |handle| handle.view(selector, shard, deadline)).map(PyView)
    }

    fn list(&self, py: Python<'_>, deadline: f64) -> PyResult<PyListing> {
        let deadline = seconds(deadline)?;
        PyListing::of(py, self.call(py, |handle| handle.list(deadline))?)
    }

    fn wait(&self, py: Python<'_>, until: &Bound<'_, PyAny>, deadline: f64) -> PyResult<PyListing> {
        let deadline = seconds(deadline)?;
        let until = arguments::condition(until)?;
        PyListing::of(py, self.call(py, |handle| handle.wait(until, deadline))?)
    }

    fn wait_changed(
        &self,
        py: Python<'_>,
        after: (u64, u64),
        deadline: f64,
    ) -> PyResult<PyListing> {
        let deadline = seconds(deadline)?;
        let after = Revision { term: Term(after.0), number: after.1 };
        let until = Condition::Changed { after };
        PyListing::of(py, self.call(py, |handle| handle.wait(until, deadline))?)
    }

    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Option<VersionTuple>> {
        self.inner.check_process().map_err(|e| exception(py, e))?;
        Ok(self.inner.version().map(|v| (v.number, v.epoch.0)))
    }

    #[getter]
    fn progress(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner.check_process().map_err(|e| exception(py, e))?;
        Ok(self.inner.progress())
    }

    #[getter]
    fn progress_total(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner.check_process().map_err(|e| exception(py, e))?;
        Ok(self.inner.progress_total())
    }

    /// Where the last minutes of the session were written.
    fn record(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.call(py, |handle| Ok(handle.record()?.path))
    }

    /// Asks the register of the model's fleet; question and answer as JSON.
    #[pyo3(signature = (question_json, deadline = 10.0))]
    fn ask_fleet(&self, py: Python<'_>, question_json: &str, deadline: f64) -> PyResult<String> {
        let question: FleetQuestion = from_json("question_json", question_json)?;
        let deadline = seconds(deadline)?;
        to_json(&self.call(py, |handle| handle.ask_fleet(question, deadline))?)
    }

    /// Tells or asks the table of routing leases; question and answer as JSON.
    #[pyo3(signature = (question_json, deadline = 10.0))]
    fn ask_routing(&self, py: Python<'_>, question_json: &str, deadline: f64) -> PyResult<String> {
        let question: RoutingQuestion = from_json("question_json", question_json)?;
        let deadline = seconds(deadline)?;
        to_json(&self.call(py, |handle| handle.ask_routing(question, deadline))?)
    }

    fn close(&self, py: Python<'_>, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        detached(py, || self.inner.close(deadline));
        Ok(())
    }
}

impl PyHandle {
    /// Has Python take the largest over all shards.
    fn exchanged(&self, exchange: &Py<PyAny>, seen: &mut [i32]) -> Result<(), Error> {
        let called = Python::attach(|py| {
            let bytes: Vec<u8> = seen.iter().flat_map(|number| number.to_ne_bytes()).collect();
            let bytes = PyByteArray::new(py, &bytes);
            exchange.call1(py, (&bytes,))?;
            let bytes = bytes.to_vec();
            let (numbers, _) = bytes.as_chunks();
            if numbers.len() != seen.len() {
                return Err(PyValueError::new_err(
                    "the exchange changed how many numbers there are",
                ));
            }
            seen.iter_mut().zip(numbers).for_each(|(n, bytes)| *n = i32::from_ne_bytes(*bytes));
            Ok(())
        });
        called.map_err(|error| {
            *self.raised.lock().expect("no panic while held") = Some(error);
            Error::Interrupted
        })
    }

    /// Runs one call of the handle without the GIL.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&ShardHandle) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let inner = &self.inner;
        detached(py, || call(inner)).map_err(|error| {
            let error = raise(py, error, &self.raised);
            locate(py, &error, inner.mismatch());
            error
        })
    }
}

impl Drop for PyHandle {
    /// Leaves without the GIL: other threads of the handle may need it to let go of a buffer.
    fn drop(&mut self) {
        let inner = &self.inner;
        Python::try_attach(|py| detached(py, || inner.close(LEAVE)));
    }
}

/// Tells the caller of `weightcast.open`.
fn warn(py: Python<'_>, warning: Option<&str>) -> PyResult<()> {
    /// Of the two functions between: `Handle.open` and `weightcast.open`.
    const CALLER: i32 = 2;
    let Some(warning) = warning else { return Ok(()) };
    let category = py.get_type::<PyRuntimeWarning>();
    PyErr::warn(py, &category, &std::ffi::CString::new(warning)?, CALLER)
}

/// Looks for Ctrl-C; keeps what its handler raised.
pub(crate) fn interrupted(raised: Arc<Mutex<Option<PyErr>>>) -> Interrupted {
    Box::new(move || {
        is_left()
            || Python::attach(|py| match py.check_signals() {
                Ok(()) => false,
                Err(error) => {
                    *raised.lock().expect("no panic while held") = Some(error);
                    true
                }
            })
    })
}

pub(crate) fn raise(py: Python<'_>, error: Error, raised: &Mutex<Option<PyErr>>) -> PyErr {
    let kept = raised.lock().expect("no panic while held").take();
    match (matches!(error, Error::Interrupted), kept) {
        (true, Some(kept)) => kept,
        _ => exception(py, error),
    }
}
