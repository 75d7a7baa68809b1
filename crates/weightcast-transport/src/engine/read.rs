//! The entry of a transfer: jobs are checked, then cut into pieces, then run.

use super::checked_job::CheckedJob;
use super::job::SourceJob;
use super::options::TransferOptions;
use super::run::RunningTransfer;
use super::stock::Stock;
use crate::base::error::{ReadError, TransportError};
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
    let stripes = options.stripes.max(1);
    assert_eq!(jobs.len() % stripes, 0, "as many jobs for each source");
    // Those that have copies.
    let owners = &jobs[..jobs.len() / stripes];
    let mut routes = Vec::with_capacity(jobs.len());
    for (source, job) in jobs.iter().enumerate() {
        let copies = &owners[source % owners.len()].copies;
        match CheckedJob::read(source, job, copies, targets, options) {
            Ok(route) => routes.push(route),
            Err(TransportError::Timeout { .. }) if source >= owners.len() => {}
            Err(kind) => return Err(ReadError { source, kind }),
        }
    }
    let copies = owners.iter().map(|job| job.copies.as_slice());
    let copies: Vec<Cow<'_, [StridedCopy]>> = match &options.filling {
        Some(filling) => filling.begin(copies).into_iter().map(Cow::Owned).collect(),
        None => copies.map(Cow::Borrowed).collect(),
    };
    let planned: u64 = owners.iter().flat_map(|job| &job.copies).map(StridedCopy::bytes).sum();
    let missing = copies.iter().map(|copies| copies.iter().map(StridedCopy::bytes).sum::<u64>());
    options.gauge.begin(planned - missing.clone().sum::<u64>(), missing, stripes);
    // Who reads from this reader waits for whole pieces.
    let size = options.filling.as_ref().map_or(PIECE_BYTES, |filling| filling.units().piece());
    let stocks = copies.iter().map(|copies| Stock::new(Pieces::cut(copies, size), stripes));
    let run = RunningTransfer::new(routes, stocks.collect(), targets, options);
    run.execute().map_err(|(source, kind)| ReadError { source, kind })
}

#[cfg(test)]
mod tests;
