//! The driver's machine for a fleet.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::config::UpdateConfig;
use crate::engine_update::fleet::config::{FleetConfig, FleetEnd, FleetMember, FleetResult};
use crate::engine_update::fleet::verdict::FleetVerdict;
use crate::engine_update::input::{UpdateInput, UpdateOutput};
use crate::engine_update::means::InstallMeans;
use crate::engine_update::order::StepOrder;
use crate::engine_update::outcome::UpdateOutcome;
use crate::engine_update::report::EngineReport;
use crate::engine_update::update::EngineUpdate;
use crate::violation::Violation;
use crate::{Safeguard, Time, Version};

/// Something that happens to a fleet's update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and on the stack: a report is not worth a box"
)]
pub enum FleetInput {
    /// Something happens to one engine: `Answered` or `Lost`. The fleet gives its engines the other inputs itself.
    Engine {
        /// The engine.
        engine: u32,
        /// What happens.
        input: UpdateInput,
    },
    /// The register says which verdict counts. Where the register is out of reach, say nothing.
    Decided {
        /// The update.
        transaction: FleetTransaction,
        /// The verdict.
        verdict: FleetVerdict,
    },
    /// The register knows no verdict on the update, and writes none: it is not the one that numbered the driver.
    Unknown {
        /// The update.
        transaction: FleetTransaction,
    },
    /// The caller does not want the update any more. Without effect once the register has been asked.
    Cancel,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetOutput {
    /// As [`UpdateOutput::Run`], for one engine.
    Run {
        /// The engine.
        engine: u32,
        /// The order.
        order: StepOrder,
    },
    /// As [`UpdateOutput::Abandon`], for one engine.
    Abandon {
        /// The engine.
        engine: u32,
        /// The order.
        order: StepOrder,
    },
    /// Write this verdict into the register, unless there is one already, and hand in what counts.
    Decide {
        /// The update.
        transaction: FleetTransaction,
        /// The verdict that is wanted.
        verdict: FleetVerdict,
    },
    /// The update is over.
    Ended(FleetResult),
}

/// Where a fleet's update is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FleetStage {
    /// Engines prepare, until then.
    Prepares { until: Time },
    /// The register is asked.
    Decides { wanted: FleetVerdict, again: Time, until: Time },
    /// Engines do what was decided.
    Finishes(FleetEnd),
    /// Over.
    Over,
}

/// One update of a fleet, as its driver sees it.
///
/// - Made by [`FleetUpdate::new`]; after a driver was lost, by [`FleetUpdate::recover`].
/// - Inputs: [`FleetUpdate::handle`], [`FleetUpdate::handle_timeout`] at [`FleetUpdate::next_timeout`].
/// - Then [`FleetUpdate::poll_output`] until it is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetUpdate {
    config: FleetConfig,
    engines: BTreeMap<u32, EngineUpdate>,
    ended: BTreeMap<u32, UpdateOutcome>,
    stage: FleetStage,
    #[serde(skip)]
    outputs: VecDeque<FleetOutput>,
}

impl FleetUpdate {
    /// An update from the beginning.
    pub fn new(config: FleetConfig, now: Time) -> Self {
        let until = now + config.prepare;
        let begin = |member: &FleetMember| EngineUpdate::new(engine_config(&config, member), now);
        let engines = config.members.iter().map(|member| (member.engine, begin(member))).collect();
        Self::starting(config, engines, FleetStage::Prepares { until }, now)
    }

    /// What is left of the update of a lost driver: `reports` are what engines said of themselves to this driver, by
    /// [`EngineUpdate::ask`], and `verdict` is what the register says after `Abort` was offered to it.
    pub fn recover(
        config: FleetConfig,
        reports: &BTreeMap<u32, EngineReport>,
        verdict: FleetVerdict,
        now: Time,
    ) -> Self {
        let asked = config.update.safeguards.on(Safeguard::RecoveryAsks);
        let verdict = if asked { verdict } else { FleetVerdict::Abort };
        let recover = |member: &FleetMember| {
            let report = reports.get(&member.engine).copied().unwrap_or_default();
            (member.engine, settle_engine(engine_config(&config, member), &report, verdict, now))
        };
        let engines = config.members.iter().map(recover).collect();
        Self::starting(config, engines, FleetStage::Finishes(end_of(verdict)), now)
    }

