//! The update of a fleet: all of its engines, or none.
//!
//! Every engine prepares: fetches, verifies, stops generating. Then one verdict is written into a register outside, whose
//! first write counts for ever. Only then engines install and go on.
//!
//! Reading order: `verdict`, `register` (where it is written; `numbers` of drivers), `config`, `update` (the driver's
//! machine of one update), `driver` (all that a driver does), `doubt` (the engine's machine), `routing` (what routers may
//! know of it).

mod config;
mod doubt;
mod driver;
mod numbers;
mod register;
mod routing;
mod update;
mod verdict;

pub use config::{DoubtConfig, FleetConfig, FleetEnd, FleetMember, FleetResult};
pub use doubt::{DoubtInput, DoubtOutput, EngineDoubt};
pub use driver::{DriverConfig, DriverEnd, DriverInput, DriverOutput, FleetDriver};
pub use register::{FleetAnswer, FleetQuestion, FleetRegister};
pub use routing::{
    RoutingAnswer, RoutingError, RoutingLease, RoutingQuestion, RoutingState, RoutingTable,
    ServingNotice,
};
pub use update::{FleetInput, FleetOutput, FleetUpdate, settle_engine};
pub use verdict::FleetVerdict;
