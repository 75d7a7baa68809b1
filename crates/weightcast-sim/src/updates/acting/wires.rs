//! Messages: orders, answers, and words with the register.

use weightcast_protocol::engine_update::{
    FleetTransaction, FleetVerdict, StepAnswer, StepOrder, UpdateAttempt,
};
use weightcast_protocol::{Span, Time};

use crate::updates::checkers::UpdateFact;
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::queue::{AnswerKey, EngineLife, StepOrderKey, UpdateAsker, UpdateEvent};
use crate::updates::world::{UpdateWorld, version};

impl UpdateWorld {
    /// How long a message takes; none if it is lost. What an engine does by itself crosses no wire.
    fn delay(&mut self, of: UpdateAsker, engine: usize) -> Option<Span> {
        let far = match of {
            UpdateAsker::Engine(_) => false,
            UpdateAsker::Driver(_) => true,
        };
        if far && (self.engines[engine].cut_until > self.now || self.is_lost()) {
            return None;
        }
        let most = if far { self.options.delay.0 / 1_000 } else { 1_000 };
        Some(Span(self.rng.between(500, most.max(500)) * 1_000))
    }

    fn is_lost(&mut self) -> bool {
        let lost = self.options.lost;
        self.rng.chance(lost)
    }

    pub(super) fn send_order(
        &mut self,
        from: UpdateAsker,
        to: EngineLife,
        worker: u32,
        order: StepOrder,
    ) {
        let twice = 1 + u64::from(self.is_lost());
        for _ in 0..twice {
            if let Some(delay) = self.delay(from, to.engine) {
                let order = Box::new(StepOrderKey(order));
                self.plan_in(delay, UpdateEvent::Order { to, worker, from, order });
            }
        }
    }

    pub(super) fn send_answer(
        &mut self,
        to: UpdateAsker,
        from: EngineLife,
        worker: u32,
        attempt: UpdateAttempt,
        answer: StepAnswer,
    ) {
        if let Some(delay) = self.delay(to, from.engine) {
            let (answer, sent) = (Box::new(AnswerKey(answer)), self.now);
            self.plan_in(delay, UpdateEvent::Answer { to, from, worker, attempt, answer, sent });
        }
    }

    /// Asks the register; `number` is the version that the update is about.
    pub(super) fn ask(
        &mut self,
        from: UpdateAsker,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
        number: u64,
    ) {
        if self.register_away > self.now || self.is_lost() {
            return;
        }
        let most = self.options.delay.0 / 1_000;
        let delay = Span(self.rng.between(500, most.max(500)) * 1_000);
        let delay = Span(delay.0 + (self.register_slow - self.now).0);
        self.plan_in(delay, UpdateEvent::Ask { from, transaction, verdict, number });
    }

    pub(in crate::updates) fn ask_register(
        &mut self,
        from: UpdateAsker,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
        number: u64,
    ) {
        if self.register_away > self.now {
            return;
        }
        let before = self.register.verdict(transaction);
        let (wanted, held) = (verdict, self.register.version());
        let verdict = self.register.decide(transaction, wanted, version(number));
        if verdict == FleetVerdict::Commit && before != Some(verdict) {
            self.observe(&UpdateFact::Committed { version: number });
            if Some(version(number)) < held {
                self.reach(UpdatePoint::RolledBack);
            }
        }
        if before.is_none() && verdict != wanted {
            self.reach(UpdatePoint::CommitTooLate);
        }
        self.tell(|| format!("register: {transaction:?} is {verdict:?} for {from:?}"));
        if !self.is_lost() {
            let most = self.options.delay.0 / 1_000;
            let delay = Span(self.rng.between(500, most.max(500)) * 1_000);
            self.plan_in(delay, UpdateEvent::Decided { to: from, transaction, verdict, number });
        }
    }

    pub(in crate::updates) fn hear_verdict(
        &mut self,
        to: UpdateAsker,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
        number: u64,
    ) {
        match to {
            UpdateAsker::Driver(driver) => {
                self.driver_decided(driver, transaction, verdict, number)
            }
            UpdateAsker::Engine(at) => self.engine_decided(at, transaction, verdict),
        }
    }

    pub(in crate::updates) fn hear_answer(
        &mut self,
        to: UpdateAsker,
        from: EngineLife,
        worker: u32,
        attempt: UpdateAttempt,
        answer: StepAnswer,
        sent: Time,
    ) {
        match to {
            UpdateAsker::Driver(driver) => {
                self.driver_answered(driver, from, worker, attempt, answer, sent)
            }
            UpdateAsker::Engine(at) if at == from => self.own_answered(at, worker, attempt, answer),
            UpdateAsker::Engine(_) => {}
        }
    }
}
