//! Routing leases: to which engines of a fleet a router may send requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{ROUTED_ENGINES, ROUTED_WORKERS};
use crate::{Safeguard, Safeguards, Span, Time, Version};

/// What one worker of an engine says to the table: again within a lease, and at once when it changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServingNotice {
    /// The engine, as routers know it: its address.
    pub engine: String,
    /// The engine's life: the same at all of its workers, another one whenever the engine starts.
    pub life: u64,
    /// The worker, from 0.
    pub worker: u32,
    /// How many workers the engine has.
    pub workers: u32,
    /// Grows with each notice of this worker in this life: a notice that was late has no effect.
    pub count: u64,
    /// The version that the worker serves now. `None`: it stands still, sleeps, or has no whole version.
    pub serves: Option<Version>,
}

/// What a table is told or asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RoutingQuestion {
    /// A worker says what it serves.
    Serves(ServingNotice),
    /// A router asks for all engines.
    Engines,
}

/// What a table says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingAnswer {
    /// How long a notice counts from its arrival on.
    pub lease: Span,
    /// To `Engines`: all engines of which a lease runs, in order of their names.
    pub engines: Vec<RoutingLease>,
}

/// One engine of a fleet, as a router sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutingLease {
    /// The engine, as it calls itself.
    pub engine: String,
    /// The engine's life.
    pub life: u64,
    /// Whether requests may be sent there.
    pub state: RoutingState,
    /// The version that all of its workers serve, if they do.
    pub version: Option<Version>,
    /// How long this is so without another notice.
    pub left: Span,
}

/// Whether requests may be sent to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoutingState {
    /// Yes: all of its workers serve the fleet's version.
    Admitted,
    /// All of its workers serve one version, which is not the fleet's.
    Behind,
    /// A worker serves nothing, or workers serve several versions: the engine starts, takes a new version in, or sleeps.
    Standing,
    /// Not all workers have said what they serve.
    Joining,
}

impl RoutingState {
    /// The state's name, for people and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Behind => "behind",
            Self::Standing => "standing",
            Self::Joining => "joining",
        }
    }
}

/// Why a table does not take a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RoutingError {
    /// The table is full.
    #[error("{limit} engines have a routing lease already; use one model name for each fleet")]
    Full {
        /// Engines that a table has at most.
        limit: usize,
    },
    /// The notice contradicts itself.
    #[error(
        "worker {worker} of {workers} does not exist; an engine has 1 to {ROUTED_WORKERS} workers"
    )]
    NoSuchWorker {
        /// The worker.
        worker: u32,
        /// How many the engine is said to have.
        workers: u32,
    },
}

/// Which engines of a fleet serve what.
///
/// An engine is admitted while every worker of one life says that it serves the fleet's version. What a worker has said
/// counts for a lease: who dies, or is cut off, is forgotten by its end. A table is lost with its server; workers tell the
/// next one within a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoutingTable {
    lease: Span,
    engines: BTreeMap<String, RoutedEngine>,
    safeguards: Safeguards,
}

/// An engine's present life.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RoutedEngine {
    life: u64,
    /// The life before, whose late notices have no effect.
    former: Option<u64>,
    workers: u32,
    told: BTreeMap<u32, LastNotice>,
}

/// What a worker has said last.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct LastNotice {
    count: u64,
    serves: Option<Version>,
    until: Time,
}

impl RoutingTable {
    /// A table that knows nobody. What a worker says counts for `lease`.
    pub fn new(lease: Span, safeguards: Safeguards) -> Self {
        Self { lease, engines: BTreeMap::new(), safeguards }
    }

    /// Answers a question; `fleet` is the version that the fleet is to serve, if the register knows.
    ///
    /// # Errors
    /// The notice was not taken.
    pub fn answer(
        &mut self,
        now: Time,
        fleet: Option<Version>,
        question: RoutingQuestion,
    ) -> Result<RoutingAnswer, RoutingError> {
        let engines = match question {
            RoutingQuestion::Serves(notice) => {
                self.hear(now, notice)?;
                Vec::new()
            }
            RoutingQuestion::Engines => self.engines(now, fleet),
        };
        Ok(RoutingAnswer { lease: self.lease, engines })
    }

