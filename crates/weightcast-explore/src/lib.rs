//! Explores every order of events of a small weightcast cluster.
//!
//! The machines are the real ones: [`weightcast_protocol::server::Server`] and
//! [`weightcast_protocol::session::Session`]. A state is all that they hold, the workers' memory
//! and what is on the wires; a step is one message taken, one chunk copied, one call made, one lease
//! that the server takes for expired although its worker lives. Within its [`Bounds`] the search is
//! exhaustive, and the first story that breaks an invariant is a shortest one.
//!
//! The simulator draws long runs of large clusters; this looks at all short runs of small ones.

#![forbid(unsafe_code)]

mod bounds;
mod cluster;
mod failover;
mod fleets;
mod hashed;
mod host;
mod invariants;
mod narration;
mod pushes;
mod reading;
mod search;
mod steps;
mod story;
mod suite;
mod worker;

pub use bounds::{Bounds, MUTANTS, without};
pub use cluster::ClusterState;
pub use fleets::{FLEET_MUTANTS, FleetBounds, FleetStep, FleetWorld, fleet_suite, fleet_without};
pub use invariants::Broken;
pub use pushes::{
    EXPLORED_PUSH_MUTANTS, PushBounds, PushFaults, PushState, PushStep, push_suite, push_without,
};
pub use search::{ExploredWorld, SearchResult, search};
pub use steps::Transition;
pub use suite::{SuiteCase, suite};
