//! The driver's machine for one engine.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::UpdateAttempt;
use crate::engine_update::config::UpdateConfig;
use crate::engine_update::course::{after, course, touches};
use crate::engine_update::input::{UpdateInput, UpdateOutput};
use crate::engine_update::means::InstallMeans;
use crate::engine_update::order::{StepAnswer, StepOrder};
use crate::engine_update::outcome::{EngineState, UpdateOutcome, UpdateReason};
use crate::engine_update::report::EngineReport;
use crate::engine_update::step::{StepFailure, UpdateStep};
use crate::engine_update::tally::StepTally;
use crate::server::Violation;
use crate::{Safeguard, Span, Time, Version};

/// Where the machine is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Heading {
    /// Towards the new version.
    Forward,
    /// Prepared; waits for the fleet's verdict.
    Held,
    /// Back to the old version.
    Back,
    /// Asks the engine what it is, and goes on from there.
    Asking,
    /// Over.
    Over,
}

/// One update of one engine, as its driver sees it.
///
/// - Made by [`EngineUpdate::new`]; after a driver was lost, by [`EngineUpdate::forward`], [`EngineUpdate::back`] or
///   [`EngineUpdate::ask`].
/// - Inputs: [`EngineUpdate::handle`], [`EngineUpdate::handle_timeout`] at [`EngineUpdate::next_timeout`].
/// - Then [`EngineUpdate::poll_output`] until it is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineUpdate {
    config: UpdateConfig,
    heading: Heading,
    step: UpdateStep,
    /// The number of the last order.
    attempt: UpdateAttempt,
    due: Option<Time>,
    tally: StepTally,
    /// The engine can't go back any more: its parameters may have changed, or its fleet has committed.
    no_return: bool,
    /// Only looks: whatever the engine says, nothing is ordered after that.
    looks: bool,
    /// Somebody has to resume the engine if the update comes to nothing.
    paused: bool,
    retries: u32,
    failure: Option<(UpdateStep, UpdateReason)>,
    began: Time,
    paused_at: Option<Time>,
    pause: Span,
    #[serde(skip)]
    outputs: VecDeque<UpdateOutput>,
}

impl EngineUpdate {
    /// An update from the beginning.
    pub fn new(config: UpdateConfig, now: Time) -> Self {
        Self::starting(config, now, Heading::Forward, UpdateStep::Negotiate)
    }

    /// The rest of an update whose version is staged and whose fleet has committed.
    pub fn forward(config: UpdateConfig, now: Time) -> Self {
        let mut update = Self::starting(config, now, Heading::Forward, UpdateStep::Pause);
        update.no_return = true;
        update
    }

    /// The way back to `config.old`, for an engine that was left paused.
    pub fn back(config: UpdateConfig, now: Time) -> Self {
        let config = UpdateConfig { paused: true, ..config };
        Self::starting(config, now, Heading::Back, UpdateStep::Discard)
    }

    /// Only asks the engine what it is. From then on the engine obeys no earlier driver.
    pub fn ask(config: UpdateConfig, now: Time) -> Self {
        let mut update = Self::starting(config, now, Heading::Asking, UpdateStep::Inspect);
        update.looks = true;
        update
    }

    fn starting(config: UpdateConfig, now: Time, heading: Heading, first: UpdateStep) -> Self {
        let mut update = Self {
            heading,
            step: first,
            attempt: config.attempt,
            due: None,
            tally: StepTally::default(),
            no_return: false,
            looks: false,
            paused: config.paused,
            retries: config.retries,
            failure: None,
            began: now,
            paused_at: config.paused.then_some(now),
            pause: Span(0),
            outputs: VecDeque::new(),
            config,
        };
        update.run(now, first);
        update
    }