    fn starting(
        config: FleetConfig,
        engines: BTreeMap<u32, EngineUpdate>,
        stage: FleetStage,
        now: Time,
    ) -> Self {
        let ended = BTreeMap::new();
        let mut fleet = Self { config, engines, ended, stage, outputs: VecDeque::new() };
        fleet.settle(now);
        fleet
    }

    /// Something happens.
    pub fn handle(&mut self, now: Time, input: FleetInput) {
        match input {
            // What an engine is to do next, the fleet alone says.
            FleetInput::Engine {
                engine,
                input: input @ (UpdateInput::Answered { .. } | UpdateInput::Lost),
            } => {
                let told = self.engines.get_mut(&engine);
                told.into_iter().for_each(|update| update.handle(now, input));
            }
            FleetInput::Engine { .. } => {}
            FleetInput::Decided { transaction, verdict } => {
                if self.asked(transaction).is_some() {
                    self.decided(now, verdict);
                }
            }
            FleetInput::Unknown { transaction } => {
                // The register that could tell is lost: to ask on would only keep engines standing.
                self.asked(transaction).into_iter().for_each(|wanted| self.give_up(now, wanted));
            }
            FleetInput::Cancel => {
                if matches!(self.stage, FleetStage::Prepares { .. }) {
                    self.decide(now, FleetVerdict::Abort);
                }
            }
        }
        self.handle_timeout(now);
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<FleetOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`FleetUpdate::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Time> {
        let own = match self.stage {
            FleetStage::Prepares { until } => Some(until),
            FleetStage::Decides { again, until, .. } => Some(again.min(until)),
            FleetStage::Finishes(_) | FleetStage::Over => None,
        };
        self.engines.values().map(EngineUpdate::next_timeout).chain([own]).flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.engines.values_mut().for_each(|update| update.handle_timeout(now));
        self.settle(now);
        match self.stage {
            FleetStage::Prepares { until } if until <= now => self.decide(now, FleetVerdict::Abort),
            FleetStage::Decides { wanted, until, .. } if until <= now => self.give_up(now, wanted),
            FleetStage::Decides { wanted, again, until } if again <= now => {
                self.ask(now, wanted, until);
            }
            _ => {}
        }
    }

    /// The version that the update is to bring.
    pub fn version(&self) -> Version {
        self.config.update.new
    }

    /// Whether the update has ended.
    pub fn is_over(&self) -> bool {
        self.stage == FleetStage::Over
    }

    /// Looks whether the machines are in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        self.engines.values().try_for_each(EngineUpdate::validate)
    }

    /// Takes what the engines' machines want; goes on once all of them have come to the same point.
    fn settle(&mut self, now: Time) {
        for (engine, update) in &mut self.engines {
            while let Some(output) = update.poll_output() {
                let engine = *engine;
                match output {
                    UpdateOutput::Run(order) => {
                        self.outputs.push_back(FleetOutput::Run { engine, order });
                    }
                    UpdateOutput::Abandon(order) => {
                        self.outputs.push_back(FleetOutput::Abandon { engine, order });
                    }
                    UpdateOutput::Prepared => {}
                    UpdateOutput::Ended(outcome) => {
                        self.ended.insert(engine, outcome);
                    }
                }
            }
        }
        match self.stage {
            FleetStage::Prepares { .. } => self.look(now),
            FleetStage::Finishes(end) if self.ended.len() == self.engines.len() => {
                self.stage = FleetStage::Over;
                let engines = self.ended.clone();
                self.outputs.push_back(FleetOutput::Ended(FleetResult { end, engines }));
            }
            _ => {}
        }
    }

    /// Whether all engines are prepared, or one of them never will be.
    fn look(&mut self, now: Time) {
        let whole = self.config.update.safeguards.on(Safeguard::FleetWhole);
        let prepared = |update: &EngineUpdate| update.is_prepared();
        let all = self.engines.values().all(prepared);
        let ready = if whole { all } else { self.engines.values().any(prepared) };
        let nobody = self.engines.is_empty();
        if ready && !nobody {
            self.decide(now, FleetVerdict::Commit);
        } else if nobody || self.engines.values().any(|update| !update.is_preparing()) {
            self.decide(now, FleetVerdict::Abort);
        }
    }

    fn decide(&mut self, now: Time, wanted: FleetVerdict) {
        self.ask(now, wanted, now + self.config.decide);
        if !self.config.update.safeguards.on(Safeguard::RegisterDecides) {
            self.decided(now, wanted);
        }
    }

    fn ask(&mut self, now: Time, wanted: FleetVerdict, until: Time) {
        self.stage = FleetStage::Decides { wanted, again: now + self.config.ask_every, until };
        let transaction = self.config.transaction;
        self.outputs.push_back(FleetOutput::Decide { transaction, verdict: wanted });
    }

    /// The verdict that the register is asked for, if it is asked about this update.
    fn asked(&self, transaction: FleetTransaction) -> Option<FleetVerdict> {
        match self.stage {
            FleetStage::Decides { wanted, .. } if transaction == self.config.transaction => {
                Some(wanted)
            }
            _ => None,
        }
    }

    fn decided(&mut self, now: Time, verdict: FleetVerdict) {
        let told = match verdict {
            FleetVerdict::Commit => UpdateInput::Proceed,
            FleetVerdict::Abort => UpdateInput::Abort,
        };
        self.tell(now, told, end_of(verdict));
    }

    /// The register was out of reach for too long, or is lost. Nobody but this driver can have written a commit: unless it has tried
    /// to, the update is aborted.
    fn give_up(&mut self, now: Time, wanted: FleetVerdict) {
        match wanted {
            FleetVerdict::Abort => self.decided(now, FleetVerdict::Abort),
            FleetVerdict::Commit => self.tell(now, UpdateInput::Leave, FleetEnd::InDoubt),
        }
    }

    fn tell(&mut self, now: Time, input: UpdateInput, end: FleetEnd) {
        self.stage = FleetStage::Finishes(end);
        self.engines.values_mut().for_each(|update| update.handle(now, input));
        self.settle(now);
    }
}

fn end_of(verdict: FleetVerdict) -> FleetEnd {
    match verdict {
        FleetVerdict::Commit => FleetEnd::Committed,
        FleetVerdict::Abort => FleetEnd::Aborted,
    }
}

fn engine_config(config: &FleetConfig, member: &FleetMember) -> UpdateConfig {
    UpdateConfig {
        life: member.life,
        workers: member.workers,
        old: member.old,
        paused: member.paused,
        means: InstallMeans::Staged,
        transaction: Some(config.transaction),
        ..config.update.clone()
    }
}

/// What is left to do for one engine, once the verdict on its fleet's update is known: for a driver that takes over, and
/// for an engine whose driver is silent. `config` has the update's name; `report` is what the engine says of itself.
pub fn settle_engine(
    config: UpdateConfig,
    report: &EngineReport,
    verdict: FleetVerdict,
    now: Time,
) -> EngineUpdate {
    let new = config.new;
    match verdict {
        FleetVerdict::Abort => EngineUpdate::back(UpdateConfig { old: report.old, ..config }, now),
        FleetVerdict::Commit if report.ready == Some(new) => {
            EngineUpdate::back(UpdateConfig { old: Some(new), ..config }, now)
        }
        FleetVerdict::Commit if report.staged == Some(new) => EngineUpdate::forward(config, now),
        // The engine has neither the version nor what to make it from: it stays out until a later update.
        FleetVerdict::Commit => EngineUpdate::back(UpdateConfig { old: None, ..config }, now),
    }
}
