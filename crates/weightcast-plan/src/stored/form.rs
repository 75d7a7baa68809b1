//! How a stored plan begins and ends.

use crate::tensor::first_half;

/// The first bytes, the last of them the version. It counts the planner's choices as well: raise it
/// when a plan for the same layouts becomes another, and what was stored is planned again.
pub(super) const MAGIC: [u8; 8] = *b"wc-plan\x02";
/// Bytes of the checksum.
pub(super) const CHECK: usize = 16;

/// The checksum of these bytes.
pub(super) fn check(bytes: &[u8]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    first_half(&hasher)
}
