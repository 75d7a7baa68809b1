//! A worker hears an order, takes a step, and answers.

use weightcast_protocol::Span;
use weightcast_protocol::engine_update::{
    DoubtInput, GateOutput, StepAnswer, StepFailure, StepOrder, UpdateAttempt, UpdateStep,
};

use crate::updates::checkers::UpdateFact;
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::queue::{EngineLife, UpdateAsker, UpdateEvent};
use crate::updates::parts::worker::{SimWorker, WorkerTask};
use crate::updates::world::UpdateWorld;

impl UpdateWorld {
    /// Whether this life of an engine still lasts.
    pub(super) fn lives(&self, at: EngineLife) -> bool {
        let engine = &self.engines[at.engine];
        engine.alive && engine.life == at.life
    }

    fn worker(&mut self, at: EngineLife, worker: u32) -> &mut SimWorker {
        &mut self.engines[at.engine].workers[worker as usize]
    }

    /// An order arrives. A driver's arrives at whichever life of the engine is there, or waits for the next one.
    pub(in crate::updates) fn hear_order(
        &mut self,
        to: EngineLife,
        worker: u32,
        from: UpdateAsker,
        order: StepOrder,
    ) {
        let to = match from {
            UpdateAsker::Driver(_) => self.engines[to.engine].at(to.engine),
            UpdateAsker::Engine(_) => to,
        };
        if !self.lives(to) {
            return self.engines[to.engine].waiting.push((worker, from, order));
        }
        let attempt = order.attempt;
        if order.life.is_none_or(|life| life == u64::from(to.life)) {
            self.observe(&UpdateFact::Heard { at: to, worker, attempt });
            let heard = &mut self.worker(to, worker).heard;
            *heard = (*heard).max(attempt);
        }
        self.worker(to, worker).gate.handle_order(order);
        self.pump_gate(to, worker, from);
        self.heard(to, worker, from, attempt);
    }

    /// An order was heard, or its step has ended.
    fn heard(&mut self, at: EngineLife, worker: u32, from: UpdateAsker, attempt: UpdateAttempt) {
        let obeyed = self.worker(at, worker).gate.report().seen == attempt;
        if matches!(from, UpdateAsker::Driver(_)) && obeyed {
            self.heard_driver(at);
        }
    }

    /// The engine knows that its driver lives.
    fn heard_driver(&mut self, at: EngineLife) {
        let now = self.now;
        let engine = &mut self.engines[at.engine];
        let report = engine.report();
        let paused_in = report.transaction.filter(|_| report.paused);
        let busy = engine.workers.iter().map(|worker| worker.gate.busy()).max().unwrap_or_default();
        if let Some(doubt) = &mut engine.doubt {
            doubt.handle(now, DoubtInput::Heard { paused_in, busy });
        }
        self.pump_doubt(at);
    }

    /// Does what a gate wants.
    pub(super) fn pump_gate(&mut self, at: EngineLife, worker: u32, from: UpdateAsker) {
        let valid = self.worker(at, worker).gate.validate();
        self.validated(valid);
        while let Some(output) = self.worker(at, worker).gate.poll_output() {
            match output {
                GateOutput::Perform(order) => {
                    self.tell(|| format!("{at:?}/{worker}: {} of {}", order.step, order.attempt));
                    let since = self.now;
                    self.worker(at, worker).take(order, from, since);
                    let attempt = order.attempt;
                    let pace = self.pace(at, worker, order.step);
                    self.plan_in(pace, UpdateEvent::Change { at, worker, attempt });
                }
                GateOutput::Answer { attempt, answer } => {
                    if answer == StepAnswer::Failed(StepFailure::Fenced) {
                        self.reach(UpdatePoint::OrderFenced);
                    }
                    self.send_answer(from, at, worker, attempt, answer);
                }
            }
        }
    }

    /// How long a worker takes for one change.
    fn pace(&mut self, at: EngineLife, worker: u32, step: UpdateStep) -> Span {
        let slow_until = self.worker(at, worker).slow_until;
        let slow = slow_until > self.now;
        let usual = self.rng.between(1, 20);
        let usual = if step == UpdateStep::Install { usual * self.options.install } else { usual };
        Span::from_millis(if slow { usual * 12 } else { usual })
    }

    pub(in crate::updates) fn change(
        &mut self,
        at: EngineLife,
        worker: u32,
        attempt: UpdateAttempt,
    ) {
        if !self.lives(at) {
            return;
        }
        let wedged = self.worker(at, worker).wedged_until;
        if wedged > self.now {
            return self.queue.plan(wedged, UpdateEvent::Change { at, worker, attempt });
        }
        let of_attempt = |task: &WorkerTask| task.order.attempt == attempt;
        let Some(place) = self.worker(at, worker).tasks.iter().position(of_attempt) else { return };
        if !self.worker(at, worker).gate.may_act(attempt) {
            self.worker(at, worker).tasks.remove(place);
            return self.reach(UpdatePoint::StepFenced);
        }
        let task = self.worker(at, worker).tasks[place];
        match self.step(at, worker, &task) {
            None => {
                self.plan_in(Span::from_millis(30), UpdateEvent::Change { at, worker, attempt })
            }
            Some(Ok(())) if task.made + 1 < SimWorker::changes(&task.order) => {
                self.worker(at, worker).tasks[place].made += 1;
                let pace = self.pace(at, worker, task.order.step);
                self.plan_in(pace, UpdateEvent::Change { at, worker, attempt });
            }
            Some(result) => {
                self.worker(at, worker).tasks.remove(place);
                self.worker(at, worker).gate.handle_performed(attempt, result);
                self.pump_gate(at, worker, task.from);
                self.heard(at, worker, task.from, attempt);
                if task.order.step == UpdateStep::Resume
                    && let Some(span) = self.engines[at.engine].dozes.take()
                {
                    self.sleep(at, span);
                }
            }
        }
    }

    /// Makes one change of a step. None: it has to wait for sequences.
    fn step(
        &mut self,
        at: EngineLife,
        worker: u32,
        task: &WorkerTask,
    ) -> Option<Result<(), StepFailure>> {
        let WorkerTask { order, made, .. } = *task;
        if order.step == UpdateStep::Pause && !self.engines[at.engine].pauses(self.options.mode) {
            return None;
        }
        let failing = if self.calm { 0 } else { self.options.failing };
        if made == 0 && self.rng.chance(failing) {
            return Some(Err(match order.step {
                UpdateStep::Negotiate => StepFailure::Layouts,
                UpdateStep::Fetch if self.rng.chance(500) => StepFailure::Digest,
                UpdateStep::Fetch => StepFailure::Source,
                _ => StepFailure::Engine,
            }));
        }
        let result = self.worker(at, worker).change(&order, made);
        self.observe(&UpdateFact::Changed { at, worker, order: &order });
        if result == Err(StepFailure::Digest) {
            let written = self.worker(at, worker).written;
            self.reach(if written {
                UpdatePoint::DifferenceFound
            } else {
                UpdatePoint::SpoiledFound
            });
        }
        Some(result)
    }
}
