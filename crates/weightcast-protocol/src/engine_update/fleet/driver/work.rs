//! Updates of engines, as one fleet or each by itself.

use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::config::UpdateConfig;
use crate::engine_update::fleet::config::{FleetConfig, FleetEnd, FleetMember};
use crate::engine_update::fleet::driver::{
    DriverConfig, DriverEnd, DriverOutput, DriverStage, FleetDriver,
};
use crate::engine_update::fleet::register::FleetQuestion;
use crate::engine_update::fleet::update::{FleetInput, FleetOutput, FleetUpdate};
use crate::engine_update::fleet::verdict::FleetVerdict;
use crate::engine_update::input::UpdateInput;
use crate::engine_update::means::InstallMeans;
use crate::engine_update::report::EngineReport;
use crate::engine_update::update::EngineUpdate;
use crate::{Time, Version};

impl FleetDriver {
    /// Hands an input to the machine of an engine.
    pub(super) fn give(&mut self, now: Time, engine: u32, input: UpdateInput) {
        if let DriverStage::Fleet { update, .. } = &mut self.stage {
            update.handle(now, FleetInput::Engine { engine, input });
        } else if let Some(machine) = self.machines.get_mut(&engine) {
            machine.handle(now, input);
        }
    }

    pub(super) fn update_fleet(&mut self, now: Time, wanted: Version, members: Vec<FleetMember>) {
        self.transactions += 1;
        let driver = self.number.unwrap_or_default();
        let transaction = FleetTransaction { driver, number: self.transactions };
        let config = self.fleet_config(transaction, wanted, members);
        self.due = Some(now + config.bound());
        let update = Box::new(FleetUpdate::new(config, now));
        self.stage = DriverStage::Fleet { transaction, update, own: true };
        self.settle_fleet(now);
    }

    /// The verdict on the update of a lost driver is known: ends that update.
    pub(super) fn recover(
        &mut self,
        now: Time,
        transaction: FleetTransaction,
        offered: Version,
        verdict: FleetVerdict,
    ) {
        let reports = self.reports.clone();
        let of_it = reports.iter().filter(|(_, r)| r.transaction == Some(transaction));
        let member = |(engine, report): (&u32, &EngineReport)| FleetMember {
            engine: *engine,
            life: report.life,
            workers: self.workers(*engine),
            old: report.old,
            paused: report.paused,
        };
        let members = of_it.map(member).collect();
        let config = self.fleet_config(transaction, offered, members);
        self.due = Some(now + config.bound());
        let update = Box::new(FleetUpdate::recover(config, &reports, verdict, now));
        self.stage = DriverStage::Fleet { transaction, update, own: false };
        self.settle_fleet(now);
    }

    fn fleet_config(
        &mut self,
        transaction: FleetTransaction,
        version: Version,
        members: Vec<FleetMember>,
    ) -> FleetConfig {
        let update = self.update_config(0, version);
        let update = UpdateConfig { means: InstallMeans::Staged, ..update };
        let DriverConfig { prepare, decide, ask_every, .. } = self.config;
        FleetConfig { update, transaction, members, prepare, decide, ask_every }
    }

    pub(super) fn settle_fleet(&mut self, now: Time) {
        while let DriverStage::Fleet { update, transaction, own } = &mut self.stage {
            let (transaction, own) = (*transaction, *own);
            let version = update.version();
            let Some(output) = update.poll_output() else { return };
            match output {
                FleetOutput::Run { engine, order } => {
                    self.outputs.push_back(DriverOutput::Run { engine, order });
                }
                FleetOutput::Abandon { engine, order } => {
                    self.outputs.push_back(DriverOutput::Abandon { engine, order });
                }
                FleetOutput::Decide { transaction, verdict: wanted } => {
                    let question = FleetQuestion::Verdict { transaction, wanted, version };
                    self.outputs.push_back(DriverOutput::Ask(question));
                }
                FleetOutput::Ended(result) => {
                    let end = result.end;
                    self.outputs.push_back(DriverOutput::Fleet { transaction, version, result });
                    self.fleet_ended(now, end, own);
                }
            }
        }
    }

    fn fleet_ended(&mut self, now: Time, end: FleetEnd, own: bool) {
        match end {
            // What the register was told last may still be under way to it, and counts only while this driver is the newest.
            FleetEnd::InDoubt => {
                self.renounce(None);
                self.begin(now);
            }
            _ if own => self.end(DriverEnd::Done),
            _ => self.begin(now),
        }
    }

    pub(super) fn update_apart(
        &mut self,
        now: Time,
        engine: u32,
        report: &EngineReport,
        wanted: Version,
        old: Option<Version>,
    ) {
        let EngineReport { life, paused, .. } = *report;
        let config = self.update_config(self.workers(engine), wanted);
        let config = UpdateConfig { life, old: Some(wanted), paused, ..config };
        self.due = self.due.max(Some(now + config.bound()));
        let machine = if report.ready == Some(wanted) {
            EngineUpdate::back(config, now)
        } else if report.held == Some(wanted) {
            EngineUpdate::admit(config, now)
        } else {
            EngineUpdate::new(UpdateConfig { old, ..config }, now)
        };
        self.machines.insert(engine, machine);
    }

    pub(super) fn settle_apart(&mut self) {
        for (engine, outcome) in self.take_outputs() {
            self.machines.remove(&engine);
            self.outputs.push_back(DriverOutput::Apart { engine, outcome });
        }
        if self.machines.is_empty() {
            self.end(DriverEnd::Done);
        }
    }
}
