//! What `push` returns.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use weightcast::{PushOutlook, Pushed, PushedShard};

use crate::record::record;

record! {
    /// What became of one shard that was pushed to.
    class "weightcast"."PushedShard" = PyPushedShard(
        replica, shard, end, bytes, seconds, moved = 0, detail = String::new()
    ) {
        /// The replica's name.
        replica: String,
        /// The shard's number.
        shard: u32,
        /// How the push ended there: `new` or `held`, or why the shard has not got the version.
        end: String,
        /// Bytes that were written into its memory.
        bytes: u64,
        /// Seconds from the shard's consent on.
        seconds: f64,
        /// How often a part of the bytes moved from one sender to another.
        moved: u32,
        /// For people, where there is more to say.
        detail: String,
    }
}

record! {
    /// What a push came to; true if every shard that was to have the version has it, and there was one.
    class "weightcast"."Pushed" = PyPushed(version, epoch, shards) {
        /// The version that was pushed.
        version: u64,
        /// The training run that the version belongs to.
        epoch: u64,
        /// What became of each shard, by replica and number.
        shards: Py<PyTuple>,
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let shards = self.shards.bind(py);
        for shard in shards.iter() {
            let end: String = shard.getattr("end")?.extract()?;
            if !matches!(end.as_str(), "new" | "held") {
                return Ok(false);
            }
        }
        Ok(!shards.is_empty())
    }
}

record! {
    /// How a shard would get a version now, and why.
    class "weightcast"."PushOutlook" = PyPushOutlook(replica, shard, way, bytes, why) {
        /// The replica's name.
        replica: String,
        /// The shard's number.
        shard: u32,
        /// `push`, `pull` or `neither`.
        way: String,
        /// Bytes that a push would write into its memory.
        bytes: u64,
        /// Why, for people.
        why: String,
    }
}

impl PyPushOutlook {
    /// For Python.
    pub(crate) fn of(outlook: PushOutlook) -> Self {
        let PushOutlook { replica, shard, way, bytes, why } = outlook;
        Self { replica, shard, way: way.name().to_owned(), bytes, why }
    }
}

impl PyPushed {
    /// For Python.
    pub(crate) fn of(py: Python<'_>, pushed: Pushed) -> PyResult<Self> {
        let shards = pushed.shards.into_iter().map(|shard| Py::new(py, PyPushedShard::of(shard)));
        let shards = shards.collect::<PyResult<Vec<_>>>()?;
        let (version, epoch) = (pushed.version.number, pushed.version.epoch.0);
        Ok(Self { version, epoch, shards: PyTuple::new(py, shards)?.unbind() })
    }
}

impl PyPushedShard {
    fn of(shard: PushedShard) -> Self {
        let PushedShard { replica, shard, end, bytes, seconds, moved, detail } = shard;
        let end = end.name().to_owned();
        Self { replica, shard, end, bytes, seconds, moved, detail }
    }
}
