//! Messages: orders, answers, and words with the register.

use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, FleetRegister, FleetTransaction, FleetVerdict, StepAnswer,
    StepOrder, UpdateAttempt,
};
use weightcast_protocol::{Span, Time, Version};

use crate::updates::checkers::UpdateFact;
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::queue::{AnswerKey, EngineLife, StepOrderKey, UpdateAsker, UpdateEvent};
use crate::updates::world::UpdateWorld;

impl UpdateWorld {
    /// How long a message takes; none if it is lost. What an engine does by itself crosses no wire.
    fn delay(&mut self, of: UpdateAsker, engine: usize) -> Option<Span> {
        let (far, until) = match of {
            UpdateAsker::Engine(_) => (false, Time(0)),
            UpdateAsker::Driver(driver) => (true, self.drivers[driver].cut_until),
        };
        let until = until.max(self.engines[engine].cut_until);
        if far && (until > self.now || self.is_lost()) {
            return None;
        }
        let most = if far { self.options.delay.0 / 1_000 } else { 1_000 };
        Some(Span(self.rng.between(500, most.max(500)) * 1_000))
    }

    pub(super) fn is_lost(&mut self) -> bool {
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

    /// Asks the register.
    pub(super) fn ask(&mut self, from: UpdateAsker, question: FleetQuestion) {
        if self.register_away > self.now || self.is_lost() {
            return;
        }
        let most = self.options.delay.0 / 1_000;
        let delay = Span(self.rng.between(500, most.max(500)) * 1_000);
        let delay = Span(delay.0 + (self.register_slow - self.now).0);
        self.plan_in(delay, UpdateEvent::Ask { from, question });
    }

    pub(in crate::updates) fn ask_register(&mut self, from: UpdateAsker, question: FleetQuestion) {
        if self.register_away > self.now {
            return;
        }
        let before = self.register.clone();
        let answer = self.register.answer(question);
        if let FleetQuestion::Verdict { transaction, wanted, version } = question {
            self.note_verdict(&before, (transaction, wanted, version), answer.verdict);
        }
        self.tell(|| format!("register: {question:?} of {from:?}: {answer:?}"));
        if !self.is_lost() {
            let most = self.options.delay.0 / 1_000;
            let delay = Span(self.rng.between(500, most.max(500)) * 1_000);
            self.plan_in(delay, UpdateEvent::Told { to: from, asked: question, answer });
        }
    }

    fn note_verdict(
        &mut self,
        before: &FleetRegister,
        (transaction, wanted, version): (FleetTransaction, FleetVerdict, Version),
        verdict: Option<FleetVerdict>,
    ) {
        let first = before.verdict(transaction).is_none();
        match verdict {
            Some(FleetVerdict::Commit) if first => {
                self.observe(&UpdateFact::Committed { version: version.number });
                if Some(version) < before.version() {
                    self.reach(UpdatePoint::RolledBack);
                }
            }
            Some(verdict) if first && verdict != wanted => self.reach(UpdatePoint::CommitTooLate),
            Some(_) => {}
            None => self.reach(UpdatePoint::VerdictLost),
        }
    }

    pub(in crate::updates) fn hear_register(
        &mut self,
        to: UpdateAsker,
        asked: FleetQuestion,
        answer: FleetAnswer,
    ) {
        match to {
            UpdateAsker::Driver(driver) => self.driver_told(driver, asked, answer),
            UpdateAsker::Engine(at) => {
                if let FleetQuestion::Verdict { transaction, .. } = asked
                    && let Some(verdict) = answer.verdict
                {
                    self.engine_decided(at, transaction, verdict);
                }
            }
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
