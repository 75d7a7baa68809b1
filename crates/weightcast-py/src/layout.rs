//! Layouts as Python builds them, together with the memory that they describe.

use std::str::FromStr;
use std::sync::Arc;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use weightcast::plan::quantise::Formula;
use weightcast::plan::transform::{Backing, Fp8, Representation, Rule, Rules, Transform};
use weightcast::plan::{self, DType, LayoutBuilder, Mesh, Placement};
use weightcast::transport::Region;
use weightcast_fleet::LayoutFile;

use crate::errors::exception;
use crate::machines::to_json;

/// Which piece of a published tensor lies in a local one.
#[pyclass(frozen, name = "Part", module = "weightcast._core")]
#[derive(Clone)]
pub(crate) struct PyPart(plan::Part);

#[pymethods]
impl PyPart {
    /// The whole tensor of this name; `shape` is its global shape, if it is known.
    #[new]
    #[pyo3(signature = (name, shape = None))]
    fn new(name: String, shape: Option<Vec<u64>>) -> Self {
        let part = plan::Part::new(name);
        Self(match shape {
            Some(shape) => part.shape(shape),
            None => part,
        })
    }

    /// Chunk `index` of `of` along `dim`, by torch's rule.
    fn chunk(&self, dim: usize, index: u64, of: u64) -> Self {
        Self(self.0.clone().dim(dim, index, of))
    }

    /// `length` indices from `start` along `dim`.
    fn range(&self, dim: usize, start: u64, length: u64) -> Self {
        Self(self.0.clone().range(dim, start, length))
    }
}

/// A layout being built, and the memory of each buffer.
#[pyclass(name = "Layout", module = "weightcast._core")]
#[derive(Default)]
pub(crate) struct PyLayout {
    pub(crate) builder: LayoutBuilder,
    pub(crate) regions: Vec<Region>,
    /// Bytes of buffers without memory, which are described and never registered.
    described: usize,
    /// What becomes of it when it is published.
    pub(crate) rules: Rules,
}

#[pymethods]
impl PyLayout {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Adds a buffer: `memory` is a contiguous buffer of bytes (`uint8`), kept alive from now on; or none, to describe
    /// one.
    #[pyo3(signature = (name, memory, dtype, shape, parts, along = 0, pad = false))]
    #[allow(clippy::too_many_arguments)]
    fn add(
        &mut self,
        name: String,
        memory: Option<&Bound<'_, PyAny>>,
        dtype: &str,
        shape: Vec<u64>,
        parts: Vec<PyRef<'_, PyPart>>,
        along: usize,
        pad: bool,
    ) -> PyResult<()> {
        let dtype = dtype_of(&name, dtype)?;
        let region = memory.map(|memory| region(&name, memory)).transpose()?;
        let parts: Vec<_> = parts.iter().map(|part| part.0.clone()).collect();
        self.builder.add(name, dtype, &shape, parts, along);
        if pad {
            self.builder.pad();
        }
        match region {
            Some(region) => self.regions.push(region),
            None => {
                let elements = shape.iter().fold(1u64, |all, &size| all.saturating_mul(size));
                let bytes = elements.saturating_mul(dtype.bits()) / 8;
                self.described = self.described.saturating_add(bytes as usize);
            }
        }
        Ok(())
    }

    /// The buffer just added is these parts as well: tied weights.
    #[pyo3(signature = (parts, along = 0))]
    fn also(&mut self, parts: Vec<PyRef<'_, PyPart>>, along: usize) {
        let parts: Vec<_> = parts.iter().map(|part| part.0.clone()).collect();
        self.builder.also(parts, along);
    }

    /// Tensors of these names stay as they are, whatever is said later.
    fn keep(&mut self, names: String) {
        self.rules.0.push(Rule { names, transform: None });
    }

    /// Tensors of these names are published in another type.
    fn cast(&mut self, names: String, dtype: &str) -> PyResult<()> {
        let transform = Some(Transform::Cast(dtype_of(&names, dtype)?));
        self.rules.0.push(Rule { names, transform });
        Ok(())
    }

