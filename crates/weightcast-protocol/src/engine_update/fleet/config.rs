//! What a fleet's update is to be like, and how it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::config::UpdateConfig;
use crate::engine_update::outcome::UpdateOutcome;
use crate::{Safeguards, Span, Version};

/// One engine of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetMember {
    /// The engine's number.
    pub engine: u32,
    /// The engine's life, as it has said.
    pub life: Option<u64>,
    /// Its workers.
    pub workers: u32,
    /// The version that it may go back to: the fleet's own, if the engine holds it whole.
    pub old: Option<Version>,
    /// It is paused already.
    pub paused: bool,
}

/// One update of a fleet. An engine of the fleet may be left out only if it is known to be dead, or was asked by this
/// driver and is not serving: whoever is left out and serves would serve the old version beside the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetConfig {
    /// What the updates of all engines have in common: means are staged, always.
    pub update: UpdateConfig,
    /// The name of this update.
    pub transaction: FleetTransaction,
    /// The engines.
    pub members: Vec<FleetMember>,
    /// How long all engines together may prepare.
    pub prepare: Span,
    /// How long the register may be out of reach.
    pub decide: Span,
    /// How long to wait before the register is asked again.
    pub ask_every: Span,
}

impl FleetConfig {
    /// How long the update takes at most.
    pub fn bound(&self) -> Span {
        let waits = self.prepare.0.saturating_add(self.decide.0);
        Span(waits.saturating_add(self.update.bound().0.saturating_mul(2)))
    }
}

/// How a fleet's update ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FleetEnd {
    /// Decided: every engine that serves, serves the new version.
    Committed,
    /// Decided: every engine that serves, serves what it served before.
    Aborted,
    /// The register was out of reach. Prepared engines stand still, and find out by themselves. The driver's commit may
    /// still be under way: the driver asks the register for a new number before it goes on.
    InDoubt,
}

impl FleetEnd {
    /// The end's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            FleetEnd::Committed => "committed",
            FleetEnd::Aborted => "aborted",
            FleetEnd::InDoubt => "in_doubt",
        }
    }
}

/// What became of a fleet and of each engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetResult {
    /// How the update ended.
    pub end: FleetEnd,
    /// What each engine is, by its number. An engine that does not serve the fleet's version is out of the fleet, until a
    /// later update has brought it a version whole.
    pub engines: BTreeMap<u32, UpdateOutcome>,
}

/// When an engine whose driver is silent acts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoubtConfig {
    /// How long a driver may be silent while the engine takes no step of it.
    pub lease: Span,
    /// How long to wait before the register is asked again.
    pub ask_every: Span,
    /// How long the register may be out of reach. Then the engine leaves the fleet.
    pub deadline: Span,
    /// How often the engine tries again, a lease after it could not do what the register says. Then it leaves the fleet.
    pub retries: u32,
    /// Switched off by test rigs only.
    pub safeguards: Safeguards,
}
