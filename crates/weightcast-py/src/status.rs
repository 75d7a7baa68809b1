//! A server's status as dicts, field by field as in `proto/weightcast.proto`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weightcast::wire::{
    LossStatus, ModelStatus, PendingStatus, ReaderStatus, ReadingStatus, ReplicaStatus,
    ShardStatus, VersionStatus,
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

/// A dict of the fields of a message under their names. Fields with `by` are lists of messages; fields with `of` are
/// a message or none. A field that is missing here does not compile.
macro_rules! dict {
    ($py:ident, $status:ident: $message:ident { $($field:ident $(by $convert:ident)? $(of $one:ident)?),* }) => {{
        let $message { $($field),* } = $status;
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), dict!(@value $py, $field $(, by $convert)? $(, of $one)?))?;)*
        Ok(dict)
    }};
    (@value $py:ident, $field:ident) => { $field };
    (@value $py:ident, $field:ident, by $convert:ident) => { each($py, $field, $convert)? };
    (@value $py:ident, $field:ident, of $one:ident) => { $field.map(|of| $one($py, of)).transpose()? };
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
    dict!(py, of: ReplicaStatus {
        name, role, state, version, num_shards, shards by shard, pending, versions_behind, stale_s,
        reading of reading_dict, pending_call of pending_dict, retains
    })
}

fn reading_dict(py: Python<'_>, of: ReadingStatus) -> Converted<'_> {
    dict!(py, of: ReadingStatus {
        version, arrived_bytes, total_bytes, bytes_per_s, remaining_s, age_s
    })
}

fn pending_dict(py: Python<'_>, of: PendingStatus) -> Converted<'_> {
    dict!(py, of: PendingStatus { call, shards_arrived, age_s, left_s })
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
