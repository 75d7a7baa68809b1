//! The entry of a transfer that is executed at the source: the bytes are written where grants allow.

use super::checked_job::CheckedJob;
use super::job::TargetJob;
use super::options::TransferOptions;
use super::run::RunningTransfer;
use super::stock::Stock;
use crate::base::error::{TransportError, WriteError};
use crate::base::limits::WRITE_PIECE_BYTES;
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::piece::copy::StridedCopy;
use crate::piece::pieces::Pieces;

/// Makes all copies, from regions of this process into memory of the peers, and returns the digest of each
/// slot, as the bytes are here.
///
/// All bounds are checked on this side before any byte moves, and again by each target before it takes a
/// byte. Copies into overlapping target bytes end in no particular order. When this returns, all bytes are
/// in the memory of their targets; that they are still granted is for the owners to say.
/// [`TransferOptions::filling`], and what is said of siblings, is of no use here.
///
/// # Errors
/// The first failure, with the index of its job: [`TransportError::Refused`] without an open grant,
/// [`TransportError::TargetGone`]. Bytes of the targets may then be half-written.
pub fn write(
    jobs: &[TargetJob<'_>],
    sources: &[Region],
    options: &TransferOptions,
) -> Result<Vec<Digest>, WriteError> {
    let options =
        &TransferOptions { filling: None, entering: None, siblings: 0, ..options.clone() };
    let failed = |target, kind: TransportError| WriteError { target, kind: kind.while_writing() };
    let mut routes = Vec::with_capacity(jobs.len());
    for (target, job) in jobs.iter().enumerate() {
        let route = CheckedJob::write(target, job, sources, options);
        routes.push(route.map_err(|kind| failed(target, kind))?);
    }
    let stocks = jobs.iter().map(|job| Stock::new(Pieces::cut(&job.copies, WRITE_PIECE_BYTES), 1));
    let bytes = jobs.iter().map(|job| job.copies.iter().map(StridedCopy::bytes).sum());
    options.gauge.begin(0, bytes, 1, 0);
    let run = RunningTransfer::new(routes, stocks.collect(), sources, options);
    run.execute().map_err(|(target, kind)| failed(target, kind))
}
