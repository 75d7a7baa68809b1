//! The update of inference engines as state machines: who pauses, installs and resumes an engine, in which order, and
//! what an engine is after each failure.
//!
//! Machines, each with inputs, `poll_output()` and, where time matters, `next_timeout()` and `handle_timeout(now)`:
//! - [`EngineUpdate`], at the driver: takes one engine with all of its workers through the steps of an update. An ended
//!   update says what the engine is: wholly old, wholly new, empty, or gone.
//! - [`EngineGate`], in each worker of an engine: admits the orders of the newest driver alone, and lets nothing be served
//!   that is not whole.
//! - [`FleetUpdate`], at the driver: all engines of a fleet, or none. A register outside decides, by its first write.
//!   [`FleetDriver`] decides when that is to be: it asks engines what they are, and ends what a lost driver has left.
//!   [`EngineDoubt`], in each engine, asks that register once the driver has been silent for a lease.
//!
//! Reading order: `step`, `means`, `attempt` (how orders are numbered), `report` (what an engine says of itself), `order`,
//! `course` (which step follows which), `config`, `outcome`, `tally` (who has answered), `input`, `update`, `parameters`, `gate`; then `fleet`.

mod attempt;
mod config;
mod course;
mod fleet;
mod gate;
mod input;
mod means;
mod order;
mod outcome;
mod parameters;
mod report;
mod step;
mod tally;
#[cfg(test)]
mod tests;
mod update;

pub use attempt::{FleetTransaction, UpdateAttempt};
pub use config::{StepDeadlines, UpdateConfig};
pub use fleet::{
    DoubtConfig, DoubtInput, DoubtOutput, DriverConfig, DriverEnd, DriverInput, DriverOutput,
    EngineDoubt, FleetAnswer, FleetConfig, FleetDriver, FleetEnd, FleetInput, FleetMember,
    FleetOutput, FleetQuestion, FleetRegister, FleetResult, FleetUpdate, FleetVerdict,
    RoutingAnswer, RoutingError, RoutingLease, RoutingQuestion, RoutingState, RoutingTable,
    ServingNotice, settle_engine,
};
pub use gate::{EngineGate, GateOutput};
pub use input::{UpdateInput, UpdateOutput};
pub use means::{InstallMeans, PauseMode};
pub use order::{StepAnswer, StepOrder};
pub use outcome::{EngineState, LOADED, UpdateOutcome, UpdateReason};
pub use report::EngineReport;
pub use step::{StepFailure, UpdateStep};
pub use update::EngineUpdate;
