//! Locates a difference in a read, after the sums have refused the read.
//!
//! 1. The reader compares its memory with the source's, range by range, as both are now. A
//!    difference arose on the way, or at one of the two ends since.
//! 2. The reader compares the source's slices with the source's note. A difference is the source's.
//! 3. The reader compares its memory with the digests of the bytes as they arrived. A difference is
//!    the reader's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use weightcast_plan::{Cell, Copy, Layout, Run, Slice, Tensor, runs};
use weightcast_transport::{Digest, ExportId, Peer, PlacedExtent};

use super::ranges::{as_copy, at_the_source, at_the_target, batches, placed, slice_of, split};
use crate::client::reading::evidence::Evidence;
use crate::client::reading::route::Routes;
use crate::manifest;

/// Bytes of a range that is compared at first.
const COARSE_BYTES: u64 = 16 << 20;
/// Bytes of the ranges within a coarse range that differs.
const FINE_BYTES: u64 = 64 << 10;

/// Who is to blame for a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The source no longer holds what it published, or what it had verified.
    Source,
    /// The bytes were changed between the source's memory and this shard's.
    Transfer,
    /// This shard's memory was changed after the bytes had arrived.
    Reader,
}

/// Where bytes differ from what was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The logical tensor.
    pub tensor: String,
    /// The smallest box of it that is known to hold the difference.
    pub slice: Slice,
    /// The source's shard that it was read from; none for [`Cause::Reader`].
    pub source_shard: Option<u32>,
    /// Who changed it.
    pub cause: Cause,
    /// The finding, for people.
    pub(crate) said: String,
}

/// One search, with its bounds.
pub(crate) struct MismatchSearch<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) routes: &'a Routes,
    pub(crate) deadline: Instant,
    /// Asked now and then: true ends the search.
    pub(crate) interrupted: &'a dyn Fn() -> bool,
}

/// One source shard, reached.
struct ReachedSource {
    /// The shard's place in the assignment.
    place: usize,
    replica: String,
    shard: u32,
    peer: Arc<Peer>,
    export: ExportId,
    generation: u64,
}

impl ReachedSource {
    fn name(&self) -> String {
        format!("shard {} of {}", self.shard, self.replica)
    }
}

