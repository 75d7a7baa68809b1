//! What `replicate` and `update` return.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use weightcast::Updated;

use crate::record::record;

record! {
    /// What `replicate` or `update` came to; true if the memory holds another version now.
    class "weightcast"."Updated" = PyUpdated(
        changed, version, epoch, source, bytes, verified, seconds, plan_seconds, way, staged = 0,
        install_seconds = 0.0, helpers = none(), plan_from = String::new(),
        way_reason = String::new(), bytes_direct = 0, bytes_tcp = 0, unchanged = 0,
        given = none(), bytes_shared = 0, bytes_siblings = 0
    ) {
        /// Whether the memory holds another version than before the call.
        changed: bool,
        /// The version held now.
        version: Option<u64>,
        /// The training run that the version belongs to.
        epoch: Option<u64>,
        /// The replica that the version was read from.
        source: Option<String>,
        /// Bytes of this shard, moved or unchanged.
        bytes: u64,
        /// Of those, bytes covered by a digest that matched.
        verified: u64,
        /// Seconds from the choice of a source until all bytes had arrived and were digested.
        seconds: f64,
        /// Of those, seconds of planning.
        plan_seconds: f64,
        /// How bytes moved: `shared`, `direct` or `tcp`; `push`: they were written by others.
        way: String,
        /// Of a staged update: bytes that were copied into place at the end.
        staged: u64,
        /// Of a staged update: seconds that the copying took.
        install_seconds: f64,
        /// Replicas that bytes were drawn from beside `source`.
        helpers: Py<PyTuple>,
        /// Where the plan came from: `planner`, `memory` or `file` (of `open(plan_cache=)`).
        plan_from: String,
        /// Why bytes moved that way: another host, user or pid namespace, computed bytes, or as
        /// demanded.
        way_reason: String,
        /// Bytes that were read directly, from whichever source.
        bytes_direct: u64,
        /// Bytes that came over TCP.
        bytes_tcp: u64,
        /// Bytes that were not moved: the memory held them already, by digests of both sides.
        unchanged: u64,
        /// Bytes that the source gave, and then each helper.
        given: Py<PyTuple>,
        /// Bytes that came out of shared memory, from whichever source.
        bytes_shared: u64,
        /// Bytes that came from other shards of the group on this host, which had brought them there.
        bytes_siblings: u64,
    }

    fn __bool__(&self) -> bool {
        self.changed
    }

    /// The numbers under keys such as `weightcast/update/seconds`, for a trainer's logger: of this
    /// call alone, while `weightcast.metrics()` sums up. A key is missing where there is no number.
    fn as_dict(&self) -> BTreeMap<String, f64> {
        let moving = self.seconds - self.plan_seconds;
        let number = |count: u64| Some(count as f64);
        let figures = [
            ("changed", Some(f64::from(self.changed))),
            ("version", self.version.and_then(number)),
            ("epoch", self.epoch.and_then(number)),
            ("bytes", number(self.bytes)),
            ("bytes_verified", number(self.verified)),
            ("bytes_shared", number(self.bytes_shared)),
            ("bytes_direct", number(self.bytes_direct)),
            ("bytes_tcp", number(self.bytes_tcp)),
            ("bytes_siblings", number(self.bytes_siblings)),
            ("bytes_unchanged", number(self.unchanged)),
            ("bytes_staged", number(self.staged)),
            ("seconds", Some(self.seconds)),
            ("plan_seconds", Some(self.plan_seconds)),
            ("install_seconds", Some(self.install_seconds)),
            ("gb_per_s", (moving > 0.0).then(|| (self.bytes - self.unchanged.min(self.bytes)) as f64 / moving / 1e9)),
        ];
        let told = figures.into_iter();
        told.filter_map(|(key, of)| Some((format!("weightcast/update/{key}"), of?))).collect()
    }
}

impl PyUpdated {
    /// For Python.
    pub(crate) fn of(py: Python<'_>, updated: Updated) -> PyResult<Self> {
        let Updated { changed, version, source, transfer } = updated;
        Ok(Self {
            changed,
            version: version.map(|version| version.number),
            epoch: version.map(|version| version.epoch.0),
            source,
            bytes: transfer.bytes,
            verified: transfer.verified,
            seconds: transfer.seconds,
            plan_seconds: transfer.plan_seconds,
            way: transfer.way,
            staged: transfer.staged,
            install_seconds: transfer.install_seconds,
            helpers: PyTuple::new(py, transfer.helpers)?.unbind(),
            plan_from: transfer.plan_from.name().to_owned(),
            way_reason: transfer.way_reason,
            bytes_direct: transfer.direct,
            bytes_tcp: transfer.tcp,
            unchanged: transfer.unchanged,
            given: PyTuple::new(py, transfer.given)?.unbind(),
            bytes_shared: transfer.shared,
            bytes_siblings: transfer.siblings,
        })
    }
}

fn none() -> Py<PyTuple> {
    Python::attach(|py| PyTuple::empty(py).unbind())
}
