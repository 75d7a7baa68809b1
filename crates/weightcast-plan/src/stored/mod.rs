//! Plans as bytes: what a worker keeps so that after a restart it need not plan again.
//!
//! # Form, version 2
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `wc-plan` and the version |
//! | 16 + 16 | what it was made for: [`PlanName`], target and sources |
//! | varint | number of the [`Codec`](crate::Codec) |
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
mod error;
mod form;
mod name;
mod record;
mod varint;

use crate::coverage::prove_within;
use crate::group::Cell;
use crate::layout::Layout;
use crate::limits::MAX_FRAGMENTS;
use crate::plan::Plan;

pub use decode::decode;
pub use encode::encode;
pub use error::StoredError;
pub use name::PlanName;

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
