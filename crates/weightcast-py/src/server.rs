//! The embedded server, and the command line.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use pyo3::prelude::*;
use weightcast::{Owned, ServeConfig, Server};

use crate::arguments::seconds;
use crate::errors::exception;
use crate::exit::detached;

/// Below this, a scheduler's hiccup evicts a healthy client.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// A reference server inside this process.
#[pyclass(frozen, name = "Server", module = "weightcast._core")]
pub(crate) struct PyServer {
    address: String,
    metrics_address: Option<String>,
    token_file: Option<PathBuf>,
    inner: Owned<Mutex<Option<Server>>>,
}

#[pymethods]
impl PyServer {
    /// What clients connect to.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Where metrics are served, if they are.
    #[getter]
    fn metrics_address(&self) -> Option<&str> {
        self.metrics_address.as_deref()
    }

    /// Where clients find the token that they must show.
    #[getter]
    fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Stops it; stopping again does nothing, and neither does a fork's copy.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(inner) = self.inner.get() else { return Ok(()) };
        let server = inner.lock().expect("no panic while held").take();
        let stopped = detached(py, || server.map_or(Ok(()), Server::stop));
        stopped.map_err(|e| exception(py, e))
    }
}

/// Starts a reference server on a thread of this process.
#[pyfunction]
#[pyo3(signature = (
    address, *, token_file, insecure, lease, drain_deadline, fanout, host_fanout, stripes, index, metrics, trace,
    otlp, record_dir
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn serve(
    py: Python<'_>,
    address: String,
    token_file: Option<PathBuf>,
    insecure: bool,
    lease: f64,
    drain_deadline: f64,
    fanout: u32,
    host_fanout: u32,
    stripes: u32,
    index: u32,
    metrics: Option<String>,
    trace: Option<PathBuf>,
    otlp: Option<String>,
    record_dir: Option<PathBuf>,
) -> PyResult<PyServer> {
    let (lease, drain_deadline) = (seconds(lease)?, seconds(drain_deadline)?);
    let given = token_file.clone();
    let started = detached(py, || {
        let token = token_file.as_deref().map(weightcast::read_token).transpose()?;
        weightcast::serve(ServeConfig {
            address,
            token,
            insecure,
            lease: lease.max(SHORTEST_LEASE),
            drain_deadline,
            fanout,
            host_fanout,
            stripes,
            index,
            metrics,
            trace,
            otlp,
            record_dir,
            ..ServeConfig::default()
        })
    });
    let server = started.map_err(|e| exception(py, e))?;
    let address = server.address().to_owned();
    let metrics_address = server.metrics_address().map(str::to_owned);
    let token_file = server.token_file().map(Path::to_owned).or(given);
    let inner = Owned::new(Mutex::new(Some(server)));
    Ok(PyServer { address, metrics_address, token_file, inner })
}

/// Runs the `weightcast` command with these arguments; returns its exit status. `program` is a command
/// that runs it in another process.
#[pyfunction]
pub(crate) fn command_line(py: Python<'_>, arguments: Vec<String>, program: Vec<String>) -> i32 {
    py.detach(|| weightcast_cli::run_as(&program, arguments))
}
