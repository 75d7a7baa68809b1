//! The update of a fleet: all of its engines, or none.
//!
//! Every engine prepares: fetches, verifies, stops generating. Then one verdict is written into a register outside, whose
//! first write counts for ever. Only then engines install and go on.
//!
//! Reading order: `verdict` (with the register), `config`, `update` (the driver's machine), `doubt` (the engine's).

mod config;
mod doubt;
mod update;
mod verdict;

pub use config::{DoubtConfig, FleetConfig, FleetEnd, FleetMember, FleetResult};
pub use doubt::{DoubtInput, DoubtOutput, EngineDoubt};
pub use update::{FleetInput, FleetOutput, FleetUpdate, settle_engine};
pub use verdict::{FleetRegister, FleetVerdict};