    /// A worker says what it serves.
    ///
    /// # Errors
    /// The table is full, or the notice contradicts itself. Nothing was changed.
    pub fn hear(&mut self, now: Time, notice: ServingNotice) -> Result<(), RoutingError> {
        let ServingNotice { engine, life, worker, workers, count, serves } = notice;
        if worker >= workers || workers > ROUTED_WORKERS {
            return Err(RoutingError::NoSuchWorker { worker, workers });
        }
        self.forget(now);
        if !self.engines.contains_key(&engine) && self.engines.len() >= ROUTED_ENGINES {
            return Err(RoutingError::Full { limit: ROUTED_ENGINES });
        }
        let told = LastNotice { count, serves, until: now + self.lease };
        let known = self.engines.entry(engine).or_insert_with(|| RoutedEngine::new(life, workers));
        known.hear(life, workers, worker, told, self.safeguards);
        Ok(())
    }

    /// All engines of which a lease runs. Where the register does not know the fleet's version, the newest one counts that
    /// all workers of an engine serve.
    pub fn engines(&self, now: Time, fleet: Option<Version>) -> Vec<RoutingLease> {
        let of =
            |(name, engine): (&String, &RoutedEngine)| engine.lease(name, now, self.safeguards);
        let mut engines: Vec<RoutingLease> = self.engines.iter().filter_map(of).collect();
        let fleet = fleet.or_else(|| engines.iter().filter_map(|lease| lease.version).max());
        let any = !self.safeguards.on(Safeguard::FleetVersionRouted);
        for lease in &mut engines {
            if lease.version.is_some() {
                let admitted = lease.version == fleet || any;
                lease.state = if admitted { RoutingState::Admitted } else { RoutingState::Behind };
            }
        }
        engines
    }

    /// Forgets what nobody has said within a lease.
    fn forget(&mut self, now: Time) {
        if !self.safeguards.on(Safeguard::RoutingLapses) {
            return;
        }
        self.engines.retain(|_, engine| {
            engine.told.retain(|_, told| now < told.until);
            !engine.told.is_empty()
        });
    }
}

impl RoutedEngine {
    fn new(life: u64, workers: u32) -> Self {
        Self { life, former: None, workers, told: BTreeMap::new() }
    }

    fn hear(
        &mut self,
        life: u64,
        workers: u32,
        worker: u32,
        told: LastNotice,
        safeguards: Safeguards,
    ) {
        let one_life = safeguards.on(Safeguard::RoutedOneLife);
        if self.former == Some(life) && one_life {
            return;
        }
        if self.life != life {
            let before = std::mem::replace(self, Self::new(life, workers));
            self.former = Some(before.life);
            if !one_life {
                self.told = before.told;
            }
        }
        self.workers = workers;
        if self.told.get(&worker).is_none_or(|last| last.count < told.count) {
            self.told.insert(worker, told);
        }
    }

    /// `None`: no lease runs. An engine that serves a version is `Behind` here: the table knows better.
    fn lease(&self, engine: &str, now: Time, safeguards: Safeguards) -> Option<RoutingLease> {
        let (all, lapses) =
            (safeguards.on(Safeguard::AllWorkersServe), safeguards.on(Safeguard::RoutingLapses));
        let runs = |told: &&LastNotice| now < told.until || !lapses;
        let running: Vec<&LastNotice> = self.told.values().filter(runs).collect();
        let first = running.first()?;
        let complete = running.len() == self.workers as usize || !all;
        let agreed = running.iter().all(|told| told.serves == first.serves) || !all;
        let version = first.serves.filter(|_| complete && agreed);
        let left = running.iter().map(|told| told.until - now).min()?;
        let state = match (version, complete) {
            (Some(_), _) => RoutingState::Behind,
            (None, true) => RoutingState::Standing,
            (None, false) => RoutingState::Joining,
        };
        Some(RoutingLease { engine: engine.to_owned(), life: self.life, state, version, left })
    }
}
