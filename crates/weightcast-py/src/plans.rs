//! Plans between whole sides, before anything runs. Layouts come and plans go as JSON.

use std::fmt::Display;
use std::path::PathBuf;

use pyo3::prelude::*;
use weightcast_cli::{GivenTransfer, explain_json, plan_json};
use weightcast_fleet::LayoutFile;

use crate::errors::Misuse;
use crate::exit::detached;
use crate::machines::to_json;

fn misuse(error: impl Display) -> PyErr {
    Misuse::new_err(format!("{error:#}"))
}

/// The ranks of all these texts as the text of one file.
#[pyfunction]
pub(crate) fn join_layouts(py: Python<'_>, texts: Vec<String>) -> PyResult<String> {
    let joined = detached(py, || {
        let parsed = texts.iter().map(|text| LayoutFile::parse(text)).collect::<Result<_, _>>()?;
        LayoutFile::joined(parsed)
    });
    to_json(&joined.map_err(misuse)?)
}

/// What `weightcast plan --json` prints.
#[pyfunction]
#[pyo3(signature = (source, target, config, replicas, gpus_per_host, machine, nic_gbps, budget))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn plan(
    py: Python<'_>,
    source: String,
    target: String,
    config: Option<PathBuf>,
    replicas: u64,
    gpus_per_host: u64,
    machine: &str,
    nic_gbps: Option<f64>,
    budget: u64,
) -> PyResult<String> {
    let transfer = GivenTransfer { config, source, target, replicas };
    let planned = detached(py, || plan_json(transfer, gpus_per_host, machine, nic_gbps, budget));
    planned.map_err(misuse)
}

/// What `weightcast plan explain --json` prints.
#[pyfunction]
#[pyo3(signature = (source, target, config, tensor, rank))]
pub(crate) fn explain(
    py: Python<'_>,
    source: String,
    target: String,
    config: Option<PathBuf>,
    tensor: Option<&str>,
    rank: Option<u64>,
) -> PyResult<String> {
    let transfer = GivenTransfer { config, source, target, replicas: 1 };
    detached(py, || explain_json(transfer, tensor, rank)).map_err(misuse)
}
