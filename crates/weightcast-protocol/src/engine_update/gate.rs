//! The gate in each worker of an engine: which orders it obeys, and whether it may serve.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::{FleetTransaction, UpdateAttempt};
use crate::engine_update::means::InstallMeans;
use crate::engine_update::order::{StepAnswer, StepOrder};
use crate::engine_update::parameters::LiveParameters;
use crate::engine_update::report::EngineReport;
use crate::engine_update::step::{StepFailure, UpdateStep};
use crate::violation::Violation;
use crate::{Safeguard, Safeguards, Span, Version};

/// What the worker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GateOutput {
    /// Take this step, and report its end with [`EngineGate::handle_performed`]. Before each change that the step makes,
    /// ask [`EngineGate::may_act`].
    Perform(StepOrder),
    /// Send this answer to whoever gave the order.
    Answer {
        /// The order.
        attempt: UpdateAttempt,
        /// The answer.
        answer: StepAnswer,
    },
}

/// One worker's gate. The worker has it decide on each order, and asks it before each change and each forward pass.
///
/// Steps are taken by one thread of the worker: a step whose number is fenced ends at its next change, and the next step
/// begins after that.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineGate {
    /// The engine's life.
    life: u64,
    /// The newest order that was heard.
    seen: UpdateAttempt,
    /// The step that is being taken.
    running: Option<StepOrder>,
    /// The last answer, for an order that comes again.
    answered: Option<(UpdateAttempt, StepAnswer)>,
    live: LiveParameters,
    staged: Option<Version>,
    /// `Begin` was done.
    open: bool,
    paused: bool,
    asleep: bool,
    transaction: Option<FleetTransaction>,
    old: Option<Version>,
    offered: Option<Version>,
    safeguards: Safeguards,
    #[serde(skip)]
    outputs: VecDeque<GateOutput>,
}

impl EngineGate {
    /// The gate of a worker that starts, with the parameters of `holds`, if it has loaded any. It serves nothing before a
    /// driver resumes it. `life` is the engine's: the same at all of its workers, and another whenever the engine starts, so
    /// drawn or counted. `driver` is the newest driver that the register has numbered: earlier ones have no say here.
    pub fn new(life: u64, holds: Option<Version>, driver: u64, safeguards: Safeguards) -> Self {
        let fenced = safeguards.on(Safeguard::StartFenced);
        let mut live = holds.map_or_else(LiveParameters::default, LiveParameters::loaded);
        if !safeguards.on(Safeguard::HeldVerified) {
            holds.into_iter().for_each(|version| live.finish(UpdateStep::Verify, version));
        }
        Self {
            life,
            seen: UpdateAttempt::before(if fenced { driver } else { 0 }, 0),
            running: None,
            answered: None,
            live,
            staged: None,
            open: false,
            paused: safeguards.on(Safeguard::AdmittedFirst),
            asleep: false,
            transaction: None,
            old: None,
            offered: None,
            safeguards,
            outputs: VecDeque::new(),
        }
    }

    /// The same, of an engine that takes part from now on and serves what it has loaded: nobody has to admit it.
    pub fn serving(mut self) -> Self {
        self.paused = false;
        self.live.held().into_iter().for_each(|held| self.live.finish(UpdateStep::Verify, held));
        self
    }

    /// An order came in.
    pub fn handle_order(&mut self, order: StepOrder) {
        let attempt = order.attempt;
        if !self.is_meant(&order) {
            return self.say(attempt, StepAnswer::Failed(StepFailure::OtherLife));
        }
        if order.step == UpdateStep::Inspect {
            self.hear(attempt);
            return self.say(attempt, StepAnswer::Inspected(self.report()));
        }
        if let Some((_, answer)) = self.answered.filter(|(answered, _)| *answered == attempt) {
            return self.say(attempt, answer);
        }
        if self.running.is_some_and(|running| running.attempt == attempt) {
            return; // it came again: the answer follows
        }
        if attempt <= self.seen && self.safeguards.on(Safeguard::OrdersFenced) {
            return self.say(attempt, StepAnswer::Failed(StepFailure::Fenced));
        }
        self.hear(attempt);
        match self.refusal(&order) {
            Some(failure) => self.answer(attempt, StepAnswer::Failed(failure)),
            None => self.begin(order),
        }
    }

    /// The worker has taken a step, or could not.
    pub fn handle_performed(&mut self, attempt: UpdateAttempt, result: Result<(), StepFailure>) {
        let Some(order) = self.running.filter(|order| order.attempt == attempt) else { return };
        self.running = None;
        let unchecked =
            order.step == UpdateStep::Verify && !self.safeguards.on(Safeguard::ContentVerified);
        match result {
            Err(failure) if !unchecked => {
                let compared =
                    order.step == UpdateStep::Verify || !self.safeguards.on(Safeguard::FetchApart);
                if failure == StepFailure::Digest && compared {
                    self.live.torn();
                }
                self.answer(attempt, StepAnswer::Failed(failure));
            }
            _ => {
                self.finish(&order);
                self.answer(attempt, StepAnswer::Done);
            }
        }
    }

    /// The engine gives its memory away, and what was staged with it. It is not resumed by waking up.
    pub fn handle_slept(&mut self) {
        (self.asleep, self.paused) = (true, true);
        (self.staged, self.open) = (None, false);
        self.transaction = None;
        if self.safeguards.on(Safeguard::SleepForgets) {
            // What was done is undone: whoever asks once more is told so.
            let asleep = StepAnswer::Failed(StepFailure::Asleep);
            self.answered = self.answered.map(|(attempt, _)| (attempt, asleep));
        }
        if let Some(order) = self.running.take() {
            self.answer(order.attempt, StepAnswer::Failed(StepFailure::Asleep));
        }
    }

