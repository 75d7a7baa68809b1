//! Why stored bytes are no plan to go by.

use thiserror::Error;

use super::form::MAGIC;
use super::name::PlanName;
use crate::codec::Codec;
use crate::coverage::CoverageError;

/// Why bytes are no plan to go by. In each case: plan again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum StoredError {
    /// Something else, or nothing.
    #[error("{bytes} bytes that do not begin like a stored plan")]
    Foreign { bytes: usize },
    /// Of an older or newer version of this form or planner.
    #[error("version {found} of the form of stored plans, not {}", MAGIC[7])]
    Version { found: u8 },
    /// Cut off or changed since it was written.
    #[error("the checksum is another: the bytes were cut off or changed")]
    Checksum,
    /// A plan between other layouts.
    #[error("a plan for {found}, not for {wanted}")]
    OtherLayouts { found: PlanName, wanted: PlanName },
    /// A plan whose bytes go in a codec of another release.
    #[error("a plan for codec {number}, which this release does not have: it has {} (raw)", Codec::Raw.number())]
    Codec { number: u64 },
    /// The bytes end inside a number.
    #[error("cut off at byte {at}")]
    Cut { at: usize },
    /// A number in more bytes than it needs, or beyond 64 bits.
    #[error("no number at byte {at}")]
    Number { at: usize },
    /// More records than can be.
    #[error("{count} {what} in what is left of the bytes")]
    Count { what: &'static str, count: u64 },
    /// A record with numbers that it cannot have.
    #[error("{what} {number} is none")]
    Record { what: &'static str, number: u64 },
    /// Bytes after the last record.
    #[error("{bytes} bytes after the last record")]
    Trailing { bytes: usize },
    /// A plan, but not between these layouts.
    #[error(transparent)]
    Untrue(#[from] CoverageError),
}
