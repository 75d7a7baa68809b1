//! The world: engines, drivers, a register, wires, and a queue of what happens next.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weightcast_protocol::engine_update::{FleetRegister, RoutingTable};
use weightcast_protocol::{Epoch, Span, Time, Version};

use crate::base::rng::Rng;
use crate::report::InvariantViolation;
use crate::updates::checkers::{UpdateChecker, UpdateFact, update_checkers};
use crate::updates::coverage::UpdatePoint;
use crate::updates::options::{UpdateFault, UpdateOptions};
use crate::updates::parts::driver::SimDriver;
use crate::updates::parts::engine::SimEngine;
use crate::updates::parts::queue::{EngineLife, UpdateEvent, UpdateQueue};
use crate::updates::report::UpdateReport;

/// How often drivers and engines look at their timers, and engines run a forward pass.
pub(super) const TICK: Span = Span::from_millis(40);
/// How long a notice of a worker counts.
pub(super) const ROUTING_LEASE: Span = Span::from_millis(900);
/// In so long an engine in doubt waits for a lease, asks, and goes on by itself.
const LONELY: Span = Span::from_secs(15);
/// How often the world is looked at.
const LOOK: Span = Span::from_millis(250);

pub(super) struct UpdateWorld {
    pub(super) options: UpdateOptions,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) queue: UpdateQueue,
    pub(super) engines: Vec<SimEngine>,
    pub(super) drivers: Vec<SimDriver>,
    pub(super) register: FleetRegister,
    pub(super) register_lives: u32,
    /// Beside the register, and lost with it.
    pub(super) routing: RoutingTable,
    /// When each worker of an engine's life has last served a version, whole.
    pub(super) served: BTreeMap<(EngineLife, u32, u64), Time>,
    /// Nobody reaches the register until then.
    pub(super) register_away: Time,
    /// Words to the register wait on the way until then.
    pub(super) register_slow: Time,
    /// What happens with the next commit, and how long whatever dies takes to start again.
    pub(super) doom: Option<(UpdateFault, Span)>,
    /// The trainer's newest version, and the one that is to be served.
    pub(super) published: u64,
    pub(super) target: u64,
    pub(super) published_at: Time,
    pub(super) calm: bool,
    pub(super) report: UpdateReport,
    checkers: Vec<Box<dyn UpdateChecker>>,
    hasher: DefaultHasher,
    told: bool,
}

/// The version of this number.
pub(super) fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

impl UpdateWorld {
    pub(super) fn new(seed: u64, options: UpdateOptions) -> Self {
        let mut world = Self {
            rng: Rng::new(seed ^ 0x75_7064),
            now: Time(0),
            queue: UpdateQueue::default(),
            engines: (0..options.engines).map(|_| SimEngine::absent()).collect(),
            drivers: Vec::new(),
            register: FleetRegister::new(1, options.safeguards),
            register_lives: 1,
            routing: RoutingTable::new(ROUTING_LEASE, options.safeguards),
            served: BTreeMap::new(),
            register_away: Time(0),
            register_slow: Time(0),
            doom: None,
            published: 1,
            target: 1,
            published_at: Time(0),
            calm: false,
            report: UpdateReport { seed, ..UpdateReport::default() },
            checkers: update_checkers(),
            hasher: DefaultHasher::new(),
            told: false,
            options,
        };
        world.people();
        world
    }

    /// Plans the starts of all, new versions, faults, and the end of faults.
    fn people(&mut self) {
        let late = (self.options.engines - self.options.joiners) as usize;
        for engine in 0..self.engines.len() {
            let at = if engine < late { self.rng.below(50) } else { self.rng.between(500, 4_000) };
            self.plan_ms(at, UpdateEvent::EngineStarts(engine));
        }
        self.plan_ms(60, UpdateEvent::DriverStarts);
        self.plan_ms(100, UpdateEvent::Look);
        let faults_ms = self.options.fault_time.0 / 1_000_000;
        let mut at = 300;
        while at < faults_ms {
            self.plan_ms(at, UpdateEvent::Published);
            at += self.rng.between(800, self.options.publish_every.0 / 1_000_000);
        }
        for kind in UpdateFault::ALL {
            let most = self.options.faults.get(kind).copied().unwrap_or_default();
            for _ in 0..self.rng.below(most + 1) {
                let at = self.rng.between(200, faults_ms);
                self.plan_ms(at, UpdateEvent::Fault(*kind));
            }
        }
        self.plan_ms(faults_ms, UpdateEvent::Calm);
        self.plan_ms(faults_ms + self.options.alone.0 / 1_000_000, UpdateEvent::DriverComes);
        self.plan_ms(faults_ms + self.options.alone.0 / 1_000_000 + 5_000, UpdateEvent::Published);
    }

