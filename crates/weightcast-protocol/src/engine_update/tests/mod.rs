//! Directed tests of the machines, one behaviour each. The simulator plays the rest.

mod bounds;
mod doubt;
mod doubt_course;
mod driver;
mod driver_apart;
mod driver_fleet;
mod driver_waits;
mod fleet;
mod fleet_words;
mod gate;
mod gate_parameters;
mod gate_words;
mod hands;
mod register;
mod report;
mod routing;
mod stored;
mod update;
mod update_ends;
mod update_words;

use crate::engine_update::{
    EngineUpdate, InstallMeans, PauseMode, StepAnswer, StepDeadlines, StepOrder, UpdateAttempt,
    UpdateConfig, UpdateInput, UpdateOutcome, UpdateOutput, UpdateStep,
};
use crate::{Epoch, Safeguards, Time, Version};

/// The engine's life in these tests.
const LIFE: Option<u64> = Some(1);

fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

fn config() -> UpdateConfig {
    UpdateConfig {
        attempt: UpdateAttempt::before(1, 1),
        life: LIFE,
        workers: 2,
        old: Some(version(1)),
        new: version(2),
        paused: false,
        means: InstallMeans::Staged,
        mode: PauseMode::Abort,
        prefetch: true,
        transaction: None,
        deadlines: StepDeadlines::default(),
        retries: 1,
        safeguards: Safeguards::default(),
    }
}

/// An update under a virtual clock, whose engine does what the test says.
struct UpdateRig {
    update: EngineUpdate,
    now: Time,
    /// Steps that were ordered.
    steps: Vec<UpdateStep>,
    order: Option<StepOrder>,
    prepared: bool,
    outcome: Option<UpdateOutcome>,
}

impl UpdateRig {
    fn of(update: EngineUpdate) -> Self {
        let (steps, now) = (Vec::new(), Time(0));
        let mut rig = Self { update, now, steps, order: None, prepared: false, outcome: None };
        rig.pump();
        rig
    }

    fn new(config: UpdateConfig) -> Self {
        Self::of(EngineUpdate::new(config, Time(0)))
    }

    fn pump(&mut self) {
        self.update.validate().unwrap();
        while let Some(output) = self.update.poll_output() {
            match output {
                UpdateOutput::Run(order) => {
                    self.steps.push(order.step);
                    self.order = Some(order);
                }
                UpdateOutput::Abandon(_) => self.order = None,
                UpdateOutput::Prepared => self.prepared = true,
                UpdateOutput::Ended(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    fn give(&mut self, input: UpdateInput) {
        self.now.0 += 1_000_000;
        self.update.handle(self.now, input);
        self.pump();
    }

    /// One worker answers the present order.
    fn answer(&mut self, worker: u32, answer: StepAnswer) {
        let attempt = self.order.expect("an order").attempt;
        self.give(UpdateInput::Answered { worker, attempt, answer });
    }

    /// All workers are done, up to this step.
    fn go_to(&mut self, step: UpdateStep) {
        while self.order.is_some_and(|order| order.step != step) && self.outcome.is_none() {
            for worker in 0..2 {
                self.answer(worker, StepAnswer::Done);
            }
        }
        assert_eq!(self.order.map(|order| order.step), Some(step));
    }

    /// The present step's deadline passes.
    fn let_pass(&mut self) {
        self.now = self.update.next_timeout().expect("a deadline");
        self.update.handle_timeout(self.now);
        self.pump();
    }
}
