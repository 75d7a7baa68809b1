//! What the job wants of a handle.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use weightcast::transport::Way;
use weightcast::{EpochPolicy, Options, Role};

use crate::arguments::seconds;

/// What the job wants of a handle: the arguments of `weightcast.open`, but for who opens it.
#[pyclass(frozen, name = "Options", module = "weightcast._core")]
pub(crate) struct PyOptions(pub(crate) Options);

#[pymethods]
impl PyOptions {
    #[new]
    #[pyo3(signature = (*, role, new_epoch, retain, offload_seeding, offload_bytes, staging_bytes,
        plan_cache, trace, otlp, record_dir, server, token_file, data_bind, data_advertise, data_networks,
        insecure, job, lazy_server, way, deadline, reconnect))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        role: &str,
        new_epoch: bool,
        retain: u32,
        offload_seeding: bool,
        offload_bytes: Option<u64>,
        staging_bytes: Option<u64>,
        plan_cache: Option<PathBuf>,
        trace: Option<PathBuf>,
        otlp: Option<String>,
        record_dir: Option<PathBuf>,
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
        Ok(Self(Options {
            epoch: if new_epoch { EpochPolicy::New } else { EpochPolicy::Current },
            retain,
            offload_seeding,
            offload_bytes,
            staging_bytes,
            plan_cache,
            trace,
            otlp,
            record_dir,
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
        }))
    }
}

fn parse_role(role: &str) -> PyResult<Role> {
    match role {
        "trainer" => Ok(Role::Trainer),
        "rollout" => Ok(Role::Rollout),
        other => Err(PyValueError::new_err(format!("role is trainer or rollout, not {other:?}"))),
    }
}

fn parse_way(way: &str) -> PyResult<Way> {
    match way {
        "auto" => Ok(Way::Auto),
        "shared" => Ok(Way::Shared),
        "direct" => Ok(Way::Direct),
        "tcp" => Ok(Way::Tcp),
        other => {
            let what = format!("way is auto, shared, direct or tcp, not {other:?}");
            Err(PyValueError::new_err(what))
        }
    }
}
