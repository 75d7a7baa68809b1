//! The reference transport: memmove inside one process, one byte range after the other.
//!
//! The oracle of the contract suite and the byte mover of tests: no threads, no pieces, no system
//! calls, nothing to be clever about.

use crate::copy::{Copy, SourceJob};
use crate::digest::{Digest, digest_raw};
use crate::engine::{ReadOptions, Transport};
use crate::error::{ReadError, Refusal, TransportError};
use crate::export::Export;
use crate::exports::ExportTable;
use crate::racy;
use crate::region::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Transport for ExportTable {
    fn read(
        jobs: &[SourceJob<'_, Self>],
        targets: &[Region],
        options: &ReadOptions,
    ) -> Result<Vec<Digest>, ReadError> {
        let mut exports = Vec::with_capacity(jobs.len());
        for (source, job) in jobs.iter().enumerate() {
            let export = open(job, targets, options);
            exports.push(export.map_err(|kind| ReadError { source, kind })?);
        }
        let mut digests = vec![Digest::ZERO; options.slots];
        let copies = jobs.iter().map(|job| job.copies.as_slice());
        let copies: Vec<Vec<Copy>> = match &options.filling {
            Some(filling) => filling.begin(copies),
            None => copies.map(<[Copy]>::to_vec).collect(),
        };
        if options.filling.is_some() {
            let planned: u64 = jobs.iter().flat_map(|job| &job.copies).map(Copy::bytes).sum();
            let missing: u64 = copies.iter().flatten().map(Copy::bytes).sum();
            options.progress.store(planned - missing, Ordering::Relaxed);
        }
        for (source, (copies, export)) in copies.iter().zip(&exports).enumerate() {
            for copy in copies {
                let copied = carry_out(copy, export, targets, options, &mut digests);
                copied.map_err(|kind| ReadError { source, kind })?;
            }
        }
        Ok(digests)
    }
}

/// Finds a job's export and checks all its copies.
fn open(
    job: &SourceJob<'_, ExportTable>,
    targets: &[Region],
    options: &ReadOptions,
) -> Result<Arc<Export>, TransportError> {
    let export = job.peer.get(job.export)?;
    if export.generation() != job.generation || !export.is_served() {
        return Err(Refusal::StaleGeneration.into());
    }
    let region = |region: u32| export.regions().get(region as usize).map(|r| r.len() as u64);
    for (index, copy) in job.copies.iter().enumerate() {
        copy.check(index, region, targets, options.slots)?;
    }
    Ok(export)
}

/// Copies the rows of one copy; each counts only if the export was still served after it.
fn carry_out(
    copy: &Copy,
    export: &Export,
    targets: &[Region],
    options: &ReadOptions,
    digests: &mut [Digest],
) -> Result<(), TransportError> {
    if copy.bytes() == 0 {
        return Ok(());
    }
    let source = &export.regions()[copy.source_region as usize];
    let target = &targets[copy.target_region as usize];
    let len = copy.row_bytes as usize;
    for row in 0..copy.rows {
        let patience = options.patience();
        patience.check("reading")?;
        let asked = (copy.source_region, copy.source_offset + row * copy.source_pitch, len as u64);
        if !export.wait_final(std::iter::once(asked), || patience.check("waiting").is_ok()) {
            patience.check("waiting for the source to be filled")?;
            return Err(TransportError::Fenced { export: export.id() });
        }
        let from = (copy.source_offset + row * copy.source_pitch) as usize;
        let to_offset = copy.target_offset + row * copy.target_pitch;
        let to = target.range(to_offset as usize, len).expect("checked");
        if source.is_computed() {
            target.copy_from(to_offset as usize, source, from, len).expect("checked");
        } else {
            let from = source.range(from, len).expect("checked");
            // SAFETY: both ranges lie in live regions, the target's writable, both checked.
            unsafe { racy::copy(from, to, len) };
        }
        let position = copy.position + row * copy.position_pitch;
        // SAFETY: as above.
        let digest = unsafe { digest_raw(position, to, len) };
        if !export.is_served() {
            return Err(TransportError::Fenced { export: export.id() });
        }
        if options.digests {
            digests[copy.slot as usize] += digest;
        }
        if let Some(filling) = &options.filling {
            filling.arrived(copy.target_region, to_offset, copy.row_bytes);
        }
        options.progress.fetch_add(copy.row_bytes, Ordering::Relaxed);
    }
    Ok(())
}
