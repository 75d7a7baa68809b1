//! Is an entry possible in its tensor and its buffer?

use crate::entry::Entry;
use crate::error::LayoutError;
use crate::index::first_overlap;
use crate::packed::Packed;
use crate::slice::Slice;
use crate::tensor::Tensor;

/// Checks one entry by itself and makes its meaningless strides canonical.
pub(crate) fn check(
    entry: &mut Entry,
    tensor: &Tensor,
    buffers: &[u64],
) -> Result<(), LayoutError> {
    let name = || tensor.name().to_owned();
    let slice = &entry.slice;
    if !slice.fits(tensor.shape()) {
        let slice = clipped(slice);
        return Err(LayoutError::OutsideTensor { tensor: name(), slice });
    }
    let (dtype, pair) = (tensor.dtype(), tensor.dtype().step_elements());
    if let (Some(start), Some(len)) = (slice.start.last(), slice.len.last())
        && (start % pair != 0 || len % pair != 0)
    {
        return Err(LayoutError::SplitsByte { tensor: name(), dtype, slice: slice.clone() });
    }
    settle_strides(entry, tensor)?;
    let end = end(entry, tensor).unwrap_or(u64::MAX);
    match buffers.get(entry.buffer as usize) {
        None => Err(LayoutError::NoBuffer {
            tensor: name(),
            buffer: entry.buffer,
            buffers: buffers.len(),
        }),
        Some(&bytes) if end > bytes => Err(LayoutError::OutsideBuffer {
            tensor: name(),
            slice: entry.slice.clone(),
            buffer: entry.buffer,
            end,
            bytes,
        }),
        Some(_) => Ok(()),
    }
}

/// Refuses an element that two entries of one tensor hold.
pub(crate) fn held_once(
    tensors: &[Tensor],
    entries: &Packed,
    first: &[u32],
) -> Result<(), LayoutError> {
    for (at, tensor) in tensors.iter().enumerate() {
        let held = first[at]..first[at + 1];
        let slice = |number: usize| entries.get(held.start + number as u32).slice;
        if let Some((a, b)) = first_overlap(held.len(), slice) {
            return Err(LayoutError::HeldTwice {
                tensor: tensor.name().to_owned(),
                first: slice(a),
                second: slice(b),
            });
        }
    }
    Ok(())
}

/// One stride per dimension, the last dimension side by side, no stride inside another's reach.
fn settle_strides(entry: &mut Entry, tensor: &Tensor) -> Result<(), LayoutError> {
    let refuse = |entry: &Entry| LayoutError::Strides {
        tensor: tensor.name().to_owned(),
        slice: entry.slice.clone(),
        strides: entry.strides.iter().copied().take(64).collect(),
    };
    let ndim = entry.slice.ndim();
    if entry.strides.len() != ndim {
        return Err(refuse(entry));
    }
    let (step, pair) = (tensor.dtype().step_bytes(), tensor.dtype().step_elements());
    let free = |entry: &Entry, d: usize| entry.slice.len[d] <= 1 || entry.slice.is_empty();
    for d in (0..ndim).rev() {
        if d + 1 == ndim {
            let stride = entry.strides[d];
            if free(entry, d) || entry.slice.len[d] <= pair {
                entry.strides[d] = step;
            } else if stride != step {
                return Err(LayoutError::NotContiguous {
                    tensor: tensor.name().to_owned(),
                    slice: entry.slice.clone(),
                    stride,
                    expected: step,
                });
            }
        } else if free(entry, d) {
            let inner = if d + 2 == ndim { pair } else { 1 };
            let packed =
                entry.strides[d + 1].checked_mul(entry.slice.len[d + 1].max(1).div_ceil(inner));
            entry.strides[d] = packed.ok_or_else(|| refuse(entry))?;
        }
    }
    if entry.slice.is_empty() || spread(entry, tensor) { Ok(()) } else { Err(refuse(entry)) }
}

/// Whether different indices have different addresses: each stride, from the smallest on, steps
/// over everything that the smaller ones reach. (Stricter than needed, enough for real arrays.)
fn spread(entry: &Entry, tensor: &Tensor) -> bool {
    let Some((&row, outer)) = entry.slice.len.split_last() else { return true };
    let mut dims: Vec<(u64, u64)> =
        (0..outer.len()).filter(|&d| outer[d] > 1).map(|d| (entry.strides[d], outer[d])).collect();
    dims.sort_unstable();
    let mut reach = row * tensor.dtype().bits() / 8;
    for (stride, len) in dims {
        let further = stride.checked_mul(len - 1).and_then(|far| far.checked_add(reach));
        match further {
            Some(further) if stride >= reach => reach = further,
            _ => return false,
        }
    }
    true
}

/// One past the last byte; `None` if that is no number.
pub(crate) fn end(entry: &Entry, tensor: &Tensor) -> Option<u64> {
    let mut end = entry.offset;
    if entry.slice.is_empty() {
        return Some(end);
    }
    let ndim = entry.slice.ndim();
    for d in 0..ndim.saturating_sub(1) {
        end = end.checked_add(entry.strides[d].checked_mul(entry.slice.len[d] - 1)?)?;
    }
    let row = entry
        .slice
        .len
        .last()
        .map_or(tensor.dtype().step_bytes(), |n| n * tensor.dtype().bits() / 8);
    end.checked_add(row)
}

/// Enough of a hostile slice to recognise it by, and of equal lengths.
fn clipped(slice: &Slice) -> Slice {
    let ndim = slice.start.len().min(slice.len.len()).min(crate::limits::MAX_DIMS + 1);
    Slice::new(&slice.start[..ndim], &slice.len[..ndim])
}
