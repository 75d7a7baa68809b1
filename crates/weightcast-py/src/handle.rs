//! The handle: every call releases the GIL and can be interrupted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use weightcast::{
    Condition, EpochPolicy, Error, Held, Interrupted, LayoutSource, Oldest, Options, Quorum,
    Replica, Revision, Role, Selector, ShardHandle, Term, Updated,
};

use crate::errors::{exception, locate};
use crate::exit::{close_at_exit, detached, is_left};
use crate::layout::Layout;

/// How long a handle that was dropped without `close` takes to leave.
const LEAVE: Duration = Duration::from_secs(5);

/// One shard's session. `weightcast.Handle` wraps it.
#[pyclass(frozen, module = "weightcast._core")]
pub(crate) struct Handle {
    inner: Arc<ShardHandle>,
    /// What the signal handler, or the exchange, raised while a call waited.
    raised: Arc<Mutex<Option<PyErr>>>,
    /// Called with an int32 array of the largest magnitudes of shared FP8 blocks.
    exchange: Mutex<Option<Py<PyAny>>>,
}

/// name, dtype, global shape
type TensorTuple = (String, &'static str, Vec<u64>);
/// version, epoch
type VersionTuple = (u64, u64);
/// changed, version, source, bytes, verified, seconds, plan_seconds, way and why, staged,
/// install_seconds, helpers, plan_from
type UpdatedTuple = (
    bool,
    Option<VersionTuple>,
    Option<String>,
    u64,
    u64,
    f64,
    f64,
    (String, String),
    u64,
    f64,
    Vec<String>,
    &'static str,
);
/// Revision: term, number.
type RevisionTuple = (u64, u64);
/// revision, (version, replicas)
type ListingTuple = (RevisionTuple, Vec<(VersionTuple, Vec<String>)>);

#[pymethods]
impl Handle {
    #[staticmethod]
    #[pyo3(signature = (model, name, shard, num_shards, datacentre, host, spot, role, new_epoch,
        retain, offload_seeding, offload_bytes, staging_bytes, plan_cache, server, token_file,
        data_bind, data_advertise, data_networks, insecure, job, lazy_server, way, deadline, reconnect))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        py: Python<'_>,
        model: &str,
        name: String,
        shard: u32,
        num_shards: u32,
        datacentre: String,
        host: Option<String>,
        spot: bool,
        role: &str,
        new_epoch: bool,
        retain: u32,
        offload_seeding: bool,
        offload_bytes: Option<u64>,
        staging_bytes: Option<u64>,
        plan_cache: Option<PathBuf>,
        server: Option<String>,
        token_file: Option<PathBuf>,
        data_bind: Option<String>,
        data_advertise: Option<String>,
        data_networks: Option<String>,
        insecure: bool,
        job: Option<String>,
        lazy_server: Vec<String>,
        way: &str,
        deadline: f64,
        reconnect: f64,
    ) -> PyResult<Self> {
        let mut replica = Replica::new(name, shard, num_shards);
        (replica.datacentre, replica.spot) = (datacentre, spot);
        replica.host = host.unwrap_or(replica.host);
        let options = Options {
            epoch: if new_epoch { EpochPolicy::New } else { EpochPolicy::Current },
            retain,
            offload_seeding,
            offload_bytes,
            staging_bytes,
            plan_cache,
            server,
            token_file,
            data_bind,
            data_advertise,
            data_networks,
            insecure,
            lazy_server,
            job,
            way: parse_way(way)?,
            deadline: seconds(deadline)?,
            reconnect: seconds(reconnect)?,
            ..Options::new(parse_role(role)?)
        };
        let raised = Arc::new(Mutex::new(None));
        let interrupted = interrupted(Arc::clone(&raised));
        let opened = detached(py, || {
            ShardHandle::open_interruptible(model, replica, &options, Some(interrupted))
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
        layout: PyRef<'_, Layout>,
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

    fn replicate(
        &self,
        py: Python<'_>,
        selector: (String, u64),
        deadline: f64,
    ) -> PyResult<UpdatedTuple> {
        let (selector, deadline) = (parse_selector(&selector)?, seconds(deadline)?);
        self.call(py, |handle| handle.replicate(selector, deadline)).map(updated)
    }

    fn update(
        &self,
        py: Python<'_>,
        selector: (String, u64),
        allow_rollback: bool,
        staged: bool,
        deadline: f64,
    ) -> PyResult<UpdatedTuple> {
        let (selector, deadline) = (parse_selector(&selector)?, seconds(deadline)?);
        let update = |handle: &ShardHandle| match staged {
            true => handle.update_staged(selector, allow_rollback, deadline),
            false => handle.update(selector, allow_rollback, deadline),
        };
        self.call(py, update).map(updated)
    }

    fn list(&self, py: Python<'_>, deadline: f64) -> PyResult<ListingTuple> {
        let deadline = seconds(deadline)?;
        self.call(py, |handle| handle.list(deadline)).map(listing)
    }

    fn wait(
        &self,
        py: Python<'_>,
        until: (String, u64, Option<u32>),
        deadline: f64,
    ) -> PyResult<ListingTuple> {
        let deadline = seconds(deadline)?;
        let until = parse_condition(until)?;
        self.call(py, |handle| handle.wait(until, deadline)).map(listing)
    }

    fn wait_changed(
        &self,
        py: Python<'_>,
        after: RevisionTuple,
        deadline: f64,
    ) -> PyResult<ListingTuple> {
        let deadline = seconds(deadline)?;
        let after = Revision { term: Term(after.0), number: after.1 };
        let until = Condition::Changed { after };
        self.call(py, |handle| handle.wait(until, deadline)).map(listing)
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

    fn close(&self, py: Python<'_>, deadline: f64) -> PyResult<()> {
        let deadline = seconds(deadline)?;
        detached(py, || self.inner.close(deadline));
        Ok(())
    }
}

impl Handle {
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

impl Drop for Handle {
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

pub(crate) fn seconds(deadline: f64) -> PyResult<Duration> {
    /// A year: beyond it clocks overflow, not patience.
    const LONGEST: f64 = 366.0 * 86_400.0;
    if deadline.is_finite() && (0.0..=LONGEST).contains(&deadline) {
        return Ok(Duration::from_secs_f64(deadline));
    }
    Err(PyValueError::new_err(format!("a deadline is 0 to {LONGEST} seconds, not {deadline}")))
}

fn parse_role(role: &str) -> PyResult<Role> {
    match role {
        "trainer" => Ok(Role::Trainer),
        "rollout" => Ok(Role::Rollout),
        other => Err(PyValueError::new_err(format!("role is trainer or rollout, not {other:?}"))),
    }
}

fn parse_way(way: &str) -> PyResult<weightcast::transport::Way> {
    use weightcast::transport::Way;
    match way {
        "auto" => Ok(Way::Auto),
        "direct" => Ok(Way::Direct),
        "tcp" => Ok(Way::Tcp),
        other => Err(PyValueError::new_err(format!("way is auto, direct or tcp, not {other:?}"))),
    }
}

pub(crate) fn parse_selector((kind, number): &(String, u64)) -> PyResult<Selector> {
    Ok(match kind.as_str() {
        "exact" => Selector::Exact(*number),
        "latest" => Selector::Latest,
        "latest_minus" => Selector::LatestMinus(*number),
        "nth_latest" => Selector::NthLatest(*number),
        "at_least" => Selector::AtLeast(*number),
        other => return Err(PyValueError::new_err(format!("unknown selector {other:?}"))),
    })
}

/// What to wait for, a number, and of how many rollouts; or a selector.
fn parse_condition((kind, number, rollouts): (String, u64, Option<u32>)) -> PyResult<Condition> {
    let by = rollouts.map_or(Quorum::All, Quorum::AtLeast);
    Ok(match kind.as_str() {
        "held" => Condition::Held(Held { oldest: Oldest::Number(number), by }),
        "fresh" => Condition::Held(Held { oldest: Oldest::Behind(number), by }),
        _ => Condition::Available(parse_selector(&(kind, number))?),
    })
}

fn updated(updated: Updated) -> UpdatedTuple {
    let transfer = updated.transfer;
    (
        updated.changed,
        updated.version.map(|v| (v.number, v.epoch.0)),
        updated.source,
        transfer.bytes,
        transfer.verified,
        transfer.seconds,
        transfer.plan_seconds,
        (transfer.way, transfer.way_reason),
        transfer.staged,
        transfer.install_seconds,
        transfer.helpers,
        transfer.plan_from.name(),
    )
}

fn listing(listing: weightcast::Listing) -> ListingTuple {
    let versions: BTreeMap<_, _> = listing.versions;
    let versions = versions
        .into_iter()
        .map(|(v, replicas)| ((v.number, v.epoch.0), replicas.into_iter().collect()));
    ((listing.revision.term.0, listing.revision.number), versions.collect())
}