    /// The engine has its memory back. Its parameters should be those of before.
    pub fn handle_woken(&mut self) {
        self.asleep = false;
        if self.safeguards.on(Safeguard::HeldVerified) {
            self.live.unverified();
        }
        self.paused = self.safeguards.on(Safeguard::AdmittedFirst);
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<GateOutput> {
        self.outputs.pop_front()
    }

    /// Whether a step of this number may make its next change.
    pub fn may_act(&self, attempt: UpdateAttempt) -> bool {
        let running = self.running.is_some_and(|order| order.attempt == attempt);
        running || !self.safeguards.on(Safeguard::EffectsFenced)
    }

    /// Whether the worker may run a forward pass.
    pub fn may_serve(&self) -> bool {
        let whole = self.live.ready().is_some() || !self.safeguards.on(Safeguard::WholeServed);
        !self.paused && !self.asleep && whole
    }

    /// How long a driver waits for the step that is being taken; nothing if none is.
    pub fn busy(&self) -> Span {
        self.running.map_or(Span(0), |order| order.deadline)
    }

    /// The version that tokens are stamped with.
    pub fn stamp(&self) -> Option<Version> {
        self.live.stamp()
    }

    /// What the worker is.
    pub fn report(&self) -> EngineReport {
        EngineReport {
            life: Some(self.life),
            seen: self.seen,
            ready: self.live.ready(),
            held: self.live.held(),
            old: self.old,
            staged: self.staged,
            paused: self.paused,
            serving: self.may_serve(),
            asleep: self.asleep,
            transaction: self.transaction,
            offered: self.offered,
        }
    }

    /// Looks whether the gate is in a state that can be.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn validate(&self) -> Result<(), Violation> {
        let late = self.running.is_some_and(|order| order.attempt < self.seen);
        let half = self.may_serve() && self.live.ready().is_none();
        let (broken, invariant, what) = match (late, half) {
            (true, _) => (true, "E7", "a step runs although a newer order was heard"),
            (_, true) => (true, "E1", "serves parameters that are no version"),
            _ => (false, "", ""),
        };
        let detail = || format!("{what}: {:?}", self.report());
        if broken { Err(Violation { invariant, detail: detail() }) } else { Ok(()) }
    }

    /// Whether the order is meant for this life of the engine. It may have waited for the engine's address.
    fn is_meant(&self, order: &StepOrder) -> bool {
        let asks = order.life.is_none() && order.step == UpdateStep::Inspect;
        asks || order.life == Some(self.life) || !self.safeguards.on(Safeguard::OwnLife)
    }

    /// Orders before this one have no effect any more.
    fn hear(&mut self, attempt: UpdateAttempt) {
        self.seen = self.seen.max(attempt);
        let fences = self.safeguards.on(Safeguard::EffectsFenced);
        self.running = self.running.filter(|order| order.attempt >= attempt || !fences);
    }

    /// Why the step can't be taken now.
    fn refusal(&self, order: &StepOrder) -> Option<StepFailure> {
        if self.asleep && order.step != UpdateStep::Discard {
            return Some(StepFailure::Asleep);
        }
        let waived = |safeguard| !self.safeguards.on(safeguard);
        let staged = self.staged == Some(order.version) || waived(Safeguard::WholeStaging);
        let right = match (order.step, order.means) {
            (UpdateStep::Fetch, InstallMeans::InPlace) => self.paused && self.open,
            (UpdateStep::Begin | UpdateStep::Invalidate, _) => self.paused,
            (UpdateStep::Install, _) => self.paused && self.open && staged,
            (UpdateStep::Resume, _) => {
                self.live.ready() == Some(order.version) || waived(Safeguard::ReadyResumed)
            }
            (step, _) => self.live.allows(step, order.version),
        };
        (!right).then_some(StepFailure::OutOfOrder)
    }

    /// A step begins: what it may change counts as changed.
    fn begin(&mut self, order: StepOrder) {
        match (order.step, order.means) {
            (UpdateStep::Negotiate, _) => {
                (self.transaction, self.old) = (order.transaction, order.old);
                self.offered = Some(order.version);
            }
            (UpdateStep::Fetch, InstallMeans::Staged) => self.staged = None,
            (UpdateStep::Begin, InstallMeans::InPlace)
            | (UpdateStep::Fetch, InstallMeans::InPlace)
            | (UpdateStep::Install, _) => self.live.torn(),
            (step, _) => self.live.begin(step),
        }
        self.running = Some(order);
        self.outputs.push_back(GateOutput::Perform(order));
    }

    /// A step is done.
    fn finish(&mut self, order: &StepOrder) {
        match (order.step, order.means) {
            (UpdateStep::Fetch, InstallMeans::Staged) => self.staged = Some(order.version),
            (UpdateStep::Pause, _) => self.paused = true,
            (UpdateStep::Begin, _) => self.open = true,
            (UpdateStep::Discard, _) => {
                (self.staged, self.open) = (None, false);
                self.transaction = self.transaction.filter(|_| order.old.is_some());
            }
            (UpdateStep::Resume, _) => {
                (self.paused, self.open, self.staged) = (false, false, None);
                self.transaction = None;
            }
            (step, _) => self.live.finish(step, order.version),
        }
    }

    fn answer(&mut self, attempt: UpdateAttempt, answer: StepAnswer) {
        self.answered = Some((attempt, answer));
        self.say(attempt, answer);
    }

    fn say(&mut self, attempt: UpdateAttempt, answer: StepAnswer) {
        self.outputs.push_back(GateOutput::Answer { attempt, answer });
    }
}
