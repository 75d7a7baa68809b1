//! What a driver does next: a roll call, what a lost driver has left, engines apart, or a fleet.

use weightcast_protocol::engine_update::{
    EngineReport, EngineUpdate, FleetConfig, FleetMember, FleetTransaction, FleetUpdate,
    FleetVerdict, InstallMeans, UpdateAttempt, UpdateConfig,
};
use weightcast_protocol::{Span, Version};

use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::driver::{DrivenUpdate, DriverWork};
use crate::updates::parts::queue::EngineLife;
use crate::updates::world::{TICK, UpdateWorld, version};

/// What a driver knows of an engine that it has not heard.
const NO_LIFE: u32 = 0;

impl UpdateWorld {
    pub(super) fn plan_work(&mut self, driver: usize) {
        match self.drivers[driver].work {
            DriverWork::Numberless if self.register_away <= self.now => {
                self.drivers[driver].number = self.register.next_driver();
                self.begin_roll_call(driver);
            }
            DriverWork::Idle(until) if until <= self.now => self.begin_roll_call(driver),
            DriverWork::RollCall => self.go_on_with_roll_call(driver),
            DriverWork::Apart if self.drivers[driver].updates.is_empty() => self.rest(driver, 0),
            _ => {}
        }
    }

    /// Does nothing for so many milliseconds.
    pub(super) fn rest(&mut self, driver: usize, milliseconds: u64) {
        let until = self.now + Span::from_millis(milliseconds);
        let driver = &mut self.drivers[driver];
        driver.work = DriverWork::Idle(until);
        driver.orders.clear();
        driver.lives.clear();
        driver.installs.clear();
        driver.bound = None;
    }

    fn begin_roll_call(&mut self, driver: usize) {
        self.drivers[driver].work = DriverWork::RollCall;
        self.drivers[driver].reports.clear();
        self.drivers[driver].lives.clear();
        self.drivers[driver].updates.clear();
        self.go_on_with_roll_call(driver);
    }

    /// Asks every engine that may be alive and has not answered; goes on once there is none.
    fn go_on_with_roll_call(&mut self, driver: usize) {
        let mut open = false;
        for number in 0..self.engines.len() {
            let engine = &self.engines[number];
            let dead = !engine.alive && engine.dead_known <= self.now;
            let number = number as u32;
            let reports = &mut self.drivers[driver].reports;
            if dead {
                reports.remove(&number);
            }
            if dead || reports.contains_key(&number) {
                continue;
            }
            open = true;
            if !self.drivers[driver].updates.contains_key(&number) {
                let config = self.driver_config(driver, 0);
                self.drivers[driver].lives.insert(number, NO_LIFE);
                self.drive(driver, number, 0, |now| EngineUpdate::ask(config, now));
            }
        }
        if !open {
            self.choose(driver);
        }
    }

    /// Has a machine drive one engine.
    fn drive(
        &mut self,
        driver: usize,
        engine: u32,
        number: u64,
        begin: impl FnOnce(weightcast_protocol::Time) -> EngineUpdate,
    ) {
        let life = self.drivers[driver].lives.get(&engine).copied().unwrap_or(NO_LIFE);
        let life = EngineLife { engine: engine as usize, life };
        let driven = DrivenUpdate { update: begin(self.now), life, version: number };
        self.drivers[driver].updates.insert(engine, driven);
    }

    /// The configuration of the next round.
    fn driver_config(&mut self, driver: usize, number: u64) -> UpdateConfig {
        let driver = &mut self.drivers[driver];
        driver.round += 1;
        let attempt = UpdateAttempt::before(driver.number, driver.round);
        self.engine_config(attempt, number)
    }

    /// All engines have said what they are.
    fn choose(&mut self, driver: usize) {
        let reports = self.drivers[driver].reports.clone();
        let number = self.drivers[driver].number;
        if reports.values().any(|report| report.seen.driver > number) {
            // A later driver has begun: this one has no say any more.
            self.reach(UpdatePoint::SteppedDown);
            return self.end_driver(driver);
        }
        let pending =
            reports.values().filter_map(|report| Some((report.transaction?, report.offered?)));
        if let Some((transaction, offered)) = pending.max() {
            self.drivers[driver].version = offered.number;
            self.drivers[driver].work = DriverWork::Settles(transaction);
            self.drivers[driver].resend_at = self.now;
        } else if self.options.fleet {
            self.choose_for_fleet(driver, &reports.into_iter().collect::<Vec<_>>());
        } else {
            self.choose_apart(driver, &reports.into_iter().collect::<Vec<_>>());
        }
    }

    fn choose_for_fleet(&mut self, driver: usize, reports: &[(u32, EngineReport)]) {
        if self.register_away > self.now {
            return self.rest(driver, 200);
        }
        let fleet = self.register.version();
        let target = self.target_of(driver);
        let awake = reports.iter().filter(|(_, report)| !report.asleep);
        let old = |report: &EngineReport| report.ready.filter(|ready| Some(*ready) == fleet);
        if target != fleet {
            let member = |(engine, report): &(u32, EngineReport)| FleetMember {
                engine: *engine,
                life: report.life,
                workers: self.options.workers,
                old: old(report),
                paused: report.paused,
            };
            let members: Vec<FleetMember> = awake.map(member).collect();
            return if members.is_empty() {
                self.rest(driver, 300)
            } else {
                self.update_fleet(driver, members)
            };
        }
        let late: Vec<(u32, EngineReport)> =
            awake.filter(|(_, report)| !report.serving || old(report).is_none()).copied().collect();
        self.bring(driver, &late, fleet.unwrap_or(version(1)), |_| None);
    }

