//! All that a driver does: it takes a number, asks every engine what it is, ends what a lost driver has left, and brings
//! engines to a version, as one fleet or each by itself.
//!
//! Reading order: this file (what happens to a driver), `config`, `register` (what it asks the register), `roll_call`,
//! `choose` (what is to be done), `work` (doing it).

mod choose;
mod config;
mod register;
mod roll_call;
mod work;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::fleet::config::FleetResult;
use crate::engine_update::fleet::register::{FleetAnswer, FleetQuestion};
use crate::engine_update::fleet::update::{FleetInput, FleetUpdate};
use crate::engine_update::input::UpdateInput;
use crate::engine_update::order::StepOrder;
use crate::engine_update::outcome::UpdateOutcome;
use crate::engine_update::report::EngineReport;
use crate::engine_update::update::EngineUpdate;
use crate::violation::Violation;
use crate::{Time, Version};

pub use config::{DriverConfig, DriverEnd};

/// Something that happens to a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverInput {
    /// Something happens to one engine: `Answered` or `Lost`.
    Engine {
        /// The engine.
        engine: u32,
        /// What happens.
        input: UpdateInput,
    },
    /// The register has answered. Where it is out of reach, say nothing.
    Register {
        /// What it was asked.
        asked: FleetQuestion,
        /// What it says.
        answer: FleetAnswer,
    },
    /// The caller does not want the version any more. Without effect once it is decided.
    Cancel,
}

/// What a driver's runtime has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriverOutput {
    /// Send this order to every worker of the engine, and again until the worker answers or the order is abandoned.
    Run {
        /// The engine.
        engine: u32,
        /// The order.
        order: StepOrder,
    },
    /// Stop sending this order.
    Abandon {
        /// The engine.
        engine: u32,
        /// The order.
        order: StepOrder,
    },
    /// Ask the register, and hand in what it says.
    Ask(FleetQuestion),
    /// An update of all engines as one fleet has ended: this driver's own, or one that a lost driver had begun.
    Fleet {
        /// The update.
        transaction: FleetTransaction,
        /// The version that it was to bring.
        version: Version,
        /// What became of it.
        result: FleetResult,
    },
    /// The update of one engine by itself has ended.
    Apart {
        /// The engine.
        engine: u32,
        /// What became of it.
        outcome: UpdateOutcome,
    },
    /// The driver has nothing more to do for this version: orders that were not answered are sent no more.
    Ended(DriverEnd),
}

/// What a driver is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum DriverStage {
    /// Nothing.
    Idle,
    /// It asks the register who drives, and which version the fleet has.
    Register { again: Time, until: Time },
    /// It asks every engine what it is.
    RollCall { until: Time },
    /// It asks the register for the verdict on the update of a lost driver.
    Settles { transaction: FleetTransaction, offered: Version, again: Time, until: Time },
    /// It updates a fleet, or ends the update of a lost driver.
    Fleet { transaction: FleetTransaction, update: Box<FleetUpdate>, own: bool },
    /// It updates engines, each by itself.
    Apart,
}

/// A driver of engines, for as long as its process lives.
///
/// - [`FleetDriver::bring`] has it bring engines to a version; at the end of that comes [`DriverOutput::Ended`].
/// - Inputs: [`FleetDriver::handle`], [`FleetDriver::handle_timeout`] at [`FleetDriver::next_timeout`].
/// - Then [`FleetDriver::poll_output`] until it is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetDriver {
    config: DriverConfig,
    /// What the register has called it.
    number: Option<u64>,
    /// How many numbers it has asked for.
    numbers: u64,
    /// A later driver's number, which engines have heard.
    heard: Option<u64>,
    /// The register does not know it as the newest driver.
    doubted: bool,
    /// Machines and fleets' updates so far.
    round: u64,
    transactions: u64,
    /// What is to be brought, to which engines, and how many workers each of them has. No version: that of the fleet.
    version: Option<Version>,
    engines: BTreeMap<u32, u32>,
    /// The caller does not want the version any more.
    cancelled: bool,
    /// The fleet's version, as the register says.
    fleet: Option<Version>,
    stage: DriverStage,
    /// Machines of single engines: of the roll call, or of updates apart.
    machines: BTreeMap<u32, EngineUpdate>,
    reports: BTreeMap<u32, EngineReport>,
    due: Option<Time>,
    #[serde(skip)]
    outputs: VecDeque<DriverOutput>,
}

impl FleetDriver {
    /// A driver that has no number yet.
    pub fn new(config: DriverConfig) -> Self {
        Self {
            config,
            number: None,
            numbers: 0,
            heard: None,
            doubted: false,
            round: 0,
            transactions: 0,
            version: None,
            engines: BTreeMap::new(),
            cancelled: false,
            fleet: None,
            stage: DriverStage::Idle,
            machines: BTreeMap::new(),
            reports: BTreeMap::new(),
            due: None,
            outputs: VecDeque::new(),
        }
    }

