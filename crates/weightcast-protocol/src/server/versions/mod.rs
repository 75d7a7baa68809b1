//! The content and visibility of versions: publish, seal, list, wait, unpublish.

pub(super) mod keep;
pub(super) mod listing;
pub(super) mod publish;
pub(super) mod seal;
pub(super) mod unpublish;
pub(super) mod verdict;
pub(super) mod waiting;
