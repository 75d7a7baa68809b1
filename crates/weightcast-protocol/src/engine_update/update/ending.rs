//! An update that leaves its course, and how every update ends.

use crate::engine_update::input::UpdateOutput;
use crate::engine_update::means::InstallMeans;
use crate::engine_update::outcome::{EngineState, UpdateOutcome, UpdateReason};
use crate::engine_update::report::EngineReport;
use crate::engine_update::step::{StepFailure, UpdateStep};
use crate::engine_update::update::{EngineUpdate, Heading};
use crate::{Safeguard, Span, Time, Version};

impl EngineUpdate {
    /// Whether there is a version to go back to, and the engine stands still.
    pub(super) fn goes_back_paused(&self) -> bool {
        self.paused && self.config.old.is_some()
    }

    /// The step was not taken, or nobody knows.
    pub(super) fn fail(&mut self, now: Time, reason: UpdateReason) {
        self.abandon();
        self.failure.get_or_insert((self.step, reason));
        self.looks |= reason.is_superseded();
        let staged = self.config.means == InstallMeans::Staged;
        match self.heading {
            Heading::Asking => self.end(now, EngineState::Gone, false, None),
            _ if self.looks => self.ask_now(now),
            Heading::Forward | Heading::Held if self.may_return() => {
                self.heading = Heading::Back;
                self.run(now, UpdateStep::Discard);
            }
            Heading::Forward if staged && self.step != UpdateStep::Resume && self.retries > 0 => {
                self.retries -= 1;
                self.run(now, UpdateStep::Begin);
            }
            // The engine has lost what it had staged, and nothing else: it can still be resumed.
            Heading::Back if self.step == UpdateStep::Discard && self.goes_back_paused() => {
                self.go_back(now);
            }
            _ => self.ask_now(now),
        }
    }

    /// Nobody waits for the step any more.
    fn abandon(&mut self) {
        if self.due.take().is_some() {
            self.outputs.push_back(UpdateOutput::Abandon(self.order()));
        }
    }

    /// The engine died, or another life of it is there.
    pub(super) fn lost(&mut self, now: Time) {
        self.abandon();
        self.failure.get_or_insert((self.step, UpdateReason::Lost));
        self.end(now, EngineState::Gone, false, None);
    }

    /// The outcome of a step is unknown, or the update is at its end: the engine itself has to say what it is.
    pub(super) fn ask_now(&mut self, now: Time) {
        if self.config.safeguards.on(Safeguard::OutcomeAsked) {
            self.heading = Heading::Asking;
            self.run(now, UpdateStep::Inspect);
        } else {
            let new = EngineState::New(self.config.new);
            let back = self.config.old.filter(|_| !self.no_return).map(EngineState::Old);
            self.end(now, back.unwrap_or(new), !self.no_return, None);
        }
    }

    /// The engine has said what it is.
    pub(super) fn judge(&mut self, now: Time, report: EngineReport) {
        if report.life.is_none() {
            return self.lost(now); // some workers are of an earlier life
        }
        if report.seen > self.attempt {
            self.looks = true;
            let step = self.failure.map_or(self.step, |(step, _)| step);
            self.failure = Some((step, UpdateReason::Failed(StepFailure::Fenced)));
        }
        let wanted = if self.no_return { Some(self.config.new) } else { self.config.old };
        let resumable = self.paused && !report.serving && !report.asleep;
        if wanted == report.ready
            && wanted.is_some()
            && resumable
            && !self.looks
            && self.retries > 0
        {
            self.retries -= 1;
            self.heading = if self.no_return { Heading::Forward } else { Heading::Back };
            return self.run(now, UpdateStep::Resume);
        }
        if self.lets_go(&report) {
            self.let_go = true;
            self.heading = Heading::LettingGo;
            return self.run(now, UpdateStep::Discard);
        }
        let state = report.ready.map_or(EngineState::Empty, |version| self.state_of(version));
        self.end(now, state, report.serving, Some(report));
    }

    /// Whether the engine has failed for good: the fleet's update ends here, so that the next one can begin. Until that one,
    /// or an update of its own, the engine stays out of the fleet. An engine that goes on by itself leaves this to a driver.
    fn lets_go(&self, report: &EngineReport) -> bool {
        let failed = !report.serving && !self.looks && !self.let_go;
        let in_it = self.config.transaction.is_some_and(|own| report.transaction == Some(own));
        let own = self.config.attempt.by_itself;
        failed && in_it && !own && self.config.safeguards.on(Safeguard::LetsGo)
    }

    pub(super) fn state_of(&self, version: Version) -> EngineState {
        if version == self.config.new {
            EngineState::New(version)
        } else {
            EngineState::Old(version)
        }
    }

    pub(super) fn end(
        &mut self,
        now: Time,
        state: EngineState,
        serving: bool,
        report: Option<EngineReport>,
    ) {
        let paused = self.paused_at.map_or(Span(0), |at| now - at);
        let went_well = serving && matches!(state, EngineState::New(_));
        let failure = self.failure.filter(|_| !went_well);
        self.heading = Heading::Over;
        self.due = None;
        let total = now - self.began;
        let outcome = UpdateOutcome { state, serving, failure, report, paused, total };
        self.outputs.push_back(UpdateOutput::Ended(outcome));
    }
}
