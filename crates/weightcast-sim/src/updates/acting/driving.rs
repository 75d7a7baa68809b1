//! Drivers: their timers, what they hear, and what their machines want.

use weightcast_protocol::engine_update::{
    DriverInput, DriverOutput, EngineReport, FleetAnswer, FleetQuestion, FleetVerdict, StepAnswer,
    StepOrder, UpdateAttempt, UpdateInput, UpdateStep,
};
use weightcast_protocol::{Span, Time};

use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::driver::{GivenOrder, SimDriver};
use crate::updates::parts::queue::{EngineLife, UpdateAsker, UpdateEvent};
use crate::updates::world::{TICK, UpdateWorld};

/// How often orders and questions are sent again.
const AGAIN: Span = Span::from_millis(100);

impl UpdateWorld {
    pub(in crate::updates) fn start_driver(&mut self) {
        let config = self.driver_config();
        self.drivers.push(SimDriver::new(config, self.now));
        let driver = self.drivers.len() - 1;
        self.plan_in(TICK, UpdateEvent::Tick(driver));
    }

    pub(in crate::updates) fn end_driver(&mut self, driver: usize) {
        self.drivers[driver].alive = false;
        self.tell(|| format!("driver {driver}: dies"));
    }

    /// A driver looks at its timers, at the dead, and at what is to be done.
    pub(in crate::updates) fn tick(&mut self, driver: usize) {
        let SimDriver { alive, suspended_until, .. } = self.drivers[driver];
        if !alive {
            return;
        }
        if suspended_until > self.now {
            return self.queue.plan(suspended_until, UpdateEvent::Tick(driver));
        }
        self.notice_the_dead(driver);
        let now = self.now;
        let machine = &mut self.drivers[driver].machine;
        if machine.next_timeout().is_some_and(|due| due <= now) {
            machine.handle_timeout(now);
        }
        self.pump(driver);
        self.send_again(driver);
        self.plan_work(driver);
        self.pump(driver);
        self.plan_in(TICK, UpdateEvent::Tick(driver));
    }

    /// The platform has told that an engine is dead. That another life of it has begun, the engine says itself.
    fn notice_the_dead(&mut self, driver: usize) {
        let known: Vec<u32> = self.drivers[driver].lives.keys().copied().collect();
        for number in known {
            let engine = &self.engines[number as usize];
            if !engine.alive && engine.dead_known <= self.now {
                self.drivers[driver].lives.remove(&number);
                self.drivers[driver].orders.remove(&number);
                self.give(driver, number, UpdateInput::Lost);
            }
        }
    }

    /// Hands an input to the driver's machine.
    pub(super) fn give(&mut self, driver: usize, engine: u32, input: UpdateInput) {
        let now = self.now;
        self.drivers[driver].machine.handle(now, DriverInput::Engine { engine, input });
    }

    fn send_again(&mut self, driver: usize) {
        if self.drivers[driver].resend_at > self.now {
            return;
        }
        self.drivers[driver].resend_at = self.now + AGAIN;
        let (now, patience) = (self.now, self.options.patience);
        let orders = self.drivers[driver].orders.values();
        let orders = orders.filter(|given| given.since + patience <= now);
        let again: Vec<(EngineLife, StepOrder, u32)> = orders
            .flat_map(|given| given.waiting.iter().map(|worker| (given.to, given.order, *worker)))
            .collect();
        for (at, order, worker) in again {
            self.send_order(UpdateAsker::Driver(driver), at, worker, order);
        }
    }

    pub(super) fn driver_answered(
        &mut self,
        driver: usize,
        from: EngineLife,
        worker: u32,
        attempt: UpdateAttempt,
        answer: StepAnswer,
        sent: Time,
    ) {
        let SimDriver { alive, suspended_until, .. } = self.drivers[driver];
        if !alive || suspended_until > self.now {
            return;
        }
        let number = from.engine as u32;
        let current = match self.drivers[driver].orders.get_mut(&number) {
            Some(given) if given.order.attempt == attempt => {
                if given.waiting.remove(&worker) {
                    given.told = given.told.min(sent);
                }
                true
            }
            _ => false,
        };
        if !current {
            self.reach(UpdatePoint::LateAnswer);
        }
        if let StepAnswer::Inspected(EngineReport { life: Some(life), .. }) = answer {
            self.drivers[driver].lives.insert(number, life as u32);
        }
        self.give(driver, number, UpdateInput::Answered { worker, attempt, answer });
        self.pump(driver);
    }

    /// The register has answered a driver.
    pub(super) fn driver_told(&mut self, driver: usize, asked: FleetQuestion, answer: FleetAnswer) {
        if !self.drivers[driver].alive || self.drivers[driver].suspended_until > self.now {
            return;
        }
        let now = self.now;
        self.drivers[driver].machine.handle(now, DriverInput::Register { asked, answer });
        self.pump(driver);
    }

    /// Does what a driver's machine wants.
    pub(super) fn pump(&mut self, driver: usize) {
        loop {
            let valid = self.drivers[driver].machine.validate();
            self.validated(valid);
            self.note_bound(driver);
            let Some(output) = self.drivers[driver].machine.poll_output() else { return };
            match output {
                DriverOutput::Run { engine, order } => self.run_order(driver, engine, order),
                DriverOutput::Abandon { engine, order } => self.abandon(driver, engine, order),
                DriverOutput::Ask(question) => {
                    let commits = FleetVerdict::Commit;
                    if matches!(question, FleetQuestion::Verdict { wanted, .. } if wanted == commits)
                    {
                        self.meet_doom(driver);
                    }
                    self.ask(UpdateAsker::Driver(driver), question);
                }
                DriverOutput::Fleet { transaction, version, result } => {
                    self.fleet_ended(driver, transaction, version, &result);
                }
                DriverOutput::Apart { engine, outcome } => {
                    self.update_ended(driver, engine, &outcome);
                }
                DriverOutput::Ended(end) => self.driver_ended(driver, &end),
            }
        }
    }

    fn run_order(&mut self, driver: usize, engine: u32, order: StepOrder) {
        let Some(life) = self.drivers[driver].lives.get(&engine).copied() else { return };
        let at = EngineLife { engine: engine as usize, life };
        if order.step == UpdateStep::Install && !self.drivers[driver].installs.insert(engine) {
            self.reach(UpdatePoint::InstalledAgain);
        }
        let workers = (0..self.options.workers).collect();
        let given =
            GivenOrder { to: at, order, waiting: workers, since: self.now, told: Time(u64::MAX) };
        self.drivers[driver].orders.insert(engine, given);
        self.drivers[driver].last.insert(engine, order.attempt);
        for worker in 0..self.options.workers {
            self.send_order(UpdateAsker::Driver(driver), at, worker, order);
        }
    }

    fn abandon(&mut self, driver: usize, engine: u32, order: StepOrder) {
        self.reach(UpdatePoint::DeadlinePassed);
        let orders = &mut self.drivers[driver].orders;
        if orders.get(&engine).is_some_and(|given| given.order.attempt == order.attempt) {
            orders.remove(&engine);
        }
    }
}
