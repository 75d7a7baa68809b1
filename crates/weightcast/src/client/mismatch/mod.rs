//! Where two copies of one version differ, and how that is said.
//!
//! `locate` finds where bytes that were read differ from the publisher's, and `refusal` why a publication was refused.
//! Both ask for digests of `ranges`.

pub(super) mod locate;
pub(crate) mod ranges;
pub(super) mod refusal;
