//! A server's status as dicts, field by field as in `proto/weightcast.proto`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weightcast::wire::{
    LossStatus, ModelStatus, ReaderStatus, ReplicaStatus, ShardStatus, VersionStatus,
};
use weightcast::{Options, Role, Status};

use crate::errors::exception;
use crate::exit::detached;

/// A server's status: what `weightcast status --json` prints.
#[pyfunction]
#[pyo3(signature = (server = None, token_file = None, job = None))]
pub(crate) fn status(
    py: Python<'_>,
    server: Option<String>,
    token_file: Option<PathBuf>,
    job: Option<String>,
) -> PyResult<Bound<'_, PyDict>> {
    let options = Options { server, token_file, job, ..Options::new(Role::Rollout) };
    let status = detached(py, || weightcast::status(&options)).map_err(|e| exception(py, e))?;
    server_status(py, status)
}

/// A dict of a message's fields under their names; those with `by` are lists of messages. A field
/// that is missing here does not compile.
macro_rules! dict {
    ($py:ident, $status:ident: $message:ident { $($field:ident $(by $convert:ident)?),* }) => {{
        let $message { $($field),* } = $status;
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), dict!(@value $py, $field $(, $convert)?))?;)*
        Ok(dict)
    }};
    (@value $py:ident, $field:ident) => { $field };
    (@value $py:ident, $field:ident, $convert:ident) => { each($py, $field, $convert)? };
}

type Converted<'py> = PyResult<Bound<'py, PyDict>>;

fn server_status(py: Python<'_>, of: Status) -> Converted<'_> {
    dict!(py, of: Status {
        term, sessions, manifests, manifest_bytes, models by model, counters, losses by loss, version
    })
}

fn model(py: Python<'_>, of: ModelStatus) -> Converted<'_> {
    dict!(py, of: ModelStatus {
        name, epoch, revision, versions by version, replicas by replica, readers by reader, retain
    })
}

fn version(py: Python<'_>, of: VersionStatus) -> Converted<'_> {
    dict!(py, of: VersionStatus { epoch, version, replicas })
}

fn replica(py: Python<'_>, of: ReplicaStatus) -> Converted<'_> {
    dict!(py, of: ReplicaStatus { name, role, state, version, num_shards, shards by shard, pending })
}

fn shard(py: Python<'_>, of: ShardStatus) -> Converted<'_> {
    dict!(py, of: ShardStatus {
        shard, host, datacentre, spot, data_address, connected, lease_left_s, bytes, generation
    })
}

fn reader(py: Python<'_>, of: ReaderStatus) -> Converted<'_> {
    dict!(py, of: ReaderStatus { reader, source, version })
}

fn loss(py: Python<'_>, of: LossStatus) -> Converted<'_> {
    dict!(py, of: LossStatus { epoch, version, replica, reason, model })
}

fn each<'py, T>(
    py: Python<'py>,
    messages: Vec<T>,
    convert: impl Fn(Python<'py>, T) -> Converted<'py>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    messages.into_iter().map(|message| convert(py, message)).collect()
}
