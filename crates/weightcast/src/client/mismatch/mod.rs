//! Where two copies of one version differ, and how that is said.
//!
//! `locate` finds where bytes that were read differ from the publisher's, and `refusal` why a publication was refused.
//! Both ask for digests of `ranges`. `summary` adds the digests of a group's shards up to one per tensor, which is the
//! same number in any layout.

pub(super) mod locate;
pub(crate) mod ranges;
pub(super) mod refusal;
pub(crate) mod summary;
