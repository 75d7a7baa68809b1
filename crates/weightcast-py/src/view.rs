//! Versions that are read where they lie.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use weightcast::{ShardView, VersionView};

/// A mapped version. `weightcast.View` wraps it.
#[pyclass(frozen, name = "View", module = "weightcast._core")]
pub(crate) struct PyView(pub(crate) VersionView);

/// Part of a tensor: name, dtype, global shape, its start and lengths in each dimension, bytes from one index to the
/// next, and the address of its first element.
type PieceTuple = (String, &'static str, Vec<u64>, Vec<u64>, Vec<u64>, Vec<u64>, u64);

#[pymethods]
impl PyView {
    /// Number and epoch.
    #[getter]
    fn version(&self) -> (u64, u64) {
        let version = self.0.version();
        (version.number, version.epoch.0)
    }

    #[getter]
    fn replica(&self) -> &str {
        self.0.replica()
    }

    #[getter]
    fn shards(&self) -> Vec<u32> {
        self.0.shards().iter().map(ShardView::number).collect()
    }

    /// The parts of tensors that a shard holds.
    fn pieces(&self, shard: u32) -> PyResult<Vec<PieceTuple>> {
        let mut shards = self.0.shards().iter();
        let shard =
            shards.find(|of| of.number() == shard).ok_or_else(|| PyIndexError::new_err(shard))?;
        let (layout, regions) = (shard.layout(), shard.memory().regions());
        let piece = |entry: weightcast::plan::Entry| {
            let tensor = &layout.tensors()[entry.tensor as usize];
            let address = regions[entry.buffer as usize].address() + entry.offset;
            let (name, shape) = (tensor.name().to_owned(), tensor.shape().to_vec());
            let slice = entry.slice;
            (name, tensor.dtype().name(), shape, slice.start, slice.len, entry.strides, address)
        };
        Ok(layout.entries().map(piece).collect())
    }

    #[getter]
    fn whole(&self) -> bool {
        self.0.is_whole()
    }
}
