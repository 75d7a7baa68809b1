//! The driver's machine for one engine.
//!
//! Reading order: this file (what happens to an update), `steps` (the way that goes well), `ending` (all others), `validity`.

mod ending;
mod steps;
mod validity;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::UpdateAttempt;
use crate::engine_update::config::UpdateConfig;
use crate::engine_update::input::{UpdateInput, UpdateOutput};
use crate::engine_update::outcome::UpdateReason;
use crate::engine_update::step::UpdateStep;
use crate::engine_update::tally::StepTally;
use crate::{Safeguard, Time};

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
    /// Has the engine forget the fleet's update, since it cannot end well here.
    LettingGo,
    /// Over.
    Over,
}

/// One update of one engine, as its driver sees it.
///
/// - Made by [`EngineUpdate::new`]; after a driver was lost, by [`EngineUpdate::forward`], [`EngineUpdate::back`] or
///   [`EngineUpdate::ask`]; for an engine that has started or woken, by [`EngineUpdate::admit`].
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
    /// Nobody has compared what the engine holds since it started or woke.
    unverified: bool,
    /// The engine was told to forget the fleet's update.
    let_go: bool,
    /// Somebody has to resume the engine if the update comes to nothing.
    paused: bool,
    retries: u32,
    failure: Option<(UpdateStep, UpdateReason)>,
    began: Time,
    paused_at: Option<Time>,
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

    /// The same for an engine that has started or woken: what it holds is verified before it is resumed.
    pub fn admit(config: UpdateConfig, now: Time) -> Self {
        let mut update = Self::back(config, now);
        update.unverified = true;
        update
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
            unverified: false,
            let_go: false,
            paused: config.paused,
            retries: config.retries,
            failure: None,
            began: now,
            paused_at: config.paused.then_some(now),
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
            UpdateInput::Lost => self.lost(now),
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

    fn is_forward(&self) -> bool {
        matches!(self.heading, Heading::Forward | Heading::Held)
    }

    /// Whether the update can still come to nothing.
    fn may_return(&self) -> bool {
        !self.no_return || !self.config.safeguards.on(Safeguard::NoReturn)
    }
}
