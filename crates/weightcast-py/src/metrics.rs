//! What the handles of this process have done.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::exit::detached;

/// What the handles of this process have done since it started, and hold now: numbers under keys
/// such as `weightcast/update_seconds`, for a trainer's logger. Handles that are closed count too.
/// A key is missing while there is nothing to tell, such as the version of a process that holds none;
/// without handles, the dict is empty.
///
/// With `model`, those of its handles alone. Beyond 64 models the others are one, named `other`.
#[pyfunction]
#[pyo3(signature = (model = None))]
pub(crate) fn metrics(py: Python<'_>, model: Option<String>) -> BTreeMap<String, f64> {
    detached(py, || weightcast::metrics(model.as_deref()))
}

/// The same by model, as text for Prometheus: for a process that serves it on a port of its own. The
/// names begin with `weightcast_client_`.
#[pyfunction]
pub(crate) fn metrics_text(py: Python<'_>) -> String {
    detached(py, weightcast::metrics_text)
}
