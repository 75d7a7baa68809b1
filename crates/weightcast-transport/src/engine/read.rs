//! The entry of a transfer: jobs are checked, then cut into pieces, then run.

use super::checked_job::CheckedJob;
use super::job::SourceJob;
use super::options::TransferOptions;
use super::run::RunningTransfer;
use crate::base::error::ReadError;
use crate::base::limits::PIECE_BYTES;
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::piece::copy::StridedCopy;
use crate::piece::pieces::Pieces;
use std::borrow::Cow;

/// Makes all copies, each over the first lane of its source that carries it, and returns the digest of
/// each slot.
///
/// All bounds are checked on both sides before any byte moves. Copies into overlapping target bytes
/// end in no particular order.
///
/// # Errors
/// The first failure, with the index of its job. Target bytes may then be half-written, and nothing of
/// them may be used.
pub fn read(
    jobs: &[SourceJob<'_>],
    targets: &[Region],
    options: &TransferOptions,
) -> Result<Vec<Digest>, ReadError> {
    let mut routes = Vec::with_capacity(jobs.len());
    for (source, job) in jobs.iter().enumerate() {
        let route = CheckedJob::read(source, job, targets, options);
        routes.push(route.map_err(|kind| ReadError { source, kind })?);
    }
    let copies = jobs.iter().map(|job| job.copies.as_slice());
    let copies: Vec<Cow<'_, [StridedCopy]>> = match &options.filling {
        Some(filling) => filling.begin(copies).into_iter().map(Cow::Owned).collect(),
        None => copies.map(Cow::Borrowed).collect(),
    };
    let planned: u64 = jobs.iter().flat_map(|job| &job.copies).map(StridedCopy::bytes).sum();
    let missing = copies.iter().map(|copies| copies.iter().map(StridedCopy::bytes).sum::<u64>());
    options.gauge.begin(planned - missing.clone().sum::<u64>(), missing);
    // Who reads from this reader waits for whole pieces.
    let size = options.filling.as_ref().map_or(PIECE_BYTES, |filling| filling.units().piece());
    let cut = |(route, copies): (&mut CheckedJob<'_>, &Cow<'_, [StridedCopy]>)| {
        route.pieces = Pieces::cut(copies, size);
    };
    routes.iter_mut().zip(&copies).for_each(cut);
    let run = RunningTransfer::new(routes, targets, options);
    run.execute().map_err(|(source, kind)| ReadError { source, kind })
}

#[cfg(test)]
mod tests;
