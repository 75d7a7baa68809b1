//! What `verify` returns.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use weightcast::{Difference, DifferentRange, HeldBy, Verdict, Verified};

use crate::record::record;

record! {
    /// One of the replicas that were compared.
    class "weightcast"."Verified" = PyVerified(name, shards, bytes, copies_agree, as_published) {
        /// The replica's name.
        name: String,
        /// How many shards the replica has.
        shards: u32,
        /// Bytes that the shards hold.
        bytes: u64,
        /// All copies of what several of the shards hold are the same.
        copies_agree: bool,
        /// The content has the digest that the version was sealed with; `None` while the version is
        /// not sealed.
        as_published: Option<bool>,
    }
}

record! {
    /// A shard that holds a place.
    class "weightcast"."HeldBy" = PyHeldBy(replica, shard, address, as_published) {
        /// The replica.
        replica: String,
        /// The shard of the replica.
        shard: u32,
        /// The shard's data port.
        address: String,
        /// Whether the shard's slice around the place is what was sealed, or verified when it was
        /// read; `None` where that is not known.
        as_published: Option<bool>,
    }
}

record! {
    /// A place of a tensor that is not the same everywhere.
    class "weightcast"."DifferentRange" = PyDifferentRange(slice, exact, moving, readings) {
        /// `(start, stop)` by dimension.
        slice: Py<PyTuple>,
        /// Every row of the place differs, and all that differs in these rows is in the place; else
        /// some rows do.
        exact: bool,
        /// The place differed and then did not any more: somebody writes to it.
        moving: bool,
        /// Who holds the place, those together that hold the same.
        readings: Py<PyTuple>,
    }
}

record! {
    /// A tensor that is not the same everywhere.
    class "weightcast"."Difference" = PyDifference(tensor, dtype, shape, ranges, more_ranges) {
        /// The tensor's name.
        tensor: String,
        /// The tensor's type, by safetensors name.
        dtype: String,
        /// The global shape.
        shape: Py<PyTuple>,
        /// The first 16 places.
        ranges: Py<PyTuple>,
        /// How many places there are beyond these.
        more_ranges: u64,
    }
}

record! {
    /// What `verify` found; true if all is equal.
    class "weightcast"."Verdict" = PyVerdict(
        equal, model, epoch, version, replicas, tensors, different, differences, digested, moved,
        seconds
    ) {
        /// The replicas hold the same, all copies within each are the same, and nothing is known to
        /// differ from what was published.
        equal: bool,
        /// The model.
        model: String,
        /// The training run of the version.
        epoch: u64,
        /// The number of the version.
        version: u64,
        /// Two, or one that was compared with what it was sealed as.
        replicas: Py<PyTuple>,
        /// How many tensors were compared.
        tensors: u64,
        /// The names of all tensors that differ.
        different: Py<PyTuple>,
        /// Where, for the first 16 of them.
        differences: Py<PyTuple>,
        /// Bytes that shards digested.
        digested: u64,
        /// Bytes that were sent for the comparison.
        moved: u64,
        /// How long the comparison took.
        seconds: f64,
    }

    fn __bool__(&self) -> bool {
        self.equal
    }
}

impl PyVerdict {
    /// For Python.
    pub(crate) fn of(py: Python<'_>, verdict: Verdict) -> PyResult<Self> {
        let Verdict { equal, model, epoch, version, tensors, digested, moved, seconds, .. } =
            verdict;
        Ok(Self {
            equal,
            model,
            epoch,
            version,
            replicas: tuple(py, verdict.replicas, |_, replica| Ok(verified(replica)))?,
            tensors,
            different: PyTuple::new(py, verdict.different)?.unbind(),
            differences: tuple(py, verdict.differences, difference)?,
            digested,
            moved,
            seconds,
        })
    }
}

fn verified(of: Verified) -> PyVerified {
    let Verified { name, shards, bytes, copies_agree, as_published } = of;
    PyVerified { name, shards, bytes, copies_agree, as_published }
}

fn difference(py: Python<'_>, of: Difference) -> PyResult<PyDifference> {
    let Difference { tensor, dtype, shape, ranges, more_ranges } = of;
    Ok(PyDifference {
        tensor,
        dtype: dtype.to_owned(),
        shape: PyTuple::new(py, shape)?.unbind(),
        ranges: tuple(py, ranges, range)?,
        more_ranges,
    })
}

fn range(py: Python<'_>, of: DifferentRange) -> PyResult<PyDifferentRange> {
    let DifferentRange { slice, exact, moving, readings } = of;
    Ok(PyDifferentRange {
        slice: PyTuple::new(py, slice)?.unbind(),
        exact,
        moving,
        readings: tuple(py, readings, |py, same| tuple(py, same, |_, by| Ok(held_by(by))))?,
    })
}

fn held_by(of: HeldBy) -> PyHeldBy {
    let HeldBy { replica, shard, address, as_published } = of;
    PyHeldBy { replica, shard, address, as_published }
}

/// A tuple of what each item is in Python.
fn tuple<'py, T, P: IntoPyObject<'py>>(
    py: Python<'py>,
    items: Vec<T>,
    convert: impl Fn(Python<'py>, T) -> PyResult<P>,
) -> PyResult<Py<PyTuple>> {
    let items: PyResult<Vec<P>> = items.into_iter().map(|item| convert(py, item)).collect();
    Ok(PyTuple::new(py, items?)?.unbind())
}
