//! The engines of a fleet, as a router sees them.

use std::path::PathBuf;

use pyo3::prelude::*;
use weightcast::engine_update::RoutingLease;
use weightcast::{Options, Role};

use crate::errors::exception;
use crate::exit::detached;
use crate::record::record;

record! {
    /// One engine of a fleet: whether a router may send requests there.
    class "weightcast"."RoutingLease" = PyRoutingLease(engine, life, state, version, epoch, left_s) {
        /// The engine, as it calls itself: its address.
        engine: String,
        /// Another number whenever the engine starts.
        life: u64,
        /// `admitted`, `behind`, `standing` or `joining`.
        state: String,
        /// The version that all of its workers serve, if they do.
        version: Option<u64>,
        /// The version's training run.
        epoch: Option<u64>,
        /// Seconds for which this is so without another word of the engine.
        left_s: f64,
    }
    /// Whether requests may be sent there.
    #[getter]
    fn admitted(&self) -> bool {
        self.state == "admitted"
    }
}

/// The engines that serve a model: what `weightcast engines` prints.
#[pyfunction]
#[pyo3(signature = (model, server = None, token_file = None, job = None))]
pub(crate) fn engines(
    py: Python<'_>,
    model: &str,
    server: Option<String>,
    token_file: Option<PathBuf>,
    job: Option<String>,
) -> PyResult<Vec<PyRoutingLease>> {
    let options = Options { server, token_file, job, ..Options::new(Role::Rollout) };
    let told = detached(py, || weightcast::engines(&options, model));
    let leases = told.map_err(|e| exception(py, e))?;
    Ok(leases.into_iter().map(lease).collect())
}

fn lease(of: RoutingLease) -> PyRoutingLease {
    PyRoutingLease {
        engine: of.engine,
        life: of.life,
        state: of.state.name().to_owned(),
        version: of.version.map(|version| version.number),
        epoch: of.version.map(|version| version.epoch.0),
        left_s: of.left.0 as f64 / 1e9,
    }
}
