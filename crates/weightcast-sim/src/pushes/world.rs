//! The world: targets, senders, drivers, wires, and a queue of what happens next.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use weightcast_protocol::{Epoch, Span, Time, Version};

use crate::base::rng::Rng;
use crate::pushes::checkers::{PushChecker, PushFact, push_checkers};
use crate::pushes::coverage::PushPoint;
use crate::pushes::options::{PushFault, PushOptions};
use crate::pushes::parts::driver::PushingDriver;
use crate::pushes::parts::queue::{PushEvent, PushQueue};
use crate::pushes::parts::sender::SimSender;
use crate::pushes::parts::target::SimTarget;
use crate::pushes::report::PushWorldReport;
use crate::report::InvariantViolation;

/// How often drivers and targets look at their timers, and targets serve.
pub(super) const TICK: Span = Span::from_millis(40);
/// How often the world is looked at.
const LOOK: Span = Span::from_millis(250);

/// A parcel of the layout: bytes, and the places of the senders that hold them.
#[derive(Clone, Debug)]
pub(super) struct LaidParcel {
    pub(super) bytes: u64,
    pub(super) holders: BTreeSet<usize>,
}

pub(super) struct PushWorld {
    pub(super) options: PushOptions,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) queue: PushQueue,
    /// Parcels of each target's place: the plan, which does not change.
    pub(super) layout: Vec<Vec<LaidParcel>>,
    pub(super) targets: Vec<SimTarget>,
    pub(super) senders: Vec<SimSender>,
    /// By number, from one on.
    pub(super) drivers: Vec<PushingDriver>,
    /// Workers that have started so far: their names.
    pub(super) started: u64,
    pub(super) published: u64,
    pub(super) calm: bool,
    pub(super) report: PushWorldReport,
    checkers: Vec<Box<dyn PushChecker>>,
    hasher: DefaultHasher,
    told: bool,
}

/// The version of this number.
pub(super) fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

impl PushWorld {
    pub(super) fn new(seed: u64, options: PushOptions) -> Self {
        let mut world = Self {
            rng: Rng::new(seed ^ 0x70_7573),
            now: Time(0),
            queue: PushQueue::default(),
            layout: Vec::new(),
            targets: Vec::new(),
            senders: Vec::new(),
            drivers: Vec::new(),
            started: 0,
            published: 1,
            calm: false,
            report: PushWorldReport { seed, ..PushWorldReport::default() },
            checkers: push_checkers(),
            hasher: DefaultHasher::new(),
            told: false,
            options,
        };
        world.people();
        world
    }

    /// Lays parcels out; plans the starts of all, new versions, faults, and the end of faults.
    fn people(&mut self) {
        let safeguards = self.options.safeguards;
        for place in 0..self.options.targets as usize {
            let parcels = self.draw_parcels();
            self.targets.push(SimTarget::absent(parcels.len(), safeguards));
            self.layout.push(parcels);
            let late = place >= (self.options.targets - self.options.joiners) as usize;
            let at = if late { self.rng.between(400, 3_000) } else { self.rng.below(50) };
            self.plan_ms(at, PushEvent::TargetStarts(place));
        }
        for place in 0..self.options.senders as usize {
            self.senders.push(SimSender::absent(safeguards));
            self.plan_ms(0, PushEvent::SenderStarts(place));
        }
        self.plan_ms(80, PushEvent::DriverStarts);
        self.plan_ms(100, PushEvent::Look);
        self.plan_faults();
    }

    fn draw_parcels(&mut self) -> Vec<LaidParcel> {
        let senders = u64::from(self.options.senders);
        let count = self.rng.between(1, u64::from(self.options.parcels));
        let mut parcels = Vec::new();
        for _ in 0..count {
            let mut holders = BTreeSet::from([self.rng.below(senders) as usize]);
            for place in 0..senders as usize {
                if self.rng.chance(self.options.shared) {
                    holders.insert(place);
                }
            }
            parcels.push(LaidParcel { bytes: self.rng.between(1, 100), holders });
        }
        parcels
    }

    fn plan_faults(&mut self) {
        let faults_ms = self.options.fault_time.0 / 1_000_000;
        let mut at = 300;
        while at < faults_ms {
            self.plan_ms(at, PushEvent::Published);
            at += self.rng.between(600, self.options.publish_every.0 / 1_000_000);
        }
        for kind in PushFault::ALL {
            let most = self.options.faults.get(kind).copied().unwrap_or_default();
            for _ in 0..self.rng.below(most + 1) {
                let at = self.rng.between(150, faults_ms);
                self.plan_ms(at, PushEvent::Fault(*kind));
            }
        }
        self.plan_ms(faults_ms, PushEvent::Calm);
        self.plan_ms(faults_ms + 100, PushEvent::DriverStarts);
        self.plan_ms(faults_ms + 2_000, PushEvent::Published);
    }

    fn plan_ms(&mut self, milliseconds: u64, event: PushEvent) {
        self.queue.plan(Time(0) + Span::from_millis(milliseconds), event);
    }

    pub(super) fn plan_in(&mut self, span: Span, event: PushEvent) {
        self.queue.plan(self.now + span, event);
    }

    /// Some time between these, in microseconds.
    pub(super) fn some_time(&mut self, least: u64, most: u64) -> Span {
        Span(self.rng.between(least, most.max(least)) * 1_000)
    }

    /// Plays to the end, or until a violation that is looked for.
    pub(super) fn play(
        mut self,
        found: impl Fn(&InvariantViolation) -> bool,
        told: bool,
    ) -> PushWorldReport {
        self.told = told;
        let end = Time(0) + self.options.fault_time + self.options.quiet_time;
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

    fn happen(&mut self, event: PushEvent) {
        match event {
            PushEvent::Order { place, order } => self.hear_order(place, order),
            PushEvent::Report { driver, report } => self.hear_report(driver, report),
            PushEvent::Grant { place, grant } => self.hear_grant(place, grant),
            PushEvent::Word { place, word } => self.hear_word(place, &word),
            PushEvent::Refusal { driver, refused } => self.hear_refusal(driver, refused),
            PushEvent::Lands(write) => self.land(write),
            PushEvent::Answered { write, done } => self.write_answered(&write, done),
            PushEvent::Writes { place, sender } => self.write_next(place, sender),
            PushEvent::Paused { place, target } => self.paused(place, target),
            PushEvent::Verified { place, target, generation, differing } => {
                self.verified(place, target, generation, &differing);
            }
            PushEvent::TargetTick { place, target } => self.tick_target(place, target),
            PushEvent::TargetStarts(place) => self.start_target(place),
            PushEvent::TargetWakes { place, target } => self.wake_target(place, target),
            PushEvent::SenderStarts(place) => self.start_sender(place),
            PushEvent::SenderSteps { place, sender } => self.step_sender(place, sender),
            PushEvent::DriverTick(driver) => self.tick_driver(driver),
            PushEvent::DriverStarts => self.start_driver(),
            PushEvent::DriverEnds(driver) => self.end_driver(driver),
            PushEvent::Published => self.publish(),
            PushEvent::Look => self.look(),
            PushEvent::Fault(kind) => self.strike(kind),
            PushEvent::Calm => self.calm_down(),
        }
    }

    fn look(&mut self) {
        self.look_for_overdue();
        self.look_for_open_grants();
        self.plan_in(LOOK, PushEvent::Look);
    }

    /// Shows a fact to all checkers.
    pub(super) fn observe(&mut self, fact: &PushFact<'_>) {
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

    pub(super) fn reach(&mut self, point: PushPoint) {
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
}
