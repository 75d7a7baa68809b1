//! Updates end: what they say is compared with what is.

use weightcast_protocol::engine_update::{
    EngineState, FleetEnd, FleetResult, FleetTransaction, InstallMeans, UpdateAttempt,
    UpdateOutcome, UpdateReason,
};
use weightcast_protocol::{Time, Version};

use crate::updates::checkers::UpdateFact;
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::engine::SimEngine;
use crate::updates::parts::queue::EngineLife;
use crate::updates::world::UpdateWorld;

impl UpdateWorld {
    /// The update of one engine by itself has ended.
    pub(super) fn update_ended(&mut self, driver: usize, engine: u32, outcome: &UpdateOutcome) {
        let told = self.told(driver, engine);
        self.drivers[driver].orders.remove(&engine);
        self.tell(|| format!("driver {driver}: engine {engine}: {outcome:?}"));
        if self.options.fleet && outcome.serving {
            self.reach(UpdatePoint::Admitted);
        }
        self.count_outcome(outcome);
        if let Some(life) = self.drivers[driver].lives.get(&engine).copied() {
            let at = EngineLife { engine: engine as usize, life };
            self.compare(driver, at, outcome, told);
        }
    }

    pub(super) fn fleet_ended(
        &mut self,
        driver: usize,
        transaction: FleetTransaction,
        version: Version,
        result: &FleetResult,
    ) {
        self.tell(|| format!("driver {driver}: {transaction:?}: {result:?}"));
        let end = result.end;
        let own = self.drivers[driver].machine.number() == Some(transaction.driver);
        self.reach(match (end, own) {
            (FleetEnd::Committed, true) => UpdatePoint::Committed,
            (FleetEnd::Aborted, true) => UpdatePoint::Aborted,
            (FleetEnd::Committed, false) => UpdatePoint::RecoveredCommit,
            (FleetEnd::Aborted, false) => UpdatePoint::RecoveredAbort,
            (FleetEnd::InDoubt, _) => UpdatePoint::DriverInDoubt,
        });
        match self.register.verdict(transaction) {
            None if self.register_lives > 1 && own => {}
            None if self.register_lives > 1 => self.ended_by_reports(end, version),
            verdict => self.observe(&UpdateFact::FleetEnded { driver, end, verdict }),
        }
        for (engine, outcome) in &result.engines {
            let forgot = outcome.report.is_some_and(|report| report.transaction.is_none());
            if end == FleetEnd::Committed && forgot && outcome.state == EngineState::Empty {
                self.reach(UpdatePoint::LetGo);
            }
            if end == FleetEnd::Committed && outcome.state == EngineState::Gone {
                self.reach(UpdatePoint::DiedCommitted);
            }
            self.count_outcome(outcome);
            if let Some(life) = self.drivers[driver].lives.get(engine).copied() {
                let at = EngineLife { engine: *engine as usize, life };
                let told = self.told(driver, *engine);
                self.compare(driver, at, outcome, told);
            }
        }
    }

    /// An update was ended by what engines say, since the register was lost.
    fn ended_by_reports(&mut self, end: FleetEnd, version: Version) {
        self.reach(if end == FleetEnd::Committed {
            UpdatePoint::ReportsCommit
        } else {
            UpdatePoint::ReportsAbort
        });
        let serves = |engine: &SimEngine| {
            engine.alive && engine.may_serve() && engine.version() == Some(version.number)
        };
        // An earlier try to bring the version may end once a later one has committed to it.
        let committed = self.register.version() == Some(version);
        if end == FleetEnd::Aborted && !committed && !self.engines.iter().any(serves) {
            self.observe(&UpdateFact::Forgotten { version: version.number });
        }
    }

    fn count_outcome(&mut self, outcome: &UpdateOutcome) {
        let why = outcome
            .failure
            .map_or("well".to_owned(), |(step, reason)| format!("{step}: {}", reason.name()));
        let serving = if outcome.serving { "serving" } else { "not serving" };
        let name = format!("{}, {serving}, {why}", outcome.state.name());
        *self.report.outcomes.entry(name).or_default() += 1;
        let cancelled = outcome.failure.is_some_and(|(_, r)| r == UpdateReason::Cancelled);
        match outcome.state {
            EngineState::New(_) if outcome.serving => {
                self.reach(UpdatePoint::Updated);
            }
            EngineState::Old(_) if outcome.serving => {
                self.reach(UpdatePoint::WentBack);
                if cancelled {
                    self.reach(UpdatePoint::CancelledInTime);
                }
            }
            EngineState::Empty => self.reach(UpdatePoint::EndedEmpty),
            EngineState::Gone => self.reach(UpdatePoint::EndedGone),
            _ => {}
        }
    }

    /// Since when what an engine has last told a driver was true.
    fn told(&self, driver: usize, engine: u32) -> Time {
        let driver = &self.drivers[driver];
        driver.orders.get(&engine).map_or(driver.began, |given| given.told)
    }

    /// Compares what a driver says of an engine, as it was told then, with what the engine is.
    fn compare(&mut self, driver: usize, at: EngineLife, outcome: &UpdateOutcome, told: Time) {
        let own = self.drivers[driver].last.get(&(at.engine as u32)).copied().unwrap_or_default();
        let disturbed = self.drivers[driver].disturbed || self.is_disturbed(at, own, told);
        self.show_outcome(at, outcome, disturbed);
    }

    /// The same for what an engine says of itself.
    pub(super) fn own_ended(&mut self, at: EngineLife, outcome: &UpdateOutcome) {
        let own = self.engines[at.engine].own_attempt;
        let disturbed = self.is_disturbed(at, own, self.engines[at.engine].own_since);
        self.show_outcome(at, outcome, disturbed);
    }

    fn show_outcome(&mut self, at: EngineLife, outcome: &UpdateOutcome, disturbed: bool) {
        let engine = &self.engines[at.engine];
        let (version, serves) = (engine.version(), engine.may_serve());
        let intact = engine.workers.iter().all(|worker| worker.intact);
        let disturbed = disturbed || outcome.is_superseded();
        let engine = at.engine;
        self.observe(&UpdateFact::Ended { engine, outcome, version, serves, intact, disturbed });
    }

    /// Whether an engine may have become something else since it was asked: it died, slept, or has heard a later order.
    fn is_disturbed(&self, at: EngineLife, own: UpdateAttempt, since: Time) -> bool {
        let engine = &self.engines[at.engine];
        let upset = engine.upset_at >= since;
        let later = engine.workers.iter().any(|worker| worker.heard > own);
        !self.lives(at) || upset || later
    }

    /// The end of the world.
    pub(in crate::updates) fn look_at_the_end(&mut self) {
        let wanted = self.target;
        let in_place = self.options.means == InstallMeans::InPlace;
        for engine in 0..self.engines.len() {
            let it = &self.engines[engine];
            let serves = it.version().filter(|_| it.may_serve());
            let state = format!("{:?}, in place: {in_place}", it.report());
            self.observe(&UpdateFact::Over { engine, serves, wanted, state: &state });
        }
        self.look_at_routing_at_the_end();
    }
}
