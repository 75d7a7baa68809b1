//! Do the entries of a layout share memory, and if so, may they?
//!
//! Sorting by address and sweeping settles packed entries in one pass. Entries that interleave
//! (columns of a fused weight side by side in each row) are compared modulo their common pitch,
//! and only what is still irregular is looked at piece by piece.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::entry::Entry;
use crate::entry_check;
use crate::error::LayoutError;
use crate::extent::{in_bytes, strides_in_bytes};
use crate::fold::fold;
use crate::limits::MAX_FRAGMENTS;
use crate::packed::Packed;
use crate::tensor::Tensor;

/// For each entry the first one with exactly its bytes: itself, or for a tied weight another; nothing
/// at all where none are tied. Any other sharing of bytes is refused.
pub(crate) fn primaries(tensors: &[Tensor], entries: &Packed) -> Result<Vec<u32>, LayoutError> {
    let mut sweep = Sweep { tensors, entries, cluster: Vec::new(), buffer: 0, end: 0 };
    let mut primary: Vec<u32> = Vec::new();
    let mut before: Option<EntryPlace> = None;
    for (buffer, offset, number) in in_memory(entries) {
        let first = before.filter(|at| (at.0, at.1) == (buffer, offset)).map(|at| at.2);
        match first {
            Some(first) => {
                sweep.tied(first, number)?;
                if primary.is_empty() {
                    primary = (0..entries.len() as u32).collect();
                }
                primary[number as usize] = first;
            }
            None => {
                sweep.take(buffer, offset, number)?;
                before = Some((buffer, offset, number));
            }
        }
    }
    sweep.settle()?;
    Ok(primary)
}

/// Buffer, offset and number of an entry.
type EntryPlace = (u32, u64, u32);

/// The entries that have bytes, by where they begin.
fn in_memory(entries: &Packed) -> Vec<EntryPlace> {
    let mut places = Vec::with_capacity(entries.len());
    let held = entries.iter().zip(0..).filter(|(entry, _)| !entry.slice.is_empty());
    places.extend(held.map(|(entry, number)| (entry.buffer, entry.offset, number)));
    places.sort_unstable();
    places
}

/// Goes through the entries as they lie in memory, and looks at those that may meet together.
struct Sweep<'a> {
    tensors: &'a [Tensor],
    entries: &'a Packed,
    /// Entries that begin before one of those ahead of them has ended.
    cluster: Vec<u32>,
    /// Where they lie, and one past their last byte.
    buffer: u32,
    end: u64,
}

impl Sweep<'_> {
    fn take(&mut self, buffer: u32, offset: u64, number: u32) -> Result<(), LayoutError> {
        if (buffer, offset) >= (self.buffer, self.end) {
            self.settle()?;
            (self.buffer, self.end) = (buffer, 0);
        }
        let entry = self.entries.get(number);
        let end = entry_check::end(&entry, &self.tensors[entry.tensor as usize]);
        self.end = self.end.max(end.expect("within its buffer"));
        self.cluster.push(number);
        Ok(())
    }

    /// Checks what has come together, and forgets it.
    fn settle(&mut self) -> Result<(), LayoutError> {
        if self.cluster.len() > 1 {
            let mut prints = Vec::with_capacity(self.cluster.len());
            prints.extend(self.cluster.iter().map(|&number| self.print(number)));
            let apart = untangle(&mut prints);
            apart.map_err(|clash| clash.explain(self.tensors, self.entries))?;
        }
        self.cluster.clear();
        Ok(())
    }

    /// Checks that two with one address are the same bytes under two names.
    fn tied(&self, first: u32, second: u32) -> Result<(), LayoutError> {
        let (a, b) = (self.entries.get(first), self.entries.get(second));
        if tied(self.tensors, &a, &b) {
            return Ok(());
        }
        let run = self.print(first).run.min(self.print(second).run);
        let clash = Clash::Shared { first, second, from: a.offset, to: a.offset + run };
        Err(clash.explain(self.tensors, self.entries))
    }

    fn print(&self, number: u32) -> Footprint {
        let entry = self.entries.get(number);
        Footprint::new(number, &entry, &self.tensors[entry.tensor as usize])
    }
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
        loops.shrink_to_fit();
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

    /// Where a piece begins. They ascend, since each stride steps over what smaller ones reach.
    fn piece(&self, mut number: u64) -> u64 {
        self.loops.iter().fold(self.offset, |at, &(len, stride)| {
            let step = number % len * stride;
            number /= len;
            at + step
        })
    }
}

/// Checks that no two footprints of one buffer share a byte. Changes what it is given.
pub(crate) fn apart(prints: &mut [Footprint]) -> Result<(), Clash> {
    prints.sort_unstable_by_key(|p| (p.offset, p.entry));
    let (mut from, mut end) = (0, 0);
    for at in 0..prints.len() {
        if prints[at].offset >= end {
            untangle(&mut prints[from..at])?;
            from = at;
        }
        end = end.max(prints[at].end());
    }
    untangle(&mut prints[from..])
}

/// Checks footprints, sorted by their offsets, whose extents meet.
fn untangle(cluster: &mut [Footprint]) -> Result<(), Clash> {
    if cluster.len() < 2 {
        return Ok(());
    }
    let base = cluster[0].offset;
    if let Some(&(rows, pitch)) = cluster[0].loops.last()
        && cluster.iter().all(|p| p.loops.last() == Some(&(rows, pitch)))
    {
        // All repeat at one pitch: they are apart if they are within one period.
        for print in &mut *cluster {
            print.loops.pop();
        }
        if cluster.iter().all(|p| p.end() - base <= pitch) {
            return apart(cluster);
        }
        for print in &mut *cluster {
            print.loops.push((rows, pitch));
        }
    }
    piece_by_piece(cluster)
}

/// Looks at the pieces as they lie in memory, one at a time.
fn piece_by_piece(cluster: &[Footprint]) -> Result<(), Clash> {
    let pieces = cluster.iter().fold(0u64, |n, p| n.saturating_add(p.pieces()));
    if pieces > MAX_FRAGMENTS {
        return Err(Clash::TooFragmented(cluster[0].entry, cluster[1].entry));
    }
    // The next piece of each: where it begins, whose it is, which it is.
    let first = cluster.iter().enumerate().map(|(of, print)| Reverse((print.offset, of as u32, 0)));
    let mut next: BinaryHeap<Reverse<(u64, u32, u32)>> = BinaryHeap::with_capacity(cluster.len());
    next.extend(first);
    let mut before: Option<(u64, u32)> = None;
    while let Some(Reverse((from, of, piece))) = next.pop() {
        let print = &cluster[of as usize];
        let to = from + print.run;
        if let Some((end, first)) = before.filter(|(end, _)| from < *end) {
            return Err(Clash::Shared { first, second: print.entry, from, to: end.min(to) });
        }
        before = Some((to, print.entry));
        let piece = piece + 1;
        if u64::from(piece) < print.pieces() {
            next.push(Reverse((print.piece(piece.into()), of, piece)));
        }
    }
    Ok(())
}

impl Clash {
    fn explain(self, tensors: &[Tensor], entries: &Packed) -> LayoutError {
        let named = |e: u32| {
            let entry = entries.get(e);
            format!("{} {}", tensors[entry.tensor as usize].name(), entry.slice)
        };
        match self {
            Clash::Shared { first, second, from, to } => LayoutError::SharedMemory {
                buffer: entries.get(first).buffer,
                first: named(first),
                second: named(second),
                from,
                to,
            },
            Clash::TooFragmented(e, _) => {
                LayoutError::TooFragmented { buffer: entries.get(e).buffer }
            }
        }
    }
}