    /// Brings engines apart to a version. Those that have it already are resumed; `old` says what others may go back to.
    fn bring(
        &mut self,
        driver: usize,
        late: &[(u32, EngineReport)],
        wanted: Version,
        old: impl Fn(&EngineReport) -> Option<Version>,
    ) {
        if late.is_empty() {
            return self.rest(driver, 300);
        }
        self.drivers[driver].work = DriverWork::Apart;
        for (engine, report) in late {
            let config = self.driver_config(driver, wanted.number);
            let EngineReport { life, paused, .. } = *report;
            let config = UpdateConfig { life, old: Some(wanted), paused, ..config };
            self.bound(driver, config.bound());
            self.drive(driver, *engine, wanted.number, |now| {
                if report.ready == Some(wanted) {
                    EngineUpdate::back(config, now)
                } else if report.held == Some(wanted) {
                    EngineUpdate::admit(config, now)
                } else {
                    EngineUpdate::new(UpdateConfig { old: old(report), ..config }, now)
                }
            });
        }
    }

    fn choose_apart(&mut self, driver: usize, reports: &[(u32, EngineReport)]) {
        let wanted = version(self.target);
        let awake = reports.iter().filter(|(_, report)| !report.asleep);
        let late = awake.filter(|(_, report)| !report.serving || report.ready != Some(wanted));
        let late: Vec<(u32, EngineReport)> = late.copied().collect();
        self.bring(driver, &late, wanted, |report| report.ready);
    }

    fn fleet_config(
        &mut self,
        driver: usize,
        number: u64,
        members: Vec<FleetMember>,
    ) -> FleetConfig {
        let update = self.driver_config(driver, number);
        let update = UpdateConfig { means: InstallMeans::Staged, ..update };
        let transaction = FleetTransaction::default();
        let (decide, ask_every) = (self.options.register_deadline, Span::from_millis(100));
        let prepare = Span::from_millis(1_500);
        self.drivers[driver].version = number;
        FleetConfig { update, transaction, members, prepare, decide, ask_every }
    }

    /// The version to which a driver brings its fleet.
    fn target_of(&self, driver: usize) -> Option<Version> {
        let told = self.published_at >= self.drivers[driver].started || !self.options.forgetful;
        if told { Some(version(self.target)) } else { self.register.version() }
    }

    fn update_fleet(&mut self, driver: usize, members: Vec<FleetMember>) {
        let target = self.target_of(driver).map_or(1, |version| version.number);
        let config = self.fleet_config(driver, target, members);
        self.drivers[driver].transactions += 1;
        let SimNumbers { driver: number, transactions } = self.numbers(driver);
        let transaction = FleetTransaction { driver: number, number: transactions };
        self.drivers[driver].transaction = transaction;
        let config = FleetConfig { transaction, ..config };
        self.bound(driver, config.bound());
        let now = self.now;
        self.tell(|| format!("driver {driver}: brings {target} to the fleet, as {transaction:?}"));
        self.drivers[driver].work = DriverWork::Fleet(Box::new(FleetUpdate::new(config, now)));
    }

    fn numbers(&self, driver: usize) -> SimNumbers {
        let driver = &self.drivers[driver];
        SimNumbers { driver: driver.number, transactions: driver.transactions }
    }

    /// The verdict on the update of a lost driver is known: finish it.
    pub(super) fn settle_fleet(
        &mut self,
        driver: usize,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
        number: u64,
    ) {
        self.reach(match verdict {
            FleetVerdict::Commit => UpdatePoint::RecoveredCommit,
            FleetVerdict::Abort => UpdatePoint::RecoveredAbort,
        });
        let reports = self.drivers[driver].reports.clone();
        let of_it = reports.iter().filter(|(_, r)| r.transaction == Some(transaction));
        let member = |(engine, report): (&u32, &EngineReport)| FleetMember {
            engine: *engine,
            life: report.life,
            workers: self.options.workers,
            old: report.old,
            paused: report.paused,
        };
        let members = of_it.map(member).collect();
        let config = self.fleet_config(driver, number, members);
        self.drivers[driver].transaction = transaction;
        let config = FleetConfig { transaction, ..config };
        self.bound(driver, config.bound());
        let fleet = FleetUpdate::recover(config, &reports, verdict, self.now);
        self.drivers[driver].work = DriverWork::Fleet(Box::new(fleet));
    }

    /// The driver's present work has to be over after so long, and what its timers and wires are late.
    fn bound(&mut self, driver: usize, span: Span) {
        // Each step may end a tick late, and be begun a tick later.
        let steps = 36 * (u64::from(self.options.retries) + 1) + 4;
        let slack = Span(2 * TICK.0 * steps);
        let due = self.now + Span(span.0 + slack.0);
        let now = self.now;
        let driver = &mut self.drivers[driver];
        (driver.began, driver.bound) = (now, driver.bound.max(Some(due)));
    }
}

/// What an update of a fleet is named after.
struct SimNumbers {
    driver: u64,
    transactions: u64,
}
