//! Memory that other processes of this host can map.

use crate::errors::Misuse;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use weightcast::transport::{NumaError, Region, is_shared};

/// So many bytes of shared memory, zeros at first, there until this value is gone.
#[pyclass(frozen, module = "weightcast", name = "SharedMemory")]
pub(crate) struct PySharedMemory {
    region: Region,
}

#[pymethods]
impl PySharedMemory {
    #[new]
    #[pyo3(signature = (nbytes, numa_node = None))]
    fn new(py: Python<'_>, nbytes: usize, numa_node: Option<u32>) -> PyResult<Self> {
        let region = py.detach(|| {
            let region = match numa_node {
                None => Region::allocate_shared(nbytes)?,
                Some(node) => Region::allocate_shared_on(nbytes, node)?,
            };
            region.prefault();
            Ok(region)
        });
        Ok(Self { region: region.map_err(|error| refused(nbytes, error))? })
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

fn refused(nbytes: usize, error: NumaError) -> PyErr {
    match error {
        NumaError::NoSuchNode { .. } => Misuse::new_err(error.to_string()),
        NumaError::NotBound { .. } => PyOSError::new_err(error.to_string()),
        NumaError::Memory(error) => {
            PyOSError::new_err(format!("no shared memory of {nbytes} bytes: {error}"))
        }
    }
}

/// Whether all bytes of a range lie in one piece of shared memory of this process.
#[pyfunction]
#[pyo3(name = "is_shared")]
pub(crate) fn range_is_shared(address: u64, nbytes: usize) -> bool {
    is_shared(address, nbytes)
}
