//! What an engine does by itself, when its driver is silent.

use weightcast_protocol::Span;
use weightcast_protocol::engine_update::{
    DoubtInput, DoubtOutput, FleetQuestion, FleetTransaction, FleetVerdict, StepAnswer,
    UpdateAttempt, UpdateConfig, UpdateInput, UpdateOutput, settle_engine,
};

use crate::updates::checkers::UpdateFact;
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::queue::{EngineLife, UpdateAsker};
use crate::updates::world::{UpdateWorld, version};

impl UpdateWorld {
    /// The doubt and the own machine of an engine look at the time; an order of its own is given again.
    pub(super) fn engine_timers(&mut self, at: EngineLife) {
        let now = self.now;
        let engine = &mut self.engines[at.engine];
        if let Some(doubt) = &mut engine.doubt
            && doubt.next_timeout().is_some_and(|due| due <= now)
        {
            doubt.handle_timeout(now);
        }
        self.pump_doubt(at);
        if let Some(own) = &mut self.engines[at.engine].own {
            own.handle_timeout(now);
        }
        self.pump_own(at);
    }

    pub(super) fn pump_doubt(&mut self, at: EngineLife) {
        while let Some(output) =
            self.engines[at.engine].doubt.as_mut().and_then(|doubt| doubt.poll_output())
        {
            let offered = self.engines[at.engine].report().offered;
            let offered = offered.map_or(0, |version| version.number);
            match output {
                DoubtOutput::Ask { transaction } => {
                    self.reach(UpdatePoint::EngineAsked);
                    if let Some(step) = self.engines[at.engine].takes(self.now) {
                        self.observe(&UpdateFact::DoubtsEarly { engine: at.engine, step });
                    }
                    let (wanted, version) = (FleetVerdict::Abort, version(offered));
                    let question = FleetQuestion::Verdict { transaction, wanted, version };
                    self.ask(UpdateAsker::Engine(at), question);
                }
                DoubtOutput::Go { transaction, verdict } => self.go(at, transaction, verdict),
                DoubtOutput::Leave { .. } => {
                    self.reach(UpdatePoint::LeftFleet);
                    self.tell(|| format!("{at:?}: leaves the fleet"));
                }
            }
        }
        let engine = &mut self.engines[at.engine];
        let doubts = engine.doubt.as_ref().is_some_and(|doubt| doubt.in_doubt().is_some());
        let since = engine.doubts_since.unwrap_or(self.now);
        engine.doubts_since = doubts.then_some(since);
    }

    pub(super) fn engine_decided(
        &mut self,
        at: EngineLife,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
    ) {
        if self.lives(at) {
            let now = self.now;
            if let Some(doubt) = &mut self.engines[at.engine].doubt {
                doubt.handle(now, DoubtInput::Decided { transaction, verdict });
            }
            self.pump_doubt(at);
        }
    }

    /// An engine does what the verdict says.
    fn go(&mut self, at: EngineLife, transaction: FleetTransaction, verdict: FleetVerdict) {
        let engine = &mut self.engines[at.engine];
        let report = engine.report();
        let (offered, now) = (report.offered.map_or(0, |version| version.number), self.now);
        let attempt = UpdateAttempt { by_itself: true, ..report.seen };
        let config = self.engine_config(attempt, offered);
        let (transaction, life) = (Some(transaction), report.life);
        let config = UpdateConfig { transaction, life, old: report.old, ..config };
        let engine = &mut self.engines[at.engine];
        engine.own_attempt = UpdateAttempt { number: u64::MAX, ..attempt };
        (engine.own, engine.own_since) = (Some(settle_engine(config, &report, verdict, now)), now);
        self.tell(|| format!("{at:?}: goes on by itself: {verdict:?}"));
        self.pump_own(at);
    }

    fn pump_own(&mut self, at: EngineLife) {
        while let Some(output) =
            self.engines[at.engine].own.as_mut().and_then(|own| own.poll_output())
        {
            match output {
                UpdateOutput::Run(order) => {
                    for worker in 0..self.options.workers {
                        self.send_order(UpdateAsker::Engine(at), at, worker, order);
                    }
                }
                UpdateOutput::Abandon(_) | UpdateOutput::Prepared => {}
                UpdateOutput::Ended(outcome) => {
                    if outcome.serving && outcome.is_new() {
                        self.reach(UpdatePoint::ForwardByItself);
                    } else if outcome.serving {
                        self.reach(UpdatePoint::BackByItself);
                    }
                    self.tell(|| format!("{at:?}: by itself: {outcome:?}"));
                    self.own_ended(at, &outcome);
                    self.engines[at.engine].own = None;
                    self.went(at, outcome.serving);
                }
            }
        }
    }

    /// What an engine did by itself is over.
    fn went(&mut self, at: EngineLife, serving: bool) {
        if !serving {
            self.reach(UpdatePoint::FailedByItself);
        }
        if let Some(doubt) = &mut self.engines[at.engine].doubt {
            doubt.handle(self.now, DoubtInput::Went { serving });
        }
        self.pump_doubt(at);
    }

    /// No driver has come for a while, and nothing has failed: whoever could go on by itself must have done so.
    pub(in crate::updates) fn look_at_the_abandoned(&mut self) {
        for number in 0..self.engines.len() {
            let engine = &self.engines[number];
            let report = engine.report();
            let Some(transaction) = report.transaction.filter(|_| engine.alive && !report.serving)
            else {
                continue;
            };
            let left = engine.doubt.as_ref().is_some_and(|doubt| doubt.has_left());
            let able = match self.register.verdict(transaction) {
                Some(FleetVerdict::Commit) => {
                    let staged = report.staged == report.offered && engine.can_install();
                    staged || report.ready == report.offered
                }
                _ => report.old.is_some() && report.ready == report.old,
            };
            if able && !left && report.paused {
                self.observe(&UpdateFact::Abandoned { engine: number, transaction });
            }
        }
    }

    pub(super) fn own_answered(
        &mut self,
        at: EngineLife,
        worker: u32,
        attempt: UpdateAttempt,
        answer: StepAnswer,
    ) {
        if self.lives(at) {
            let now = self.now;
            if let Some(own) = &mut self.engines[at.engine].own {
                own.handle(now, UpdateInput::Answered { worker, attempt, answer });
            }
            self.pump_own(at);
        }
    }

    /// What the updates of a world have in common.
    pub(super) fn engine_config(&self, attempt: UpdateAttempt, number: u64) -> UpdateConfig {
        let options = &self.options;
        UpdateConfig {
            attempt,
            life: None,
            workers: options.workers,
            old: None,
            new: version(number),
            paused: false,
            means: options.means,
            mode: options.mode,
            prefetch: options.prefetch,
            transaction: None,
            deadlines: options.deadlines,
            retries: options.retries,
            safeguards: options.safeguards,
        }
    }

    /// How long an engine may be in doubt.
    pub(super) fn doubt_bound(&self) -> Span {
        Span(self.options.register_deadline.0 + Span::from_millis(500).0)
    }
}
