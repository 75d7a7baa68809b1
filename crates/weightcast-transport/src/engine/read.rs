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
    let (striped, siblings) = jobs.split_at(jobs.len() - options.siblings);
    assert_eq!(striped.len() % stripes, 0, "as many jobs for each source");
    // Those that have copies.
    let owners = &striped[..striped.len() / stripes];
    let mut routes = Vec::with_capacity(jobs.len());
    for (source, job) in jobs.iter().enumerate() {
        let helps = (owners.len()..striped.len()).contains(&source);
        let copies = if helps { &owners[source % owners.len()].copies } else { &job.copies };
        match CheckedJob::read(source, job, copies, targets, options) {
            Ok(route) => routes.push(route),
            Err(TransportError::Timeout { .. }) if helps => {}
            Err(kind) => return Err(ReadError { source, kind }),
        }
    }
    let givers = || owners.iter().chain(siblings);
    let copies = missing(owners, siblings, options);
    let planned: u64 = givers().flat_map(|job| &job.copies).map(StridedCopy::bytes).sum();
    let bytes = copies.iter().map(|copies| copies.iter().map(StridedCopy::bytes).sum::<u64>());
    let kept = planned - bytes.clone().sum::<u64>();
    options.gauge.begin(kept, bytes, stripes, options.siblings);
    // Who reads from this reader waits for whole pieces.
    let fillings = options.filling.as_ref().or(options.entering.as_ref());
    let size = fillings.map_or(PIECE_BYTES, |filling| filling.units().piece());
    let sources = |number: usize| if number < owners.len() { stripes } else { 1 };
    let stocks = copies
        .iter()
        .enumerate()
        .map(|(number, copies)| Stock::new(Pieces::cut(copies, size), sources(number)));
    let run = RunningTransfer::new(routes, stocks.collect(), targets, options);
    run.execute().map_err(|(source, kind)| ReadError { source, kind })
}

/// What each of these jobs is still to bring, those of siblings last.
fn missing<'a>(
    owners: &'a [SourceJob<'_>],
    siblings: &'a [SourceJob<'_>],
    options: &TransferOptions,
) -> Vec<Cow<'a, [StridedCopy]>> {
    let of = |job: &'a SourceJob<'_>| job.copies.as_slice();
    let mut copies: Vec<Cow<'_, [StridedCopy]>> = match &options.entering {
        Some(entering) => {
            entering.begin(owners.iter().map(of)).into_iter().map(Cow::Owned).collect()
        }
        None => owners.iter().map(of).map(Cow::Borrowed).collect(),
    };
    copies.extend(siblings.iter().map(of).map(Cow::Borrowed));
    if let Some(filling) = &options.filling {
        let left = filling.begin(copies.iter().map(Cow::as_ref));
        return left.into_iter().map(Cow::Owned).collect();
    }
    copies
}

#[cfg(test)]
mod behind_tests;
#[cfg(test)]
mod sibling_tests;
#[cfg(test)]
mod tests;
