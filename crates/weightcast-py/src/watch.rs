//! A Python callable that is told the progress of a read.

use std::sync::Mutex;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use weightcast::ReadWatch;

use crate::exit::is_left;

/// Runs a call that tells `progress` its progress. An exception of `progress` is raised once the call has ended, and
/// `progress` is not called again. Only an exception that is no `Exception`, such as Ctrl-C's, ends the call.
pub(crate) fn watched<T>(
    py: Python<'_>,
    progress: &Py<PyAny>,
    call: impl FnOnce(ReadWatch<'_>) -> PyResult<T>,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let watch = |arrived: u64, total: u64| {
        let mut raised = raised.lock().expect("no panic while held");
        if raised.is_some() || is_left() {
            return true;
        }
        Python::attach(|py| match progress.call1(py, (arrived, total)) {
            Ok(_) => true,
            Err(error) => {
                let goes_on = error.is_instance_of::<PyException>(py);
                *raised = Some(error);
                goes_on
            }
        })
    };
    let result = call(&watch);
    let raised: Option<PyErr> = raised.into_inner().expect("no panic while held");
    match (raised, result) {
        (None, result) => result,
        (Some(error), Err(failed)) if error.is_instance_of::<PyException>(py) => {
            failed.value(py).setattr("__context__", error)?;
            Err(failed)
        }
        (Some(error), _) => Err(error),
    }
}
