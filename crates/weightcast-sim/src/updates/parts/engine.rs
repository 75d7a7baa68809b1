//! An inference engine: its workers, its sequences, and what it does without a driver.

use std::collections::BTreeMap;

use weightcast_protocol::engine_update::{
    EngineDoubt, EngineReport, EngineUpdate, PauseMode, StepOrder, UpdateAttempt, UpdateStep,
};
use weightcast_protocol::{Span, Time};

use crate::updates::parts::queue::{EngineLife, UpdateAsker};
use crate::updates::parts::worker::{SPOILED, SimWorker, WorkerTask};

/// A sequence that is being generated.
#[derive(Clone, Debug)]
pub(crate) struct SimSequence {
    pub(crate) left: u32,
    /// The versions of its tokens.
    pub(crate) own: Vec<u64>,
}

/// An inference engine.
#[derive(Debug)]
pub(crate) struct SimEngine {
    pub(crate) life: u32,
    pub(crate) alive: bool,
    /// When the platform knows that the engine is dead.
    pub(crate) dead_known: Time,
    pub(crate) asleep: bool,
    pub(crate) workers: Vec<SimWorker>,
    pub(crate) sequences: BTreeMap<u64, SimSequence>,
    pub(crate) next_sequence: u64,
    pub(crate) doubt: Option<EngineDoubt>,
    /// What the engine does by itself.
    pub(crate) own: Option<EngineUpdate>,
    pub(crate) own_since: Time,
    pub(crate) own_attempt: UpdateAttempt,
    /// Drivers do not reach it until then.
    pub(crate) cut_until: Time,
    pub(crate) doubts_since: Option<Time>,
    /// Orders that wait for the engine's address, by worker.
    pub(crate) waiting: Vec<(u32, UpdateAsker, StepOrder)>,
    /// Has wrong weights when it wakes, or is started.
    pub(crate) spoils: bool,
    /// Sleeps for so long once it has been resumed, before anybody knows.
    pub(crate) dozes: Option<Span>,
    /// When it last died, started, slept or woke.
    pub(crate) upset_at: Time,
}

impl SimEngine {
    /// An engine that has not started yet.
    pub(crate) fn absent() -> Self {
        Self {
            life: 0,
            alive: false,
            dead_known: Time(0),
            asleep: false,
            workers: Vec::new(),
            sequences: BTreeMap::new(),
            next_sequence: 1,
            doubt: None,
            own: None,
            own_since: Time(0),
            own_attempt: UpdateAttempt::default(),
            cut_until: Time(0),
            doubts_since: None,
            waiting: Vec::new(),
            spoils: false,
            dozes: None,
            upset_at: Time(0),
        }
    }

    /// The version that all parameters of all workers are of, if they are of one.
    pub(crate) fn version(&self) -> Option<u64> {
        let first = self.workers.first()?.version()?;
        self.workers.iter().all(|worker| worker.version() == Some(first)).then_some(first)
    }

    /// What the engine says of itself.
    pub(crate) fn report(&self) -> EngineReport {
        let reports: Vec<_> = self.workers.iter().map(|worker| worker.gate.report()).collect();
        EngineReport::of_all(&reports)
    }

    /// Whether all workers may serve.
    pub(crate) fn may_serve(&self) -> bool {
        self.alive && self.workers.iter().all(|worker| worker.gate.may_serve())
    }

    /// Whether what was staged is of one version.
    pub(crate) fn can_install(&self) -> bool {
        self.workers.iter().all(|worker| !worker.staged.contains(&SPOILED))
    }

    /// The step of a driver that a worker still takes, within its deadline.
    pub(crate) fn takes(&self, now: Time) -> Option<UpdateStep> {
        let in_time = |worker: &SimWorker, task: &WorkerTask| {
            let driven = matches!(task.from, UpdateAsker::Driver(_));
            let newest = task.order.attempt == worker.heard;
            driven && newest && task.since + task.order.deadline > now
        };
        let of = |worker: &SimWorker| {
            worker.tasks.iter().find(|task| in_time(worker, task)).map(|task| task.order.step)
        };
        self.workers.iter().find_map(of)
    }

    /// Whether a worker stands still.
    pub(crate) fn is_wedged(&self, now: Time) -> bool {
        self.workers.iter().any(|worker| worker.wedged_until > now)
    }

    /// Whether new sequences may begin: not while one worker waits for all sequences to end.
    pub(crate) fn takes_sequences(&self) -> bool {
        let pauses = |task: &WorkerTask| task.order.step == UpdateStep::Pause;
        let pausing = |worker: &SimWorker| worker.tasks.iter().any(pauses);
        !self.workers.iter().any(pausing)
    }

    /// The sequences' part of a pause. False: not yet.
    pub(crate) fn pauses(&mut self, mode: PauseMode) -> bool {
        match mode {
            PauseMode::Abort => self.sequences.clear(),
            PauseMode::Wait => return self.sequences.is_empty() || !self.may_serve(),
            PauseMode::Keep { .. } => {}
        }
        true
    }

    /// One chunk of one worker's weights is not what it should be, if it is time for that.
    pub(crate) fn spoil(&mut self) {
        if std::mem::take(&mut self.spoils)
            && let Some(worker) = self.workers.last_mut()
        {
            worker.chunks[0] = SPOILED;
        }
    }

    pub(crate) fn at(&self, engine: usize) -> EngineLife {
        EngineLife { engine, life: self.life }
    }
}
