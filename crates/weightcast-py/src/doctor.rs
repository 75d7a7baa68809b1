//! The doctor, and what it says.

use std::path::PathBuf;

use pyo3::prelude::*;
use weightcast::{Check, ChoiceOf, Examination, Options, Role};

use crate::errors::exception;
use crate::exit::detached;
use crate::record::record;

record! {
    /// What `doctor` found of one thing; true unless it is a problem.
    class "weightcast"."Check" = PyCheck(id, of, verdict, found, advice) {
        /// Which check it is: the same in every release.
        id: String,
        /// Which one of several things it is about, such as a server of the list, or a variable.
        of: Option<String>,
        /// "ok", "warning", "problem" or "not applicable".
        verdict: String,
        /// What was found.
        found: String,
        /// What to do next, if it is not good.
        advice: Option<String>,
    }

    fn __bool__(&self) -> bool {
        self.verdict != weightcast::CheckVerdict::Problem.name()
    }
}

/// Examines this host and its job.
#[pyfunction]
#[pyo3(signature = (*, server, token_file, job, source, reader, model, program))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn doctor(
    py: Python<'_>,
    server: Option<String>,
    token_file: Option<PathBuf>,
    job: Option<String>,
    source: Option<String>,
    reader: Option<String>,
    model: Option<String>,
    program: Vec<String>,
) -> PyResult<Vec<PyCheck>> {
    let options = Options { server, token_file, job, ..Options::new(Role::Rollout) };
    let choice = source.zip(reader).map(|(source, reader)| ChoiceOf { source, reader, model });
    let examination = Examination { program, choice };
    let checks = detached(py, || weightcast::doctor(&examination, &options));
    Ok(checks.map_err(|error| exception(py, error))?.into_iter().map(check).collect())
}

fn check(of: Check) -> PyCheck {
    let Check { id, of, verdict, found, advice } = of;
    PyCheck { id: id.to_owned(), of, verdict: verdict.name().to_owned(), found, advice }
}
