//! Faults, and their end.

use weightcast_protocol::engine_update::{DriverInput, FleetRegister, RoutingTable};
use weightcast_protocol::{Span, Time};

use crate::updates::options::UpdateFault;
use crate::updates::parts::queue::UpdateEvent;
use crate::updates::world::{ROUTING_LEASE, UpdateWorld};

/// A supervisor takes so long to start an engine again, and whoever looks for the dead takes longer.
const AT_ONCE: Span = Span::from_millis(50);
const LONGER: Span = Span::from_millis(400);

impl UpdateWorld {
    /// A fault strikes; its victim is drawn.
    pub(in crate::updates) fn strike(&mut self, kind: UpdateFault) {
        *self.report.faults.entry(kind.name()).or_default() += 1;
        let engine = self.rng.below(self.engines.len() as u64) as usize;
        let span = Span::from_millis(self.rng.between(300, 1_500));
        let until = self.now + span;
        self.tell(|| format!("fault: {} (engine {engine}, {span})", kind.name()));
        match kind {
            UpdateFault::EngineDies => self.kill_engine(engine, span),
            UpdateFault::EngineRestarts => self.end_engine(engine, AT_ONCE, LONGER),
            UpdateFault::JobDies | UpdateFault::EnginesDie | UpdateFault::CancelledLate => {
                self.doom = Some((kind, span));
            }
            UpdateFault::EngineSleeps if self.engines[engine].alive => {
                let at = self.engines[engine].at(engine);
                if self.rng.chance(500) {
                    self.engines[engine].dozes = Some(span);
                } else if !self.engines[engine].asleep {
                    self.sleep(at, span);
                }
            }
            UpdateFault::EngineSleeps => {}
            UpdateFault::WorkerWedged
            | UpdateFault::WorkerSlow
            | UpdateFault::BitFlipped
            | UpdateFault::StagingSpoiled => {
                self.trouble_worker(kind, engine, until);
            }
            UpdateFault::DriverDies => {
                self.end_driver_now();
                self.plan_in(span, UpdateEvent::DriverStarts);
            }
            UpdateFault::DriverSplit => {
                if let Some(driver) = self.newest_driver() {
                    self.plan_in(Span(span.0 * 2), UpdateEvent::DriverEnds(driver));
                    self.start_driver();
                }
            }
            UpdateFault::DriverSuspended => {
                if let Some(driver) = self.newest_driver() {
                    let suspended = &mut self.drivers[driver];
                    (suspended.suspended_until, suspended.disturbed) = (until, true);
                    self.plan_in(Span(span.0 * 2), UpdateEvent::DriverEnds(driver));
                    self.start_driver();
                }
            }
            UpdateFault::DriverCut => {
                if let Some(driver) = self.newest_driver() {
                    self.drivers[driver].cut_until = until;
                }
            }
            UpdateFault::RegisterAway => self.register_away = self.now + Span(span.0 * 2),
            UpdateFault::RegisterLost => self.lose_register(),
            UpdateFault::RegisterSlow => self.register_slow = self.now + Span(span.0 * 2),
            UpdateFault::LinkCut => self.engines[engine].cut_until = until,
            UpdateFault::WeightsSpoiled => self.engines[engine].spoils = true,
            UpdateFault::Cancelled => {
                if let Some(driver) = self.newest_driver() {
                    self.cancel(driver);
                    self.pump(driver);
                }
            }
        }
    }

    /// A driver has asked for a commit: what was to happen then, happens.
    pub(super) fn meet_doom(&mut self, driver: usize) {
        let Some((kind, span)) = self.doom.take() else { return };
        if kind == UpdateFault::CancelledLate {
            return self.cancel(driver);
        }
        self.register_slow = self.now + Span(span.0 * 3);
        (0..self.engines.len()).for_each(|engine| self.kill_engine(engine, span));
        if kind == UpdateFault::JobDies {
            self.end_driver_now();
            self.plan_in(span, UpdateEvent::DriverStarts);
        }
    }

    /// The register is lost, and the next one knows nothing.
    fn lose_register(&mut self) {
        self.register_lives += 1;
        self.register = FleetRegister::new(self.register_lives, self.options.safeguards);
        self.routing = RoutingTable::new(ROUTING_LEASE, self.options.safeguards);
    }

    /// An engine dies, and is started again after so long.
    fn kill_engine(&mut self, engine: usize, span: Span) {
        let noticed = Span::from_millis(self.rng.below(400));
        self.end_engine(engine, span, noticed);
    }

    fn end_engine(&mut self, engine: usize, span: Span, noticed: Span) {
        let victim = &mut self.engines[engine];
        if victim.alive {
            (victim.alive, victim.upset_at) = (false, self.now);
            victim.dead_known = self.now + noticed;
            self.plan_in(span, UpdateEvent::EngineStarts(engine));
        }
    }

    fn trouble_worker(&mut self, kind: UpdateFault, engine: usize, until: Time) {
        let worker = self.rng.below(self.options.workers.into()) as usize;
        let Some(worker) = self.engines[engine].workers.get_mut(worker) else { return };
        match kind {
            UpdateFault::WorkerWedged => worker.wedged_until = until,
            UpdateFault::WorkerSlow => worker.slow_until = until,
            UpdateFault::StagingSpoiled => worker.spoils_staging = true,
            _ => worker.flips = true,
        }
    }

    fn newest_driver(&self) -> Option<usize> {
        let newest = self.drivers.len().checked_sub(1)?;
        let driver = &self.drivers[newest];
        (driver.alive && driver.suspended_until <= self.now).then_some(newest)
    }

    fn end_driver_now(&mut self) {
        for driver in 0..self.drivers.len() {
            if self.drivers[driver].alive {
                self.end_driver(driver);
            }
        }
    }

    fn cancel(&mut self, driver: usize) {
        let now = self.now;
        self.drivers[driver].machine.handle(now, DriverInput::Cancel);
    }

    /// Faults cease: one driver is to come, and everything can be reached.
    pub(in crate::updates) fn calm_down(&mut self) {
        self.calm = true;
        (self.options.lost, self.options.failing) = (0, 0);
        (self.register_away, self.register_slow) = (self.now, self.now);
        let now = self.now;
        self.drivers.iter_mut().for_each(|driver| driver.cut_until = now);
        for engine in &mut self.engines {
            (engine.cut_until, engine.dozes, engine.spoils) = (now, None, false);
            for worker in &mut engine.workers {
                (worker.wedged_until, worker.slow_until) = (now, now);
                (worker.flips, worker.spoils_staging) = (false, false);
            }
        }
        self.doom = None;
        self.end_driver_now();
        self.tell(|| "faults cease".to_owned());
    }
}
