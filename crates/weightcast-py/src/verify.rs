//! The comparison of live replicas.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use weightcast::{Comparison, Options, Other, Role};

use crate::arguments::{seconds, selector};
use crate::exit::detached;
use crate::handle::{interrupted, raise};
use crate::verdict::PyVerdict;

/// Compares two replicas, or one with what it was sealed as.
#[pyfunction]
#[pyo3(signature = (model, replica, *, other, sealed, version, server, token_file, job,
    deadline))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn verify(
    py: Python<'_>,
    model: String,
    replica: String,
    other: Option<String>,
    sealed: bool,
    version: Option<&Bound<'_, PyAny>>,
    server: Option<String>,
    token_file: Option<PathBuf>,
    job: Option<String>,
    deadline: f64,
) -> PyResult<PyVerdict> {
    let other = match other {
        Some(other) => Other::Replica(other),
        None if sealed => Other::Sealed,
        None => Other::Any,
    };
    let version = version.map(selector).transpose()?;
    let what = Comparison { model, replica, other, version, deadline: seconds(deadline)? };
    let options = Options { server, token_file, job, ..Options::new(Role::Rollout) };
    let raised = Arc::new(Mutex::new(None));
    let stop = interrupted(Arc::clone(&raised));
    let verdict = detached(py, || weightcast::verify(&what, &options, &|_| !stop()));
    let verdict = verdict.map_err(|error| raise(py, error, &raised))?;
    PyVerdict::of(py, verdict)
}