    /// Something happens.
    pub fn handle(&mut self, now: Time, input: UpdateInput) {
        self.handle_timeout(now);
        match input {
            _ if self.heading == Heading::Over => {}
            UpdateInput::Answered { worker, attempt, answer } => {
                self.answered(now, worker, attempt, answer);
            }
            UpdateInput::Lost => {
                self.failure.get_or_insert((self.step, UpdateReason::Lost));
                self.end(now, EngineState::Gone, false, None);
            }
            UpdateInput::Cancel if self.may_return() && self.heading == Heading::Forward => {
                self.fail(now, UpdateReason::Cancelled);
            }
            UpdateInput::Abort if self.may_return() && self.is_forward() => {
                self.fail(now, UpdateReason::Aborted);
            }
            UpdateInput::Proceed if self.heading == Heading::Held => self.proceed(now),
            UpdateInput::Leave if self.heading == Heading::Held => {
                self.fail(now, UpdateReason::InDoubt);
            }
            UpdateInput::Cancel
            | UpdateInput::Abort
            | UpdateInput::Proceed
            | UpdateInput::Leave => {}
        }
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<UpdateOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`EngineUpdate::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Time> {
        self.due.filter(|_| self.config.safeguards.on(Safeguard::StepDeadline))
    }

    /// Time has passed: a step that took too long is abandoned.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next_timeout().is_some_and(|due| due <= now) {
            self.fail(now, UpdateReason::Deadline);
        }
    }

    /// The step that is being taken.
    pub fn step(&self) -> UpdateStep {
        self.step
    }

    /// Whether the update is prepared, and waits for the fleet's verdict.
    pub fn is_prepared(&self) -> bool {
        self.heading == Heading::Held
    }

    /// Whether the update is on its way to be prepared, or is.
    pub(super) fn is_preparing(&self) -> bool {
        self.is_forward() && !self.no_return
    }

    /// Whether the update has ended.
    pub fn is_over(&self) -> bool {
        self.heading == Heading::Over
    }

    /// Looks whether the machine is in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        let runs = !matches!(self.heading, Heading::Held | Heading::Over);
        let changes = self.heading == Heading::Forward && touches(self.config.means, self.step);
        let rules = [
            (runs == self.due.is_some(), "a step without a deadline, or a deadline without a step"),
            (!changes || self.no_return, "parameters change, and the update may still go back"),
            (self.retries <= self.config.retries, "more retries than there were"),
            (
                self.heading != Heading::Held || self.config.transaction.is_some(),
                "an update of one engine waits for a fleet",
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => {
                let detail = format!("{rule}: {:?} in {}", self.heading, self.step);
                Err(Violation { invariant: "E5", detail })
            }
        }
    }

    fn is_forward(&self) -> bool {
        matches!(self.heading, Heading::Forward | Heading::Held)
    }

    /// Whether there is a version to go back to, and the engine stands still.
    fn goes_back_paused(&self) -> bool {
        self.paused && self.config.old.is_some()
    }

    /// Whether the update can still come to nothing.
    fn may_return(&self) -> bool {
        !self.no_return || !self.config.safeguards.on(Safeguard::NoReturn)
    }

    /// Has all workers take a step.
    fn run(&mut self, now: Time, step: UpdateStep) {
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

    fn order(&self) -> StepOrder {
        let back = self.config.old.filter(|_| self.heading == Heading::Back);
        let declared = self.config.safeguards.on(Safeguard::DeclaredMix);
        StepOrder {
            attempt: self.attempt,
            step: self.step,
            version: back.unwrap_or(self.config.new),
            old: self.config.old,
            means: self.config.means,
            keep_caches: self.config.keeps_caches() || !declared,
            transaction: self.config.transaction,
        }
    }

    fn answered(&mut self, now: Time, worker: u32, attempt: UpdateAttempt, answer: StepAnswer) {
        let current = attempt == self.attempt && self.due.is_some();
        if !current && self.config.safeguards.on(Safeguard::CurrentAnswers)
            || self.due.is_none()
            || worker >= self.config.workers
        {
            return;
        }
        match answer {
            StepAnswer::Failed(failure) => self.fail(now, UpdateReason::Failed(failure)),
            StepAnswer::Done => self.count(now, worker, None),
            StepAnswer::Inspected(report) => self.count(now, worker, Some(report)),
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
                self.unpaused(now);
                self.end(now, self.state_of(version), true, None);
            }
            (Heading::Back, _) if self.goes_back_paused() => self.run(now, UpdateStep::Resume),
            (Heading::Back, _) => self.ask_now(now),
            (_, step) => self.go_on(now, step),
        }
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
        let holds = self.config.transaction.is_some() && !self.no_return;
        if next == UpdateStep::Begin && holds && self.config.safeguards.on(Safeguard::FleetHold) {
            self.heading = Heading::Held;
            self.outputs.push_back(UpdateOutput::Prepared);
        } else {
            self.run(now, next);
        }
    }

    fn proceed(&mut self, now: Time) {
        self.heading = Heading::Forward;
        self.no_return = true;
        self.run(now, UpdateStep::Begin);
    }

    /// The step was not taken, or nobody knows.
    fn fail(&mut self, now: Time, reason: UpdateReason) {
        if self.due.take().is_some() {
            self.outputs.push_back(UpdateOutput::Abandon(self.order()));
        }
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
                self.run(now, UpdateStep::Resume);
            }
            _ => self.ask_now(now),
        }
    }

    /// The outcome of a step is unknown, or the update is at its end: the engine itself has to say what it is.
    fn ask_now(&mut self, now: Time) {
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
    fn judge(&mut self, now: Time, report: EngineReport) {
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
        if report.serving {
            self.unpaused(now);
        }
        let state = report.ready.map_or(EngineState::Empty, |version| self.state_of(version));
        self.end(now, state, report.serving, Some(report));
    }

    fn state_of(&self, version: Version) -> EngineState {
        if version == self.config.new {
            EngineState::New(version)
        } else {
            EngineState::Old(version)
        }
    }

    fn unpaused(&mut self, now: Time) {
        if let Some(at) = self.paused_at.take() {
            self.pause = now - at;
        }
    }

    fn end(&mut self, now: Time, state: EngineState, serving: bool, report: Option<EngineReport>) {
        let paused = self.paused_at.map_or(self.pause, |at| now - at);
        let went_well = serving && matches!(state, EngineState::New(_));
        let failure = self.failure.filter(|_| !went_well);
        self.heading = Heading::Over;
        self.due = None;
        let total = now - self.began;
        let outcome = UpdateOutcome { state, serving, failure, report, paused, total };
        self.outputs.push_back(UpdateOutput::Ended(outcome));
    }
}