impl MismatchSearch<'_> {
    /// The first difference, or why none was found.
    pub(crate) fn run(&self) -> Result<Place, String> {
        if let Some(place) = self.source_of_several()? {
            return Ok(place);
        }
        let by_source = self.copies_by_source();
        for (shard, copies) in by_source.iter().enumerate().filter(|(_, c)| !c.is_empty()) {
            let source = self.reach(shard)?;
            if let Some(copy) = self.first_difference(&source, copies)? {
                return self.judge(&source, &copy);
            }
        }
        for (shard, _) in by_source.iter().enumerate().filter(|(_, c)| !c.is_empty()) {
            let tensors = self.evidence.registration.layout.tensors();
            if let Some(place) = self.unsealed(&self.reach(shard)?, tensors)? {
                return Ok(place);
            }
        }
        self.changed_here()
    }

    /// Of a read from several replicas, nobody notes who gave which bytes: asks each whether it holds what it
    /// published.
    fn source_of_several(&self) -> Result<Option<Place>, String> {
        if self.evidence.assignment.stripes() < 2 {
            return Ok(None);
        }
        let tensors = self.evidence.registration.layout.tensors();
        for place in 0..self.evidence.assignment.shards.len() {
            self.check()?;
            // What one of them does not say, another may.
            let found = self.reach(place).and_then(|source| self.unsealed(&source, tensors));
            if let Ok(Some(found)) = found {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn copies_by_source(&self) -> Vec<Vec<Copy>> {
        let mut by_source = vec![Vec::new(); self.evidence.sources.len()];
        for copy in &self.evidence.plan.copies {
            by_source[copy.source as usize].push(*copy);
        }
        by_source
    }

    /// Fails if the search must end: the memory is in use again, an interrupt came, or no time is
    /// left.
    fn check(&self) -> Result<(), String> {
        if self.evidence.overwritten.load(Ordering::Acquire) {
            return Err("the place was not found: the memory is in use again".to_owned());
        }
        if (self.interrupted)() || Instant::now() >= self.deadline {
            return Err("the place was not found in the time that was left".to_owned());
        }
        Ok(())
    }

    fn reach(&self, place: usize) -> Result<ReachedSource, String> {
        self.check()?;
        let assigned = &self.evidence.assignment.shards[place];
        let peer = self.routes.peer(&assigned.data_address, self.deadline).map_err(unfound)?;
        let generation = assigned.generation.0;
        let export = ExportId(assigned.export.0).at(generation);
        let (stripe, shard) = self.evidence.assignment.at(place as u32);
        let replica = self.evidence.assignment.sources()[stripe].to_owned();
        Ok(ReachedSource { place, replica, shard, peer, export, generation })
    }

    /// The first range in which source and reader differ, as small as it can be found.
    fn first_difference(
        &self,
        source: &ReachedSource,
        copies: &[Copy],
    ) -> Result<Option<Copy>, String> {
        let coarse: Vec<Copy> = copies.iter().flat_map(|copy| split(copy, COARSE_BYTES)).collect();
        let Some(found) = self.compare(source, &coarse)? else { return Ok(None) };
        let fine: Vec<Copy> = split(&found, FINE_BYTES).collect();
        // Changed back in between, or out of time: the larger range is still right.
        Ok(Some(self.compare(source, &fine).ok().flatten().unwrap_or(found)))
    }

    fn compare(&self, source: &ReachedSource, ranges: &[Copy]) -> Result<Option<Copy>, String> {
        for batch in batches(ranges, |range| (range.bytes(), range.rows)) {
            self.check()?;
            let batch = &ranges[batch];
            let extents: Vec<_> = batch.iter().map(at_the_source).collect();
            let theirs = self.ask(source, &extents)?;
            for (copy, theirs) in batch.iter().zip(theirs) {
                let mut ours = [Digest::ZERO];
                let run = Run { cell: 0, ..at_the_target(copy) };
                self.evidence.registration.digest(&[run], &mut ours);
                if ours[0] != theirs {
                    return Ok(Some(*copy));
                }
            }
        }
        Ok(None)
    }

    fn ask(&self, source: &ReachedSource, extents: &[PlacedExtent]) -> Result<Vec<Digest>, String> {
        let ReachedSource { peer, export, generation, .. } = source;
        peer.digests(*export, *generation, extents, self.deadline).map_err(unfound)
    }

    /// Blames the source for a range that differs if the source's memory no longer fits its note;
    /// otherwise the transfer.
    fn judge(&self, source: &ReachedSource, copy: &Copy) -> Result<Place, String> {
        let tensor = self.tensor(copy.cell);
        let slice = slice_of(tensor, copy);
        let there = source.name();
        let one = std::slice::from_ref(tensor);
        let (cause, what) = match self.unsealed(source, one) {
            Ok(Some(_)) => (Cause::Source, format!("{there} changed it while it was read")),
            _ => (
                Cause::Transfer,
                format!(
                    "{there} at {} holds other bytes than arrived: they were changed on the way or \
                     in this shard's memory",
                    source.peer.addr()
                ),
            ),
        };
        let said = format!("{}{}: {what}", tensor.name(), shown(&slice));
        let (tensor, source_shard) = (tensor.name().to_owned(), Some(source.shard));
        Ok(Place { tensor, slice, source_shard, cause, said })
    }

    /// The first slice of these tensors that the source no longer holds as it was sealed.
    fn unsealed(
        &self,
        source: &ReachedSource,
        tensors: &[Tensor],
    ) -> Result<Option<Place>, String> {
        let layout = &self.evidence.sources[source.place];
        let cells = touched(layout, &self.evidence.registration.layout, tensors);
        let note = source.peer.note(source.export, source.generation, self.deadline);
        let note = note.map_err(unfound)?.ok_or_else(|| unfound("the source has no note"))?;
        let sealed = manifest::decode_parts(&note, layout.entries().len());
        let sealed = sealed.ok_or_else(|| unfound("the source's note makes no sense"))?;
        let mut now = vec![Digest::ZERO; cells.len()];
        let runs: Vec<Run> = runs(layout, &cells)
            .iter()
            .flat_map(|run| split(&as_copy(run), COARSE_BYTES).collect::<Vec<_>>())
            .map(|copy| at_the_target(&copy))
            .collect();
        for batch in batches(&runs, |run| (run.bytes(), run.rows)) {
            self.check()?;
            let extents: Vec<_> = runs[batch.clone()].iter().map(placed).collect();
            for (run, digest) in runs[batch].iter().zip(self.ask(source, &extents)?) {
                now[run.cell as usize] += digest;
            }
        }
        let changed = cells.iter().zip(now).find(|(cell, now)| sealed[cell.entry as usize] != *now);
        Ok(changed.map(|(cell, _)| {
            let tensor = layout.tensor_of(cell.entry).name().to_owned();
            let said = format!(
                "{tensor}{} is no longer what {} had sealed: it was changed while it was \
                 published, or its memory is corrupt",
                shown(&cell.slice),
                source.name()
            );
            let (slice, source_shard) = (cell.slice.clone(), Some(source.shard));
            Place { tensor, slice, source_shard, cause: Cause::Source, said }
        }))
    }

    /// The first cell of this shard that is no longer what arrived.
    fn changed_here(&self) -> Result<Place, String> {
        let registration = &self.evidence.registration;
        let now = registration.digest_all();
        self.check()?;
        let changed = now.iter().zip(&self.evidence.digests).position(|(now, then)| now != then);
        let Some(at) = changed else {
            return Err(match registration.bytes() {
                0 => "this shard has read nothing".to_owned(),
                _ => "all that this shard has read is as the source has sealed it, so the \
                      difference is in another shard of this replica, or was changed back"
                    .to_owned(),
            });
        };
        let (tensor, slice) = (self.tensor(at as u32), registration.cells[at].slice.clone());
        let said = format!(
            "{}{} was changed in this shard's memory while or after it arrived",
            tensor.name(),
            shown(&slice)
        );
        let tensor = tensor.name().to_owned();
        Ok(Place { tensor, slice, source_shard: None, cause: Cause::Reader, said })
    }

    fn tensor(&self, cell: u32) -> &Tensor {
        let registration = &self.evidence.registration;
        registration.layout.tensor_of(registration.cells[cell as usize].entry)
    }
}

/// The entries of a source that hold something of what the reader holds of these tensors.
fn touched(source: &Layout, reader: &Layout, tensors: &[Tensor]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for tensor in tensors {
        let (Some(theirs), Some(ours)) = (source.find(tensor.name()), reader.find(tensor.name()))
        else {
            continue;
        };
        let ours: Vec<Slice> =
            reader.entries_of(ours).map(|entry| reader.entry(entry).slice).collect();
        for entry in source.entries_of(theirs) {
            let slice = source.entry(entry).slice;
            if ours.iter().any(|our| our.intersect(&slice).is_some()) {
                cells.push(Cell { entry, slice, copies: 1, counted: true });
            }
        }
    }
    cells
}

fn unfound(reason: impl std::fmt::Display) -> String {
    format!("the place was not found: {reason}")
}

/// `[0:4, 8:16]`; nothing for a scalar.
fn shown(slice: &Slice) -> String {
    if slice.ndim() == 0 {
        return String::new();
    }
    let ranges = (0..slice.ndim()).map(|dim| format!("{}:{}", slice.start[dim], slice.end(dim)));
    format!("[{}]", ranges.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
