//! Memory that other processes of this host can map.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use weightcast::transport::{Region, is_shared};

/// So many bytes of shared memory, zeros at first, there until this value is gone.
#[pyclass(frozen, module = "weightcast", name = "SharedMemory")]
pub(crate) struct PySharedMemory {
    region: Region,
}

#[pymethods]
impl PySharedMemory {
    #[new]
    fn new(py: Python<'_>, nbytes: usize) -> PyResult<Self> {
        let region = py.detach(|| {
            let region = Region::allocate_shared(nbytes)?;
            region.prefault();
            Ok::<_, std::io::Error>(region)
        });
        let no = |error| PyOSError::new_err(format!("no shared memory of {nbytes} bytes: {error}"));
        Ok(Self { region: region.map_err(no)? })
    }

    /// Where it begins.
    #[getter]
    fn address(&self) -> u64 {
        self.region.address()
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.region.len()
    }
}

/// Whether all bytes of a range lie in one piece of shared memory of this process.
#[pyfunction]
#[pyo3(name = "is_shared")]
pub(crate) fn range_is_shared(address: u64, nbytes: usize) -> bool {
    is_shared(address, nbytes)
}
