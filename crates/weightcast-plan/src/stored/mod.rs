//! Plans as bytes: what a worker keeps so that after a restart it need not plan again.
//!
//! # Form, version 1
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `wc-plan` and the version |
//! | 16 + 16 | what it was made for: [`PlanName`], target and sources |
//! | varint | number of copies, then the copies |
//! | varint | number of echoes, then the echoes |
//! | 16 | BLAKE3 of all that comes before, its first half |
//!
//! A copy or an echo is a *record* of numbers. Each number has a forecast, from the record before and
//! from the numbers of the same record that precede it: the next byte of the same buffer, the next
//! source, one row with no pitch. A record is a varint whose bit `i` says that number `i` is not
//! what was forecast, and for each of those the difference modulo 2^64, zigzag, as a varint. So
//! most copies take a few bytes. Varints are LEB128 in as few bytes as can be: one plan has one
//! encoding, on every machine.
//!
//! # Trust
//!
//! None. [`restore`] takes any bytes, allocates no more than some eighty times their number, and
//! returns a plan only after [`prove`](crate::prove) has found it to be one between these very
//! layouts: every byte of the target written once, from memory that holds it.

mod decode;
mod encode;
mod record;
mod varint;

use std::fmt;

use thiserror::Error;

use crate::coverage::{CoverageError, prove_within};
use crate::group::Cell;
use crate::layout::Layout;
use crate::limits::MAX_FRAGMENTS;
use crate::plan::Plan;
use crate::tensor::first_half;

pub use decode::decode;
pub use encode::encode;

/// The first bytes, the last of them the version. It counts the planner's choices as well: raise it
/// when a plan for the same layouts becomes another, and what was stored is planned again.
const MAGIC: [u8; 8] = *b"wc-plan\x01";
/// Bytes of the checksum.
const CHECK: usize = 16;

/// What a plan was made for. Equal names mean equal arguments to the planner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanName {
    /// The target's layout and cells.
    pub target: [u8; 16],
    /// The sources' layouts, in order.
    pub sources: [u8; 16],
}

impl PlanName {
    /// Of the plan for these arguments. Sources are given by names of their layouts, of any kind as
    /// long as equal names mean equal layouts: digests, or those of manifests.
    pub fn new(
        target: &Layout,
        cells: &[Cell],
        sources: impl IntoIterator<Item = [u8; 16]>,
    ) -> PlanName {
        let mut hasher = blake3::Hasher::new_derive_key("weightcast plan target 1");
        hasher.update(&target.digest().0);
        for cell in cells {
            hasher.update(&cell.entry.to_le_bytes());
            hasher.update(&(cell.slice.ndim() as u64).to_le_bytes());
            for number in cell.slice.start.iter().chain(&cell.slice.len) {
                hasher.update(&number.to_le_bytes());
            }
        }
        let target = first_half(&hasher);
        let mut hasher = blake3::Hasher::new_derive_key("weightcast plan sources 1");
        for name in sources {
            hasher.update(&name);
        }
        PlanName { target, sources: first_half(&hasher) }
    }
}

impl fmt::Display for PlanName {
    /// Sources and target, 65 characters that may be a file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sources.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.target.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanName({self})")
    }
}

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

/// The stored plan of this name, proved to be one between these layouts: what
/// [`plan`](crate::plan()) would have made of them, or at least as right.
///
/// # Errors
/// Anything that is wrong with the bytes. The next thing to try is [`plan`](crate::plan()).
pub fn restore(
    bytes: &[u8],
    name: &PlanName,
    target: &Layout,
    cells: &[Cell],
    sources: &[&Layout],
) -> Result<Plan, StoredError> {
    let plan = decode(bytes, name)?;
    prove_within(target, cells, sources, &plan, MAX_FRAGMENTS)?;
    Ok(plan)
}

/// The checksum of these bytes.
fn check(bytes: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    first_half(&hasher)
}
