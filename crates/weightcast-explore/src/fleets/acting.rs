//! What becomes of a step.

use weightcast_protocol::engine_update::{
    DriverEnd, DriverInput, DriverOutput, EngineGate, FleetAnswer, FleetEnd, FleetQuestion,
    FleetRegister, FleetVerdict, GateOutput, LOADED, StepFailure, StepOrder, UpdateInput,
    UpdateStep,
};

use super::FleetBounds;
use super::world::{FleetEngineState, FleetWire, FleetWorld, TORN};
use crate::hashed::Hashed;

impl FleetWorld {
    /// An order or a question arrives.
    pub(super) fn arrive(&mut self, wire: FleetWire) {
        match wire {
            FleetWire::Order { from, engine, order } => {
                self.engines[engine].change(|it| it.gate.handle_order(order));
                self.obey_gate(engine, from);
            }
            FleetWire::Question { from, question } => {
                let answer = self.register.change(|register| register.answer(question));
                self.note_verdict(question, answer);
                if self.drivers[from].alive {
                    let input = DriverInput::Register { asked: question, answer };
                    self.give(from, input);
                }
            }
        }
    }

    fn note_verdict(&mut self, question: FleetQuestion, answer: FleetAnswer) {
        let FleetQuestion::Verdict { transaction, version, .. } = question else { return };
        let Some(verdict) = answer.verdict else { return };
        if self.verdicts.insert(transaction, verdict) == Some(verdict) {
            return;
        }
        if verdict == FleetVerdict::Commit {
            self.committed.insert(version.number);
            if self.ended.get(&transaction) == Some(&FleetEnd::Aborted) {
                self.breaks("E5", || {
                    format!("{transaction:?} is committed, and was ended as aborted")
                });
            }
        }
    }

    /// Hands an input to a driver.
    pub(super) fn give(&mut self, driver: usize, input: DriverInput) {
        self.drivers[driver].change(|it| it.machine.handle(it.now, input));
        self.obey_driver(driver);
    }

    /// A driver's next timer goes off.
    pub(super) fn time_out(&mut self, driver: usize) {
        self.drivers[driver].change(|it| {
            it.now = it.machine.next_timeout().expect("it has a timer");
            it.machine.handle_timeout(it.now);
        });
        self.obey_driver(driver);
    }

    /// Does what a driver's machine wants.
    pub(super) fn obey_driver(&mut self, driver: usize) {
        loop {
            let valid = self.drivers[driver].machine.validate();
            self.validated(valid);
            let output = self.drivers[driver].change(|it| it.machine.poll_output());
            match output {
                None => return,
                Some(DriverOutput::Run { engine, order }) => {
                    self.send(FleetWire::Order { from: driver, engine: engine as usize, order });
                }
                Some(DriverOutput::Ask(question)) => {
                    self.send(FleetWire::Question { from: driver, question });
                }
                Some(DriverOutput::Fleet { transaction, result, .. }) => {
                    let own = self.drivers[driver].machine.number() == Some(transaction.driver);
                    self.shows.recovered_commit |= !own && result.end == FleetEnd::Committed;
                    self.shows.recovered_abort |= !own && result.end == FleetEnd::Aborted;
                    self.shows.in_doubt |= result.end == FleetEnd::InDoubt;
                    self.ended.insert(transaction, result.end);
                    self.check_end(transaction, result.end);
                }
                Some(DriverOutput::Ended(DriverEnd::Superseded)) => self.shows.superseded = true,
                Some(
                    DriverOutput::Abandon { .. }
                    | DriverOutput::Apart { .. }
                    | DriverOutput::Ended(_),
                ) => {}
            }
        }
    }

    /// Does what an engine's gate wants; what it answers reaches whoever has given the order, if that driver lives.
    fn obey_gate(&mut self, engine: usize, from: usize) {
        loop {
            let valid = self.engines[engine].gate.validate();
            self.validated(valid);
            match self.engines[engine].change(|it| it.gate.poll_output()) {
                None => return,
                Some(GateOutput::Perform(order)) if order.step == UpdateStep::Install => {
                    self.engines[engine].change(|it| it.installs.push((order, from, false)));
                }
                Some(GateOutput::Perform(order)) => {
                    self.engines[engine].change(|it| it.perform(&order));
                }
                Some(GateOutput::Answer { attempt, answer }) if self.drivers[from].alive => {
                    let input = UpdateInput::Answered { worker: 0, attempt, answer };
                    self.give(from, DriverInput::Engine { engine: engine as u32, input });
                }
                Some(GateOutput::Answer { .. }) => {}
            }
        }
    }

    /// An engine makes the next change of an install, unless a fence is in the way.
    pub(super) fn install(&mut self, engine: usize) {
        let (order, from, begun) = self.engines[engine].installs[0];
        let goes_on = self.engines[engine].gate.may_act(order.attempt);
        self.engines[engine].change(|it| {
            if !goes_on {
                it.installs.remove(0);
            } else if begun {
                it.installs.remove(0);
                it.weights = it.staged.unwrap_or(TORN);
                it.gate.handle_performed(order.attempt, Ok(()));
            } else {
                it.installs[0].2 = true;
                it.weights = TORN;
            }
        });
        self.obey_gate(engine, from);
    }

    /// An engine dies.
    pub(super) fn kill(&mut self, engine: usize) {
        self.engines[engine].change(|it| {
            it.alive = false;
            it.installs.clear();
            it.known_by.clear();
        });
    }

    /// A dead engine is started again, with what it loads.
    pub(super) fn start_engine(&mut self, engine: usize, bounds: &FleetBounds) {
        let newest = self.register.newest_driver();
        let life = self.engines[engine].life + 1;
        let gate = EngineGate::new(life, Some(LOADED), newest, bounds.safeguards);
        self.engines[engine] = Hashed::new(FleetEngineState::new(life, gate));
    }

    /// A driver learns that an engine is dead.
    pub(super) fn tell_of_death(&mut self, driver: usize, engine: usize) {
        self.engines[engine].change(|it| it.known_by.insert(driver));
        self.give(driver, DriverInput::Engine { engine: engine as u32, input: UpdateInput::Lost });
    }

    /// A driver dies.
    pub(super) fn end_driver(&mut self, driver: usize) {
        self.drivers[driver].change(|it| it.alive = false);
    }

    /// The register is lost, and the next one knows nothing.
    pub(super) fn lose_register(&mut self, bounds: &FleetBounds) {
        self.register_lives += 1;
        let register = FleetRegister::new(self.register_lives, bounds.safeguards);
        self.register = Hashed::new(register);
    }
}

impl FleetEngineState {
    /// Takes a step of one change.
    fn perform(&mut self, order: &StepOrder) {
        let mut done = Ok(());
        match order.step {
            UpdateStep::Fetch => self.staged = Some(order.version.number),
            UpdateStep::Verify if self.weights != order.version.number => {
                done = Err(StepFailure::Digest);
            }
            UpdateStep::Discard => self.staged = None,
            _ => {}
        }
        self.gate.handle_performed(order.attempt, done);
    }
}
