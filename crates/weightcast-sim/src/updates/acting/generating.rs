//! Engines start, sleep, wake, and generate.

use weightcast_protocol::engine_update::{
    DoubtConfig, DoubtInput, EngineDoubt, EngineGate, PauseMode, UpdateAttempt,
};
use weightcast_protocol::{Safeguard, Span};

use crate::updates::checkers::{TokenPart, UpdateFact};
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::engine::{SimEngine, SimSequence};
use crate::updates::parts::queue::{EngineLife, UpdateAsker, UpdateEvent};
use crate::updates::parts::worker::{PREFIX, SPOILED, SimWorker};
use crate::updates::world::{TICK, UpdateWorld, version};

/// Sequences that an engine generates at once.
const SEQUENCES: usize = 3;

impl UpdateWorld {
    /// An engine starts. It asks the register for the newest driver's number, so it waits for the register.
    pub(in crate::updates) fn start_engine(&mut self, engine: usize) {
        if self.register_away > self.now {
            return self.queue.plan(self.register_away, UpdateEvent::EngineStarts(engine));
        }
        let newest = self.register.newest_driver();
        let holds = self.loaded();
        let safeguards = self.options.safeguards;
        let config = DoubtConfig {
            lease: self.options.lease,
            ask_every: Span::from_millis(100),
            deadline: self.options.register_deadline,
            retries: self.options.doubt_retries,
            safeguards,
        };
        let old = &mut self.engines[engine];
        let (spoils, life) = (old.spoils, old.life + 1);
        let (next_sequence, cut_until) = (old.next_sequence + 1_000, old.cut_until);
        let waiting = std::mem::take(&mut old.waiting);
        let worker = |_| {
            let gate = EngineGate::new(life.into(), holds.map(version), newest, safeguards);
            let heard = UpdateAttempt::before(newest, 0);
            let keeps_prefix = !safeguards.on(Safeguard::PrefixesForgotten);
            SimWorker { keeps_prefix, ..SimWorker::new(gate, holds.unwrap_or(SPOILED), heard) }
        };
        self.engines[engine] = SimEngine {
            life,
            alive: true,
            workers: (0..self.options.workers).map(worker).collect(),
            doubt: self.options.fleet.then(|| EngineDoubt::new(config)),
            next_sequence,
            cut_until,
            upset_at: self.now,
            ..SimEngine::absent()
        };
        self.engines[engine].spoils = spoils;
        self.engines[engine].spoil();
        let at = self.engines[engine].at(engine);
        for worker in 0..self.options.workers {
            self.observe(&UpdateFact::Started { at, worker, newest });
        }
        self.tell(|| format!("{at:?}: starts with {holds:?}, after driver {newest}"));
        self.plan_in(TICK, UpdateEvent::Pass(at));
        self.plan_in(TICK, UpdateEvent::Notices(at));
        for (worker, from, order) in waiting {
            self.reach(UpdatePoint::OrderWaited);
            self.send_order(from, at, worker, order);
        }
    }

    /// What an engine has loaded from its disk when it starts.
    fn loaded(&mut self) -> Option<u64> {
        let committed = self.register.version().map_or(1, |version| version.number);
        match self.rng.below(4) {
            0 => None,
            1 => Some(committed),
            _ => Some(self.rng.between(1, self.published)),
        }
    }

    /// An engine gives its memory away: its sequences and caches go with it.
    pub(super) fn sleep(&mut self, at: EngineLife, span: Span) {
        let engine = &mut self.engines[at.engine];
        (engine.asleep, engine.upset_at, engine.own) = (true, self.now, None);
        engine.sequences.clear();
        let froms: Vec<UpdateAsker> = engine.workers.iter_mut().map(put_to_sleep).collect();
        for (worker, from) in froms.into_iter().enumerate() {
            self.pump_gate(at, worker as u32, from);
        }
        if let Some(doubt) = &mut self.engines[at.engine].doubt {
            doubt.handle(self.now, DoubtInput::Slept);
        }
        self.tell(|| format!("{at:?}: sleeps"));
        self.plan_in(span, UpdateEvent::EngineWakes(at));
    }

