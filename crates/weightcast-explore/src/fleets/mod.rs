//! Small fleets of engines: their drivers, gates and register, in every order of events.
//!
//! The machines are the real ones of [`weightcast_protocol::engine_update`]. A step is one order or question that
//! arrives, one change of an install, one death, one deadline that passes. What arrives is answered at once; orders and
//! questions stay on their way for as long as one likes, also after their driver has died.
//!
//! Reading order: this file (the size of a fleet), `world` (a state), `acting` (what becomes of a step), `steps` (what can
//! happen), `invariants`, `cases`.

mod acting;
mod cases;
mod invariants;
mod steps;
mod world;

use std::fmt;

use weightcast_protocol::Safeguards;

pub use cases::{FLEET_MUTANTS, fleet_suite, fleet_without};
pub use steps::FleetStep;
pub use world::FleetWorld;

/// The size of a fleet, and what may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct FleetBounds {
    /// Engines of one worker each. The first driver brings version 1 to them, the second version 2.
    pub engines: u32,
    /// Drivers that die; each has a successor.
    pub driver_deaths: u32,
    /// Drivers that get a successor although they live.
    pub splits: u32,
    /// Engines that die; each is started again.
    pub engine_deaths: u32,
    /// Registers that are lost; the next one knows nothing.
    pub register_losses: u32,
    /// Timers of drivers that go off.
    pub timeouts: u32,
    /// Orders and questions that are lost.
    pub losses: u32,
    /// Safeguards switched off.
    pub safeguards: Safeguards,
    /// The one invariant to look at; others break earlier when a safeguard is off.
    pub only: Option<&'static str>,
}

impl FleetBounds {
    /// Two engines, one driver, no fault.
    pub fn quiet() -> Self {
        Self {
            engines: 2,
            driver_deaths: 0,
            splits: 0,
            engine_deaths: 0,
            register_losses: 0,
            timeouts: 0,
            losses: 0,
            safeguards: Safeguards::default(),
            only: None,
        }
    }
}

impl fmt::Display for FleetBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a fleet of {}", self.engines)?;
        let faults = [
            (self.driver_deaths, "deaths of a driver"),
            (self.splits, "drivers beside their successors"),
            (self.engine_deaths, "deaths of an engine"),
            (self.register_losses, "losses of the register"),
            (self.timeouts, "timers that go off"),
            (self.losses, "lost messages"),
        ];
        for (n, what) in faults.into_iter().filter(|(n, _)| *n > 0) {
            write!(f, ", {what}: {n}")?;
        }
        Ok(())
    }
}
