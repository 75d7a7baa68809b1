//! The registered memory.
//!
//! `layout_source` is the layout that a caller gives, `registration` is the memory in the light of
//! its group's layouts, and `reservations` keep two handles of one process from filling the same
//! memory. `digesting` digests the memory, `proof` answers challenges about it, and `layouts`
//! caches the layouts of other shards. `siblings` are shards of the group on the same host.

mod digesting;
pub(crate) mod layout_source;
pub(super) mod layouts;
mod proof;
pub(crate) mod registration;
pub(super) mod reservations;
pub(crate) mod siblings;