    /// Tensors of these names are published as FP8 codes with scales.
    fn quantise(
        &mut self,
        names: String,
        block: (u64, u64),
        formula: &str,
        scales: &str,
        suffix: String,
    ) -> PyResult<()> {
        let formula =
            Formula::from_str(formula).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let scales = dtype_of(&names, scales)?;
        let transform = Some(Transform::Fp8(Fp8 { formula, block, scales, suffix }));
        self.rules.0.push(Rule { names, transform });
        Ok(())
    }

    /// Number of buffers.
    fn __len__(&self) -> usize {
        self.builder.buffer_names().count()
    }

    /// What is published of it, or received, without memory: the text of a file of one rank.
    fn describe(&self, py: Python<'_>) -> PyResult<String> {
        let described = self.builder.build().map_err(weightcast::Error::from).and_then(|layout| {
            let names: Vec<String> = self.builder.buffer_names().map(str::to_owned).collect();
            if self.rules.0.is_empty() {
                return Ok(LayoutFile::of_rank(&layout, &names));
            }
            let made = Representation::new(&layout, &self.rules)?;
            let name = |backing: &Backing| match backing {
                Backing::Kept(number) => names[*number as usize].clone(),
                Backing::Made => "converted".to_owned(),
                Backing::Scales => "scales".to_owned(),
            };
            let names: Vec<String> = made.memory.iter().map(name).collect();
            Ok(LayoutFile::of_rank(&made.layout, &names))
        });
        to_json(&described.map_err(|error| exception(py, error))?)
    }

    /// Bytes of all buffers.
    #[getter]
    fn nbytes(&self) -> usize {
        self.regions.iter().map(Region::len).sum::<usize>() + self.described
    }
}

fn dtype_of(name: &str, dtype: &str) -> PyResult<DType> {
    DType::from_name(dtype).ok_or_else(|| {
        let known: Vec<_> = DType::all().map(DType::name).collect();
        PyValueError::new_err(format!(
            "{name}: unknown dtype {dtype}; known are {}",
            known.join(", ")
        ))
    })
}

/// The memory of a Python buffer, which stays exported, and so alive, as long as the region.
fn region(name: &str, memory: &Bound<'_, PyAny>) -> PyResult<Region> {
    let buffer = PyBuffer::<u8>::get(memory)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err(format!("{name}: memory is not contiguous")));
    }
    let (address, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
    let writable = !buffer.readonly();
    // SAFETY: an exported buffer's `len_bytes` bytes at `buf_ptr` stay where they are until it is
    // released, which dropping the owner does; contiguity was checked; read-only ones stay so.
    Ok(unsafe { Region::from_raw(address, len, writable, Arc::new(buffer)) })
}

/// `(start, length)` of the boxes of a tensor that a rank holds, by torch's placement rules.
///
/// A placement is `("shard", dim)`, `("strided", dim, split_factor)` or `("replicate",)`.
#[pyfunction]
pub(crate) fn local_slices(
    shape: Vec<u64>,
    axes: Vec<(String, u64)>,
    placements: Vec<(String, usize, u64)>,
    rank: u64,
) -> PyResult<Vec<(Vec<u64>, Vec<u64>)>> {
    let bad = |e: &dyn std::fmt::Display| PyValueError::new_err(e.to_string());
    let mesh = Mesh::new(axes).map_err(|e| bad(&e))?;
    let placements = placements
        .into_iter()
        .map(|(kind, dim, split_factor)| match kind.as_str() {
            "shard" => Ok(Placement::Shard { dim }),
            "strided" => Ok(Placement::StridedShard { dim, split_factor }),
            "replicate" => Ok(Placement::Replicate),
            other => Err(bad(&format!("unknown placement {other}"))),
        })
        .collect::<PyResult<Vec<_>>>()?;
    let slices = plan::local_slices(&shape, &mesh, &placements, rank).map_err(|e| bad(&e))?;
    Ok(slices.into_iter().map(|slice| (slice.start, slice.len)).collect())
}
