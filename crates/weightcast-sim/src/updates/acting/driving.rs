//! Drivers: their timers, what they hear, and what their machines want.

use weightcast_protocol::engine_update::{
    FleetInput, FleetOutput, FleetTransaction, FleetVerdict, StepAnswer, StepOrder, UpdateAttempt,
    UpdateInput, UpdateOutput, UpdateStep,
};
use weightcast_protocol::{Span, Time};

use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::driver::{DriverWork, GivenOrder, SimDriver};
use crate::updates::parts::queue::{EngineLife, UpdateAsker, UpdateEvent};
use crate::updates::world::{TICK, UpdateWorld};

/// How often orders and questions are sent again.
const AGAIN: Span = Span::from_millis(100);

impl UpdateWorld {
    pub(in crate::updates) fn start_driver(&mut self) {
        self.drivers.push(SimDriver::new(self.now));
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
        for driven in self.drivers[driver].updates.values_mut() {
            driven.update.handle_timeout(now);
        }
        if let DriverWork::Fleet(fleet) = &mut self.drivers[driver].work
            && fleet.next_timeout().is_some_and(|due| due <= now)
        {
            fleet.handle_timeout(now);
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

    /// Hands an input to the machine of an engine.
    pub(super) fn give(&mut self, driver: usize, engine: u32, input: UpdateInput) {
        let now = self.now;
        let driver = &mut self.drivers[driver];
        match &mut driver.work {
            DriverWork::Fleet(fleet) => fleet.handle(now, FleetInput::Engine { engine, input }),
            _ => {
                let driven = driver.updates.get_mut(&engine);
                driven.into_iter().for_each(|driven| driven.update.handle(now, input));
            }
        }
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
        if let DriverWork::Settles(transaction) = self.drivers[driver].work {
            let number = self.drivers[driver].version;
            self.ask(UpdateAsker::Driver(driver), transaction, FleetVerdict::Abort, number);
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
        self.give(driver, number, UpdateInput::Answered { worker, attempt, answer });
        self.pump(driver);
    }

    pub(super) fn driver_decided(
        &mut self,
        driver: usize,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
        number: u64,
    ) {
        if !self.drivers[driver].alive || self.drivers[driver].suspended_until > self.now {
            return;
        }
        let now = self.now;
        match &mut self.drivers[driver].work {
            DriverWork::Fleet(fleet) => {
                fleet.handle(now, FleetInput::Decided { transaction, verdict });
            }
            DriverWork::Settles(asked) if *asked == transaction => {
                self.settle_fleet(driver, transaction, verdict, number);
            }
            _ => {}
        }
        self.pump(driver);
    }

    /// Does what a driver's machines want.
    pub(super) fn pump(&mut self, driver: usize) {
        loop {
            let valid = match &self.drivers[driver].work {
                DriverWork::Fleet(fleet) => fleet.validate(),
                _ => Ok(()),
            };
            self.validated(valid);
            let DriverWork::Fleet(fleet) = &mut self.drivers[driver].work else { break };
            let Some(output) = fleet.poll_output() else { break };
            self.obey_fleet(driver, output);
        }
        let engines: Vec<u32> = self.drivers[driver].updates.keys().copied().collect();
        for engine in engines {
            while let Some(output) = self.next_output(driver, engine) {
                match output {
                    UpdateOutput::Run(order) => self.run_order(driver, engine, order),
                    UpdateOutput::Abandon(order) => self.abandon(driver, engine, order),
                    UpdateOutput::Prepared => {}
                    UpdateOutput::Ended(outcome) => self.update_ended(driver, engine, &outcome),
                }
            }
        }
    }

    fn next_output(&mut self, driver: usize, engine: u32) -> Option<UpdateOutput> {
        let driven = self.drivers[driver].updates.get_mut(&engine)?;
        let valid = driven.update.validate();
        let output = driven.update.poll_output();
        self.validated(valid);
        output
    }

    fn obey_fleet(&mut self, driver: usize, output: FleetOutput) {
        match output {
            FleetOutput::Run { engine, order } => self.run_order(driver, engine, order),
            FleetOutput::Abandon { engine, order } => self.abandon(driver, engine, order),
            FleetOutput::Decide { transaction, verdict } => {
                let number = self.drivers[driver].version;
                if verdict == FleetVerdict::Commit {
                    self.meet_doom();
                }
                self.ask(UpdateAsker::Driver(driver), transaction, verdict, number);
            }
            FleetOutput::Ended(result) => self.fleet_ended(driver, &result),
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
