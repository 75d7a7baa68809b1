//! Do the entries of a layout share memory, and if so, may they?
//!
//! Sorting by address and sweeping settles packed entries in one pass. Entries that interleave
//! (columns of a fused weight side by side in each row) are compared modulo their common pitch,
//! and only what is still irregular is expanded into its contiguous pieces.

use crate::entry::Entry;
use crate::error::LayoutError;
use crate::extent::{in_bytes, strides_in_bytes};
use crate::fold::fold;
use crate::limits::MAX_FRAGMENTS;
use crate::tensor::Tensor;

/// For each entry the first one with exactly its bytes: itself, or for a tied weight another.
/// Any other sharing of bytes is refused.
pub(crate) fn primaries(tensors: &[Tensor], entries: &[Entry]) -> Result<Vec<u32>, LayoutError> {
    let mut primary: Vec<u32> = (0..entries.len() as u32).collect();
    let mut order: Vec<u32> =
        (0..entries.len() as u32).filter(|&e| !entries[e as usize].slice.is_empty()).collect();
    order.sort_unstable_by_key(|&e| (entries[e as usize].buffer, entries[e as usize].offset, e));
    let mut prints: Vec<Footprint> = Vec::new();
    let check = |prints: &mut Vec<Footprint>| match apart(std::mem::take(prints)) {
        Ok(()) => Ok(()),
        Err(clash) => Err(clash.explain(tensors, entries)),
    };
    for (at, &e) in order.iter().enumerate() {
        let entry = &entries[e as usize];
        if at > 0 {
            let before = order[at - 1];
            if entries[before as usize].buffer != entry.buffer {
                check(&mut prints)?;
            } else if entries[before as usize].offset == entry.offset {
                let first = primary[before as usize];
                if !tied(tensors, &entries[first as usize], entry) {
                    let run = |e: u32| {
                        let entry = &entries[e as usize];
                        Footprint::new(e, entry, &tensors[entry.tensor as usize]).run
                    };
                    let (from, to) = (entry.offset, entry.offset + run(first).min(run(e)));
                    let clash = Clash::Shared { first, second: e, from, to };
                    return Err(clash.explain(tensors, entries));
                }
                primary[e as usize] = first;
                continue;
            }
        }
        prints.push(Footprint::new(e, entry, &tensors[entry.tensor as usize]));
    }
    check(&mut prints)?;
    Ok(primary)
}

/// Whether two entries with one address are the same bytes under two names.
fn tied(tensors: &[Tensor], a: &Entry, b: &Entry) -> bool {
    let (first, second) = (&tensors[a.tensor as usize], &tensors[b.tensor as usize]);
    first.dtype() == second.dtype()
        && first.shape() == second.shape()
        && a.slice == b.slice
        && a.strides == b.strides
}

/// The bytes of one entry: `run` bytes, repeated by loops.
pub(crate) struct Footprint {
    entry: u32,
    offset: u64,
    run: u64,
    /// Length and stride, smallest stride first.
    loops: Vec<(u64, u64)>,
}

/// Two entries that share bytes, or too many pieces of two and more to tell.
pub(crate) enum Clash {
    Shared { first: u32, second: u32, from: u64, to: u64 },
    TooFragmented(u32, u32),
}

impl Footprint {
    pub(crate) fn new(number: u32, entry: &Entry, tensor: &Tensor) -> Footprint {
        let lens = in_bytes(tensor.dtype(), &entry.slice).len;
        let folded = fold(&lens, [&strides_in_bytes(entry)]);
        let (run, loops) = folded.into_loops();
        let mut loops: Vec<(u64, u64)> =
            loops.into_iter().map(|(n, [stride])| (n, stride)).collect();
        loops.sort_unstable_by_key(|&(_, stride)| stride);
        Footprint { entry: number, offset: entry.offset, run, loops }
    }

    /// The same, so many bytes further on.
    pub(crate) fn moved(self, bytes: u64) -> Footprint {
        Footprint { offset: self.offset.saturating_add(bytes), ..self }
    }

    /// One past the last byte.
    fn end(&self) -> u64 {
        self.offset + self.run + self.loops.iter().map(|(n, stride)| (n - 1) * stride).sum::<u64>()
    }

    fn pieces(&self) -> u64 {
        self.loops.iter().fold(1, |n, l| n.saturating_mul(l.0))
    }
}

/// Checks that no two footprints of one buffer share a byte.
pub(crate) fn apart(mut prints: Vec<Footprint>) -> Result<(), Clash> {
    prints.sort_unstable_by_key(|p| (p.offset, p.entry));
    let mut cluster: Vec<Footprint> = Vec::new();
    let mut end = 0;
    for print in prints {
        if print.offset >= end {
            untangle(std::mem::take(&mut cluster))?;
        }
        end = end.max(print.end());
        cluster.push(print);
    }
    untangle(cluster)
}

/// Checks footprints whose extents meet.
fn untangle(mut cluster: Vec<Footprint>) -> Result<(), Clash> {
    if cluster.len() < 2 {
        return Ok(());
    }
    let base = cluster[0].offset;
    if let Some(&(rows, pitch)) = cluster[0].loops.last()
        && cluster.iter().all(|p| p.loops.last() == Some(&(rows, pitch)))
    {
        // All repeat at one pitch: they are apart if they are within one period.
        for print in &mut cluster {
            print.loops.pop();
        }
        if cluster.iter().all(|p| p.end() - base <= pitch) {
            return apart(cluster);
        }
        for print in &mut cluster {
            print.loops.push((rows, pitch));
        }
    }
    expand(&cluster)
}

/// Checks piece by piece.
fn expand(cluster: &[Footprint]) -> Result<(), Clash> {
    let pieces = cluster.iter().fold(0u64, |n, p| n.saturating_add(p.pieces()));
    if pieces > MAX_FRAGMENTS {
        return Err(Clash::TooFragmented(cluster[0].entry, cluster[1].entry));
    }
    let mut runs: Vec<(u64, u64, u32)> = Vec::with_capacity(pieces as usize);
    for print in cluster {
        let mut starts = vec![print.offset];
        for &(len, stride) in &print.loops {
            starts = starts.iter().flat_map(|s| (0..len).map(move |i| s + i * stride)).collect();
        }
        runs.extend(starts.into_iter().map(|s| (s, s + print.run, print.entry)));
    }
    runs.sort_unstable();
    let meet = runs.iter().zip(&runs[1..]).find(|(before, next)| next.0 < before.1);
    let Some((&(_, end, first), &(from, to, second))) = meet else { return Ok(()) };
    Err(Clash::Shared { first, second, from, to: end.min(to) })
}

impl Clash {
    fn explain(self, tensors: &[Tensor], entries: &[Entry]) -> LayoutError {
        let named = |e: u32| {
            let entry = &entries[e as usize];
            format!("{} {}", tensors[entry.tensor as usize].name(), entry.slice)
        };
        match self {
            Clash::Shared { first, second, from, to } => LayoutError::SharedMemory {
                buffer: entries[first as usize].buffer,
                first: named(first),
                second: named(second),
                from,
                to,
            },
            Clash::TooFragmented(e, _) => {
                LayoutError::TooFragmented { buffer: entries[e as usize].buffer }
            }
        }
    }
}