    fn plan_ms(&mut self, milliseconds: u64, event: UpdateEvent) {
        self.queue.plan(Time(0) + Span::from_millis(milliseconds), event);
    }

    pub(super) fn plan_in(&mut self, span: Span, event: UpdateEvent) {
        self.queue.plan(self.now + span, event);
    }

    /// Plays to the end, or until a violation that is looked for.
    pub(super) fn play(
        mut self,
        found: impl Fn(&InvariantViolation) -> bool,
        told: bool,
    ) -> UpdateReport {
        self.told = told;
        let end = Time(0) + self.options.fault_time + self.options.alone + self.options.quiet_time;
        while let Some((at, event)) = self.queue.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.report.events += 1;
            (at, &event).hash(&mut self.hasher);
            let violations = self.report.violations.len();
            let happens = std::panic::AssertUnwindSafe(|| self.happen(event));
            if let Err(panic) = std::panic::catch_unwind(happens) {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                self.report.violated(at, "panic", text);
                return self.report;
            }
            if self.report.violations[violations..].iter().any(&found) {
                return self.report;
            }
        }
        self.look_at_the_end();
        self.report.fingerprint = self.hasher.finish();
        self.report
    }

    fn happen(&mut self, event: UpdateEvent) {
        match event {
            UpdateEvent::Order { to, worker, from, order } => {
                self.hear_order(to, worker, from, order.0);
            }
            UpdateEvent::Answer { to, from, worker, attempt, answer, sent } => {
                self.hear_answer(to, from, worker, attempt, answer.0, sent);
            }
            UpdateEvent::Ask { from, question } => self.ask_register(from, question),
            UpdateEvent::Told { to, asked, answer } => self.hear_register(to, asked, answer),
            UpdateEvent::Notice(notice) => self.hear_notice(*notice),
            UpdateEvent::Notices(at) => self.renew_notices(at),
            UpdateEvent::Change { at, worker, attempt } => self.change(at, worker, attempt),
            UpdateEvent::Pass(at) => self.pass(at),
            UpdateEvent::Tick(driver) => self.tick(driver),
            UpdateEvent::EngineStarts(engine) => self.start_engine(engine),
            UpdateEvent::EngineWakes(at) => self.wake(at),
            UpdateEvent::DriverStarts if self.calm => {}
            UpdateEvent::DriverStarts => self.start_driver(),
            UpdateEvent::DriverComes => self.end_loneliness(),
            UpdateEvent::DriverEnds(driver) => self.end_driver(driver),
            UpdateEvent::Published => self.publish(),
            UpdateEvent::Look => self.look(),
            UpdateEvent::Fault(kind) => self.strike(kind),
            UpdateEvent::Calm => self.calm_down(),
        }
    }

    /// The trainer has a new version, or goes back to an earlier one.
    fn publish(&mut self) {
        self.published_at = self.now;
        if !self.calm && self.rng.chance(self.options.rollbacks) {
            self.target = self.rng.between(1, self.published);
        } else {
            self.published += 1;
            self.target = self.published;
        }
    }

    /// Shows a fact to all checkers.
    pub(super) fn observe(&mut self, fact: &UpdateFact<'_>) {
        for checker in &mut self.checkers {
            if let Some(wrong) = checker.observe(fact) {
                self.report.violated(self.now, checker.name(), wrong);
            }
        }
    }

    /// A machine has looked at itself.
    pub(super) fn validated(&mut self, result: Result<(), weightcast_protocol::server::Violation>) {
        if let Err(violation) = result {
            self.report.violated(self.now, violation.invariant, violation.detail);
        }
    }

    pub(super) fn reach(&mut self, point: UpdatePoint) {
        self.report.reach(point);
    }

    /// Adds a line to the story.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.told {
            let seconds = self.now.0 as f64 / 1e9;
            let line = format!("{:>7} {seconds:>9.4} s  {}", self.report.events, line());
            self.report.lines.push(line);
        }
    }

    /// The last driver comes.
    fn end_loneliness(&mut self) {
        if self.options.alone > LONELY {
            self.look_at_the_abandoned();
        }
        self.start_driver();
    }

    fn look(&mut self) {
        self.look_for_overdue();
        self.look_for_doubts();
        self.look_at_routing();
        self.plan_in(LOOK, UpdateEvent::Look);
    }
}
