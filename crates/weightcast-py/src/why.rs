//! Why a replica waits.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use weightcast::wire::WhyStatus;
use weightcast::{Options, Role};

use crate::errors::exception;
use crate::exit::detached;
use crate::record::record;

record! {
    /// Why a replica waits, or that it does not.
    class "weightcast"."Why" = PyWhy(sentence, waits, held_up_by, cycle) {
        /// One sentence: what is waited for, who holds it up, what ends the wait.
        sentence: String,
        /// Whether a call of the replica, or its opening, waits.
        waits: bool,
        /// The replicas that hold it up, the nearest first: each waits for the next.
        held_up_by: Py<PyTuple>,
        /// The replicas that wait for each other in a circle, if they do.
        cycle: Py<PyTuple>,
    }
    fn __str__(&self) -> &str {
        &self.sentence
    }
}

/// Why a replica waits: what `weightcast why` prints.
#[pyfunction]
#[pyo3(signature = (replica, model = None, server = None, token_file = None, job = None))]
pub(crate) fn why(
    py: Python<'_>,
    replica: &str,
    model: Option<&str>,
    server: Option<String>,
    token_file: Option<PathBuf>,
    job: Option<String>,
) -> PyResult<PyWhy> {
    let options = Options { server, token_file, job, ..Options::new(Role::Rollout) };
    let told = detached(py, || weightcast::why(&options, model, replica));
    let WhyStatus { sentence, waits, held_up_by, cycle } = told.map_err(|e| exception(py, e))?;
    let held_up_by = PyTuple::new(py, held_up_by)?.unbind();
    let cycle = PyTuple::new(py, cycle)?.unbind();
    Ok(PyWhy { sentence, waits, held_up_by, cycle })
}
