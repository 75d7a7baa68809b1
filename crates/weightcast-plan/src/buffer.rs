//! One local tensor of a builder: parts of published tensors, laid one after the other.

use crate::dtype::DType;
use crate::entry::Entry;
use crate::error::LayoutError;
use crate::extent::packed;
use crate::part::Part;
use crate::slice::Slice;
use crate::tensor::Tensor;

/// One local tensor.
#[derive(Debug, Clone)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) padded: bool,
    /// What it is: several answers where weights are tied.
    pub(crate) views: Vec<Concatenation>,
}

/// Parts that make up the local tensor, one after the other along a dimension.
#[derive(Debug, Clone)]
pub(crate) struct Concatenation {
    pub(crate) parts: Vec<Part>,
    pub(crate) along: usize,
}

impl Buffer {
    /// Bytes of the local tensor.
    pub(crate) fn bytes(&self) -> Result<u64, LayoutError> {
        let tensor = Tensor::new("local", self.dtype, self.shape.as_slice());
        tensor.map(|t| t.nbytes()).map_err(|_| LayoutError::BufferShape {
            buffer: self.name.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
        })
    }

    /// The entries of parts laid one after the other along a dimension.
    pub(crate) fn lay(
        &self,
        number: u32,
        along: usize,
        placed: Vec<(u32, &Part, Slice)>,
    ) -> Result<Vec<Entry>, LayoutError> {
        let Some(ndim) = placed.first().map(|(_, _, slice)| slice.ndim()) else {
            return self.filled(&self.shape, along.min(self.shape.len()), 0).map(|()| Vec::new());
        };
        let local = self.seen_with(ndim);
        // Bits, for a 4-bit column may begin inside a byte only to be refused.
        let strides: Vec<u64> = packed(&local).iter().map(|s| s * self.dtype.bits()).collect();
        let (mut entries, mut used) = (Vec::with_capacity(placed.len()), 0u64);
        for (tensor, part, slice) in placed {
            let lens =
                if slice.ndim() == 0 && !local.is_empty() { vec![1] } else { slice.len.clone() };
            self.fits(&local, along, part, &lens)?;
            // Where a part is empty, so may be the buffer: it lies nowhere.
            let nowhere = local.is_empty() || slice.is_empty();
            let bits = if nowhere { 0 } else { used * strides[along] };
            if bits % 8 != 0 {
                let tensor = part.name().to_owned();
                return Err(LayoutError::SplitsByte { tensor, dtype: self.dtype, slice });
            }
            used += lens.get(along).copied().unwrap_or(1);
            let mut strides: Vec<u64> =
                strides[strides.len() - slice.ndim()..].iter().map(|s| s / 8).collect();
            if let Some(last) = strides.last_mut() {
                *last = self.dtype.step_bytes();
            }
            entries.push(Entry { tensor, slice, buffer: number, offset: bits / 8, strides });
            if used > local.get(along).copied().unwrap_or(1) {
                break; // refused below, before anything overflows
            }
        }
        self.filled(&local, along, used).map(|()| entries)
    }

    /// Whether a part has the local tensor's size in every dimension but `along`.
    fn fits(
        &self,
        local: &[u64],
        along: usize,
        part: &Part,
        lens: &[u64],
    ) -> Result<(), LayoutError> {
        let along_exists = along < local.len() || local.is_empty();
        if along_exists
            && lens.len() == local.len()
            && (0..local.len()).all(|d| d == along || lens[d] == local[d])
        {
            return Ok(());
        }
        Err(LayoutError::PartShape {
            buffer: self.name.clone(),
            part: part.name().to_owned(),
            expected: local.to_vec(),
            got: lens.to_vec(),
        })
    }

    /// The local shape with as many dimensions as the parts have, the leading ones as one.
    fn seen_with(&self, ndim: usize) -> Vec<u64> {
        let ndim = ndim.max(1);
        match self.shape.len().checked_sub(ndim) {
            None | Some(0) => self.shape.clone(),
            Some(extra) => {
                let lead = self.shape[..=extra].iter().product();
                std::iter::once(lead).chain(self.shape[extra + 1..].iter().copied()).collect()
            }
        }
    }

    /// Whether parts that take `used` indices fill a local tensor seen as `local`.
    fn filled(&self, local: &[u64], along: usize, used: u64) -> Result<(), LayoutError> {
        let size = local.get(along).copied().unwrap_or(1);
        if used == size || (used < size && self.padded) {
            return Ok(());
        }
        let mut got = local.to_vec();
        match got.get_mut(along) {
            Some(slot) => *slot = used,
            None => got.push(used),
        }
        let (buffer, expected) = (self.name.clone(), local.to_vec());
        Err(LayoutError::Sizes { buffer, along, expected, got })
    }
}
