//! A worker of an engine: its gate, its memory, and the step that it takes.

use std::collections::BTreeMap;

use weightcast_protocol::Time;
use weightcast_protocol::engine_update::{
    EngineGate, InstallMeans, StepFailure, StepOrder, UpdateAttempt, UpdateStep,
};

use crate::updates::parts::queue::UpdateAsker;

/// Chunks of a worker's parameters; each has the number of the version that its bytes are of.
pub(crate) const CHUNKS: usize = 4;
/// What a chunk has whose bytes are of no version.
pub(crate) const SPOILED: u64 = u64::MAX;
/// The cache of the prompt that all sequences begin with.
pub(crate) const PREFIX: u64 = 0;

/// A step that a worker is taking.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerTask {
    pub(crate) order: StepOrder,
    /// Changes made so far.
    pub(crate) made: usize,
    /// Who gave the order.
    pub(crate) from: UpdateAsker,
    pub(crate) since: Time,
}

/// A worker of an engine.
#[derive(Debug)]
pub(crate) struct SimWorker {
    pub(crate) gate: EngineGate,
    pub(crate) chunks: [u64; CHUNKS],
    /// What post-processing made from the chunks.
    pub(crate) derived: u64,
    pub(crate) staged: [u64; CHUNKS],
    /// Versions that each sequence's cache was computed with.
    pub(crate) caches: BTreeMap<u64, Vec<u64>>,
    /// Steps that are being taken: the newest one, and those that a fence has yet to end.
    pub(crate) tasks: Vec<WorkerTask>,
    /// The newest order that has arrived here, as the world saw it.
    pub(crate) heard: UpdateAttempt,
    pub(crate) wedged_until: Time,
    pub(crate) slow_until: Time,
    /// The next install writes a wrong bit.
    pub(crate) flips: bool,
    /// The next fetch brings a wrong bit, after it has compared digests.
    pub(crate) spoils_staging: bool,
    /// The parameters were written in this life.
    pub(crate) written: bool,
    /// The parameters are those that the last token came from: no step has begun since that writes or compares them, and the
    /// memory was not given away.
    pub(crate) intact: bool,
    /// How often the worker has said what it serves, and what it said last.
    pub(crate) notices: u64,
    pub(crate) noticed: Option<Option<u64>>,
    /// Something is missing: the prompt's cache outlives updates.
    pub(crate) keeps_prefix: bool,
}

impl SimWorker {
    pub(crate) fn new(gate: EngineGate, version: u64, heard: UpdateAttempt) -> Self {
        Self {
            gate,
            chunks: [version; CHUNKS],
            derived: version,
            staged: [SPOILED; CHUNKS],
            caches: BTreeMap::new(),
            tasks: Vec::new(),
            heard,
            wedged_until: Time(0),
            slow_until: Time(0),
            flips: false,
            spoils_staging: false,
            written: false,
            intact: false,
            notices: 0,
            noticed: None,
            keeps_prefix: false,
        }
    }

    /// The version that all parameters are of, if they are of one.
    pub(crate) fn version(&self) -> Option<u64> {
        let first = self.derived;
        let whole = self.chunks.iter().all(|chunk| *chunk == first) && first != SPOILED;
        whole.then_some(first)
    }

    /// Begins a step.
    pub(crate) fn take(&mut self, order: StepOrder, from: UpdateAsker, since: Time) {
        let in_place = order.means == InstallMeans::InPlace;
        let harmless = match order.step {
            UpdateStep::Begin | UpdateStep::Fetch => !in_place,
            UpdateStep::Install | UpdateStep::PostProcess | UpdateStep::Verify => false,
            _ => true,
        };
        self.intact &= harmless;
        self.tasks.push(WorkerTask { order, made: 0, from, since });
    }

    /// How many changes a step makes.
    pub(crate) fn changes(order: &StepOrder) -> usize {
        match order.step {
            UpdateStep::Fetch | UpdateStep::Install => CHUNKS,
            _ => 1,
        }
    }

    /// Makes one change.
    pub(crate) fn change(&mut self, order: &StepOrder, at: usize) -> Result<(), StepFailure> {
        let version = order.version.number;
        match (order.step, order.means) {
            (UpdateStep::Fetch, InstallMeans::Staged) => {
                let spoils = at + 1 == CHUNKS && std::mem::take(&mut self.spoils_staging);
                self.staged[at] = if spoils { SPOILED } else { version };
            }
            (UpdateStep::Fetch, InstallMeans::InPlace) => self.write(at, version),
            (UpdateStep::Install, _) => self.write(at, self.staged[at]),
            (UpdateStep::PostProcess, _) => {
                let first = self.chunks[0];
                let whole = self.chunks.iter().all(|chunk| *chunk == first);
                self.derived = if whole { first } else { SPOILED };
                self.written = true;
            }
            (UpdateStep::Verify, _) if self.version() != Some(version) => {
                return Err(StepFailure::Digest);
            }
            (UpdateStep::Invalidate, _) if !order.keep_caches => self.caches.clear(),
            (UpdateStep::Invalidate, _) if !self.keeps_prefix => drop(self.caches.remove(&PREFIX)),
            (UpdateStep::Discard, _) => self.staged = [SPOILED; CHUNKS],
            _ => {}
        }
        Ok(())
    }

    fn write(&mut self, at: usize, version: u64) {
        let flipped = std::mem::take(&mut self.flips);
        self.chunks[at] = if flipped { SPOILED } else { version };
        self.written = true;
    }
}
