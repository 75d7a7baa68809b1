//! What `list` and `wait` return.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use weightcast::Listing;

use crate::record::record;

record! {
    /// Which replicas hold which versions, at one moment.
    class "weightcast._core"."Listing" = PyListing(revision, versions) {
        /// When: the server's term, and a number that every change makes larger.
        revision: (u64, u64),
        /// Versions in ascending order, each `((number, epoch), replicas)`.
        versions: Py<PyTuple>,
    }
}

impl PyListing {
    /// For Python.
    pub(crate) fn of(py: Python<'_>, listing: Listing) -> PyResult<Self> {
        let Listing { revision, versions } = listing;
        let mut listed = Vec::with_capacity(versions.len());
        for (version, replicas) in versions {
            let replicas: Vec<String> = replicas.into_iter().collect();
            listed.push(((version.number, version.epoch.0), PyTuple::new(py, replicas)?));
        }
        let versions = PyTuple::new(py, listed)?.unbind();
        Ok(Self { revision: (revision.term.0, revision.number), versions })
    }
}
