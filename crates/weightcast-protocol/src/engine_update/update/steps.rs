//! An update that goes well: which step follows, and when all workers have taken it.

use crate::engine_update::attempt::UpdateAttempt;
use crate::engine_update::course::{after, course, touches};
use crate::engine_update::input::UpdateOutput;
use crate::engine_update::means::InstallMeans;
use crate::engine_update::order::{StepAnswer, StepOrder};
use crate::engine_update::outcome::UpdateReason;
use crate::engine_update::report::EngineReport;
use crate::engine_update::step::{StepFailure, UpdateStep};
use crate::engine_update::tally::StepTally;
use crate::engine_update::update::{EngineUpdate, Heading};
use crate::{Safeguard, Time};

impl EngineUpdate {
    /// Has all workers take a step.
    pub(super) fn run(&mut self, now: Time, step: UpdateStep) {
        self.no_return |= self.heading == Heading::Forward && touches(self.config.means, step);
        if step == UpdateStep::Pause {
            self.paused = true;
            self.paused_at.get_or_insert(now);
        }
        self.step = step;
        self.attempt = self.attempt.next();
        self.tally = StepTally::default();
        self.due = Some(now + self.config.deadlines.of(step));
        self.outputs.push_back(UpdateOutput::Run(self.order()));
    }

    pub(super) fn order(&self) -> StepOrder {
        let back = self.config.old.filter(|_| self.heading == Heading::Back);
        let declared = self.config.safeguards.on(Safeguard::DeclaredMix);
        StepOrder {
            attempt: self.attempt,
            life: self.config.life,
            step: self.step,
            version: back.unwrap_or(self.config.new),
            old: self.config.old.filter(|_| self.heading != Heading::LettingGo),
            means: self.config.means,
            keep_caches: self.config.keeps_caches() || !declared,
            deadline: self.config.deadlines.of(self.step),
            transaction: self.config.transaction,
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        worker: u32,
        attempt: UpdateAttempt,
        answer: StepAnswer,
    ) {
        let current = attempt == self.attempt && self.due.is_some();
        if !current && self.config.safeguards.on(Safeguard::CurrentAnswers)
            || self.due.is_none()
            || worker >= self.config.workers
        {
            return;
        }
        match answer {
            StepAnswer::Failed(StepFailure::OtherLife) => self.lost(now),
            StepAnswer::Failed(failure) => self.fail(now, UpdateReason::Failed(failure)),
            StepAnswer::Done if self.step != UpdateStep::Inspect => self.count(now, worker, None),
            StepAnswer::Inspected(report) if self.step == UpdateStep::Inspect => {
                self.count(now, worker, Some(report));
            }
            // No answer to this order, whatever its number says.
            StepAnswer::Done | StepAnswer::Inspected(_) => {}
        }
    }

    fn count(&mut self, now: Time, worker: u32, report: Option<EngineReport>) {
        self.tally.add(worker, report);
        let all = self.config.safeguards.on(Safeguard::EveryWorker);
        if self.tally.count() == self.config.workers || !all {
            self.done(now);
        }
    }

    /// All workers have taken the step.
    fn done(&mut self, now: Time) {
        self.due = None;
        match (self.heading, self.step) {
            (Heading::Asking, _) => self.judge(now, self.tally.report()),
            (_, UpdateStep::Resume) => {
                let version = self.order().version;
                self.end(now, self.state_of(version), true, None);
            }
            (Heading::Back, _) if self.goes_back_paused() => self.go_back(now),
            (Heading::Back | Heading::LettingGo, _) => self.ask_now(now),
            (_, step) => self.go_on(now, step),
        }
    }

    pub(super) fn go_back(&mut self, now: Time) {
        let verifies = std::mem::take(&mut self.unverified);
        self.run(now, if verifies { UpdateStep::Verify } else { UpdateStep::Resume });
    }

    /// The step after this one, unless the fleet has to decide first.
    fn go_on(&mut self, now: Time, step: UpdateStep) {
        let course = course(self.config.means, self.config.prefetch);
        let mut next = after(course, step).expect("only `Resume` is last");
        // An update that goes on after its driver was lost has its bytes.
        if next == UpdateStep::Fetch && self.no_return && self.config.means == InstallMeans::Staged
        {
            next = UpdateStep::Begin;
        }
        if next == UpdateStep::Stamp && !self.config.safeguards.on(Safeguard::Stamped) {
            next = UpdateStep::Resume;
        }
        let holds = self.config.transaction.is_some() && !self.no_return;
        if next == UpdateStep::Begin && holds && self.config.safeguards.on(Safeguard::FleetHold) {
            self.heading = Heading::Held;
            self.outputs.push_back(UpdateOutput::Prepared);
        } else {
            self.run(now, next);
        }
    }

    pub(super) fn proceed(&mut self, now: Time) {
        self.heading = Heading::Forward;
        self.no_return = true;
        self.run(now, UpdateStep::Begin);
    }
}