    pub(in crate::updates) fn wake(&mut self, at: EngineLife) {
        if self.lives(at) {
            let engine = &mut self.engines[at.engine];
            (engine.asleep, engine.upset_at) = (false, self.now);
            engine.workers.iter_mut().for_each(|worker| worker.gate.handle_woken());
            engine.spoil();
            self.tell(|| format!("{at:?}: wakes"));
        }
    }

    /// An engine runs a forward pass, if it may, and looks at its timers.
    pub(in crate::updates) fn pass(&mut self, at: EngineLife) {
        if !self.lives(at) {
            return;
        }
        let engine = &self.engines[at.engine];
        if engine.may_serve() && !engine.is_wedged(self.now) {
            self.generate(at);
        }
        self.notice_changes(at);
        self.engine_timers(at);
        self.plan_in(TICK, UpdateEvent::Pass(at));
    }

    fn generate(&mut self, at: EngineLife) {
        let left = self.rng.between(3, 14) as u32;
        let engine = &mut self.engines[at.engine];
        if engine.takes_sequences() && engine.sequences.len() < SEQUENCES {
            engine.sequences.insert(engine.next_sequence, SimSequence { left, own: Vec::new() });
            engine.next_sequence += 1;
        }
        let sequences: Vec<u64> = engine.sequences.keys().copied().collect();
        for sequence in sequences {
            self.token(at, sequence);
        }
    }

    fn token(&mut self, at: EngineLife, sequence: u64) {
        let engine = &mut self.engines[at.engine];
        let parts: Vec<TokenPart> =
            engine.workers.iter_mut().map(|worker| part(worker, sequence)).collect();
        let weights = parts[0].weights;
        let entry = engine.sequences.get_mut(&sequence).expect("it was just listed");
        let before = entry.own.last().copied();
        entry.own.extend(weights);
        entry.left -= 1;
        let own = entry.own.clone();
        if entry.left == 0 {
            engine.sequences.remove(&sequence);
            engine.workers.iter_mut().for_each(|worker| drop(worker.caches.remove(&sequence)));
        }
        self.report.tokens += 1;
        let mixed = self.options.mode == PauseMode::Keep { mixed: true };
        if before.is_some() && before != weights {
            let kept = parts[0].cache.len() > 1;
            let point = if kept { UpdatePoint::MixedSequence } else { UpdatePoint::Recomputed };
            self.reach(point);
        }
        let fleet = self.options.fleet;
        self.observe(&UpdateFact::Token {
            engine: at.engine,
            parts: &parts,
            own: &own,
            fleet,
            mixed,
        });
    }
}

/// Whose order the worker was obeying.
fn put_to_sleep(worker: &mut SimWorker) -> UpdateAsker {
    let from = worker.tasks.last().map_or(UpdateAsker::Driver(0), |task| task.from);
    worker.tasks.clear();
    worker.caches.clear();
    worker.staged = [SPOILED; crate::updates::parts::worker::CHUNKS];
    worker.intact = false;
    worker.gate.handle_slept();
    from
}

/// A worker's part of a token: adds to the caches of the sequence and of the prompt.
fn part(worker: &mut SimWorker, sequence: u64) -> TokenPart {
    let weights = worker.version();
    worker.intact = weights.is_some();
    let own = weights.unwrap_or(SPOILED);
    let prefix = worker.caches.entry(PREFIX).or_insert_with(|| vec![own]).clone();
    let cache = worker.caches.entry(sequence).or_insert(prefix);
    if !cache.contains(&own) {
        cache.push(own);
    }
    let cache = cache.clone();
    TokenPart { weights, stamp: worker.gate.stamp().map(|version| version.number), cache }
}
