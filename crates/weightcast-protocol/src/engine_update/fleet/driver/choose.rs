//! All engines have said what they are: what is to be done?

use std::collections::BTreeSet;

use crate::engine_update::fleet::config::FleetMember;
use crate::engine_update::fleet::driver::{DriverEnd, DriverStage, FleetDriver};
use crate::engine_update::report::EngineReport;
use crate::{Time, Version};

impl FleetDriver {
    pub(super) fn choose(&mut self, now: Time) {
        let seen = self.reports.values().map(|report| report.seen);
        let later = seen.filter(|seen| Some(seen.driver) > self.number);
        // An engine that has started since then knows the number alone.
        let heard = later.clone().filter(|seen| seen.round > 0).map(|seen| seen.driver).max();
        if later.count() > 0 || self.doubted {
            // There is a successor, or a number that nobody drives by, or one that another register has given.
            self.renounce(heard);
            return self.begin(now);
        }
        let pending = self.reports.values();
        let pending = pending.filter_map(|report| Some((report.transaction?, report.offered?)));
        if let Some((transaction, offered)) = pending.max() {
            let (again, until) = (now + self.config.ask_every, now + self.config.reach);
            self.stage = DriverStage::Settles { transaction, offered, again, until };
            self.ask();
        } else if self.config.fleet {
            self.choose_for_fleet(now);
        } else if let Some(wanted) = self.version {
            self.bring_late(now, wanted, |report| report.ready);
        } else {
            self.end(DriverEnd::Done);
        }
    }

    fn choose_for_fleet(&mut self, now: Time) {
        let fleet = self.fleet.or_else(|| self.served());
        let old = |report: &EngineReport| report.ready.filter(|ready| Some(*ready) == fleet);
        let Some(wanted) = self.version.or(fleet) else { return self.end(DriverEnd::Done) };
        if fleet == Some(wanted) {
            return self.bring_late(now, wanted, |_| None);
        }
        let awake = self.reports.iter().filter(|(_, report)| !report.asleep);
        let members: Vec<FleetMember> = awake
            .map(|(engine, report)| FleetMember {
                engine: *engine,
                life: report.life,
                workers: self.workers(*engine),
                old: old(report),
                paused: report.paused,
            })
            .collect();
        if members.is_empty() {
            return self.end(DriverEnd::NobodyAwake);
        }
        self.update_fleet(now, wanted, members);
    }

    /// The version that all serving engines serve, if they serve one.
    fn served(&self) -> Option<Version> {
        let serving = self.reports.values().filter(|report| report.serving);
        let versions: BTreeSet<Option<Version>> = serving.map(|report| report.ready).collect();
        if versions.len() == 1 { versions.into_iter().next().flatten() } else { None }
    }

    /// Brings engines that are not at the wanted version there, each by itself. Engines that hold it are resumed; `old`
    /// says what others may go back to.
    fn bring_late(
        &mut self,
        now: Time,
        wanted: Version,
        old: impl Fn(&EngineReport) -> Option<Version>,
    ) {
        let serves = |report: &EngineReport| report.serving && report.ready == Some(wanted);
        let awake = self.reports.iter().filter(|(_, report)| !report.asleep);
        let late = awake.filter(|(_, report)| !serves(report));
        let late: Vec<(u32, EngineReport)> =
            late.map(|(engine, report)| (*engine, *report)).collect();
        self.stage = DriverStage::Apart;
        for (engine, report) in late {
            self.update_apart(now, engine, &report, wanted, old(&report));
        }
        self.settle_apart();
    }
}
