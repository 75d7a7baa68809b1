//! The roll call: every engine that may be alive says what it is.

use crate::engine_update::attempt::UpdateAttempt;
use crate::engine_update::config::UpdateConfig;
use crate::engine_update::fleet::driver::{DriverEnd, DriverOutput, DriverStage, FleetDriver};
use crate::engine_update::input::{UpdateInput, UpdateOutput};
use crate::engine_update::outcome::{LOADED, UpdateOutcome};
use crate::engine_update::update::EngineUpdate;
use crate::{Time, Version};

impl FleetDriver {
    pub(super) fn begin_roll_call(&mut self, now: Time) {
        self.machines.clear();
        self.reports.clear();
        self.stage = DriverStage::RollCall { until: now + self.config.reach };
        self.call_missing(now);
    }

    /// Asks engines that have not answered, and are not being asked.
    fn call_missing(&mut self, now: Time) {
        let engines: Vec<u32> = self.engines.keys().copied().collect();
        for engine in engines {
            if !self.reports.contains_key(&engine) && !self.machines.contains_key(&engine) {
                let config =
                    self.update_config(self.workers(engine), self.version.unwrap_or(LOADED));
                self.machines.insert(engine, EngineUpdate::ask(config, now));
            }
        }
    }

    pub(super) fn settle_roll_call(&mut self, now: Time) {
        for (engine, outcome) in self.take_outputs() {
            self.machines.remove(&engine);
            self.reports.extend(outcome.report.map(|report| (engine, report)));
        }
        if self.reports.len() == self.engines.len() {
            return self.choose(now);
        }
        self.call_missing(now);
        self.take_outputs();
    }

    pub(super) fn give_up_roll_call(&mut self) {
        let silent = |engine: &&u32| !self.reports.contains_key(engine);
        let engines = self.engines.keys().filter(silent).copied().collect();
        self.end(DriverEnd::OutOfReach { engines });
    }

    /// An engine has died. It is left out of the rest of this work.
    pub(super) fn lost(&mut self, now: Time, engine: u32) {
        self.engines.remove(&engine);
        self.reports.remove(&engine);
        if let DriverStage::RollCall { .. } = self.stage {
            self.machines.remove(&engine);
        } else {
            self.give(now, engine, UpdateInput::Lost);
        }
    }

    /// How many workers an engine has.
    pub(super) fn workers(&self, engine: u32) -> u32 {
        self.engines.get(&engine).copied().unwrap_or(1)
    }

    /// Passes on what the machines of single engines want; returns those that have ended.
    pub(super) fn take_outputs(&mut self) -> Vec<(u32, UpdateOutcome)> {
        let mut ended = Vec::new();
        for (engine, machine) in &mut self.machines {
            let engine = *engine;
            while let Some(output) = machine.poll_output() {
                match output {
                    UpdateOutput::Run(order) => {
                        self.outputs.push_back(DriverOutput::Run { engine, order });
                    }
                    UpdateOutput::Abandon(order) => {
                        self.outputs.push_back(DriverOutput::Abandon { engine, order });
                    }
                    UpdateOutput::Prepared => {}
                    UpdateOutput::Ended(outcome) => ended.push((engine, outcome)),
                }
            }
        }
        ended
    }

    /// The configuration of the next machine, for an engine of which nothing is known.
    pub(super) fn update_config(&mut self, workers: u32, new: Version) -> UpdateConfig {
        self.round += 1;
        let config = &self.config;
        UpdateConfig {
            attempt: UpdateAttempt::before(self.number.unwrap_or_default(), self.round),
            life: None,
            workers,
            old: None,
            new,
            paused: false,
            means: config.means,
            mode: config.mode,
            prefetch: config.prefetch,
            transaction: None,
            deadlines: config.deadlines,
            retries: config.retries,
            safeguards: config.safeguards,
        }
    }
}
