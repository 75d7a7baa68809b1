//! Emulated hosts: network namespaces whose links have a set rate, and worker processes on them.
//!
//! [`network`] makes the hosts, and [`sweeper`] removes them whatever happens. [`worker`] is one
//! shard in a process of its own, [`orders`] are its orders, and [`cluster`] is all of them.

pub(crate) mod cluster;
pub(crate) mod network;
pub(crate) mod orders;
pub(crate) mod sweeper;
pub(crate) mod worker;