    /// Brings engines, by number with their workers, to a version; without one, to the version that the fleet has. All engines
    /// of the fleet have to be given, but for those known to be dead. `false`, and nothing else: the driver is still at its
    /// former work.
    pub fn bring(
        &mut self,
        now: Time,
        version: Option<Version>,
        engines: BTreeMap<u32, u32>,
    ) -> bool {
        let idle = self.is_idle();
        if idle {
            (self.version, self.engines, self.cancelled) = (version, engines, false);
            self.begin(now);
        }
        idle
    }

    /// Something happens.
    pub fn handle(&mut self, now: Time, input: DriverInput) {
        match input {
            DriverInput::Engine { engine, input: UpdateInput::Lost } => self.lost(now, engine),
            DriverInput::Engine { engine, input: input @ UpdateInput::Answered { .. } } => {
                self.give(now, engine, input);
            }
            // What an engine is to do next, the driver says itself.
            DriverInput::Engine { .. } => {}
            DriverInput::Register { asked, answer } => self.register_says(now, asked, answer),
            DriverInput::Cancel => self.cancel(now),
        }
        self.handle_timeout(now);
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<DriverOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`FleetDriver::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Time> {
        let own = match &self.stage {
            DriverStage::Idle | DriverStage::Apart => None,
            DriverStage::RollCall { until } => Some(*until),
            DriverStage::Register { again, until } | DriverStage::Settles { again, until, .. } => {
                Some((*again).min(*until))
            }
            DriverStage::Fleet { update, .. } => update.next_timeout(),
        };
        self.machines.values().map(EngineUpdate::next_timeout).chain([own]).flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.machines.values_mut().for_each(|machine| machine.handle_timeout(now));
        match &mut self.stage {
            DriverStage::Register { until, .. } | DriverStage::Settles { until, .. }
                if *until <= now =>
            {
                self.end(DriverEnd::RegisterAway);
            }
            DriverStage::Register { again, .. } | DriverStage::Settles { again, .. }
                if *again <= now =>
            {
                *again = now + self.config.ask_every;
                self.ask();
            }
            DriverStage::RollCall { until } if *until <= now => self.give_up_roll_call(),
            DriverStage::Fleet { update, .. } => update.handle_timeout(now),
            _ => {}
        }
        self.settle(now);
    }

    /// The number that the register has given this driver.
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Whether the driver has nothing to do.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, DriverStage::Idle)
    }

    /// By when updates that are under way are over.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// The fleet's update that is under way.
    pub fn transaction(&self) -> Option<FleetTransaction> {
        match self.stage {
            DriverStage::Fleet { transaction, .. } | DriverStage::Settles { transaction, .. } => {
                Some(transaction)
            }
            _ => None,
        }
    }

    /// Looks whether the machines are in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        if let DriverStage::Fleet { update, .. } = &self.stage {
            update.validate()?;
        }
        self.machines.values().try_for_each(EngineUpdate::validate)
    }

    /// Who drives, and what are the engines?
    fn begin(&mut self, now: Time) {
        self.machines.clear();
        self.reports.clear();
        self.due = None;
        if self.cancelled {
            return self.end(DriverEnd::Cancelled);
        }
        let until = now + self.config.reach;
        self.stage = DriverStage::Register { again: now + self.config.ask_every, until };
        self.ask();
    }

    fn end(&mut self, end: DriverEnd) {
        self.machines.clear();
        self.due = None;
        self.stage = DriverStage::Idle;
        self.outputs.push_back(DriverOutput::Ended(end));
    }

    fn cancel(&mut self, now: Time) {
        match &mut self.stage {
            DriverStage::Idle => {}
            DriverStage::Fleet { update, own: true, .. } => {
                update.handle(now, FleetInput::Cancel);
            }
            // A lost driver's update is ended all the same.
            DriverStage::Fleet { own: false, .. } => self.cancelled = true,
            DriverStage::Apart => {
                let machines = self.machines.values_mut();
                machines.for_each(|machine| machine.handle(now, UpdateInput::Cancel));
            }
            _ => self.end(DriverEnd::Cancelled),
        }
    }

    /// Takes what the machines want; goes on where all of them have come to an end.
    fn settle(&mut self, now: Time) {
        match self.stage {
            DriverStage::RollCall { .. } => self.settle_roll_call(now),
            DriverStage::Fleet { .. } => self.settle_fleet(now),
            DriverStage::Apart => self.settle_apart(),
            _ => {}
        }
    }
}
