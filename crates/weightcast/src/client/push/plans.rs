//! The plans of a push, with their parcels: each is the plan of a pull between the same layouts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weightcast_plan::{Layout, Plan, Run};
use weightcast_protocol::{ContentDigest, Sum};
use weightcast_transport::Digest;

use super::parcels::{Parcel, fingerprint, parcels};
use crate::client::memory::registration::RegisteredShard;
use crate::error::Error;
use crate::limits::PUSH_PLANS;

/// One plan, to one shard of a target.
pub(super) struct PushPlan {
    /// The target's shard; at others than the target without its memory.
    pub(super) target: Arc<RegisteredShard>,
    pub(super) parcels: Vec<Parcel>,
    pub(super) fingerprint: u64,
    /// Cells of tied weights' further names.
    pub(super) echoes: Vec<Run>,
}

/// What a plan was made for: the layouts of the target's replica, which of them, and those of the source.
type PushPlanKey = (Vec<ContentDigest>, u32, Vec<ContentDigest>);

/// Plans to targets that others registered, the newest last.
#[derive(Default)]
pub(super) struct PushPlans(Mutex<VecDeque<(PushPlanKey, Arc<PushPlan>)>>);

impl PushPlan {
    pub(super) fn new(target: Arc<RegisteredShard>, plan: &Plan) -> Self {
        let parcels = parcels(plan);
        let (fingerprint, echoes) = (fingerprint(&parcels), plan.echoes.clone());
        Self { target, parcels, fingerprint, echoes }
    }

    /// One number for digests of bytes of these cells, wherever the bytes are.
    pub(super) fn sum(&self, digests: &[Digest]) -> Sum {
        self.target.fold(digests).held
    }

    /// The digests of a parcel's bytes, by cell, as the target's memory is now. Anything once it is not wanted.
    pub(super) fn digests(
        &self,
        parcel: &Parcel,
        threads: usize,
        wanted: impl Fn() -> bool + Sync,
    ) -> Vec<Digest> {
        let runs: Vec<Run> = parcel.copies.iter().map(weightcast_plan::Copy::landed).collect();
        self.target.digest_runs_on(&runs, self.target.cells.len(), threads, wanted)
    }
}

impl PushPlans {
    /// The plan to shard `shard` of a replica with these layouts.
    ///
    /// # Errors
    /// The layouts are of no replica; or one cannot be filled from the other.
    pub(super) fn get(
        &self,
        of: PushPlanKey,
        layouts: &[Arc<Layout>],
        sources: &[Arc<Layout>],
    ) -> Result<Arc<PushPlan>, Error> {
        let mut known = self.0.lock().expect("no panic while planning");
        if let Some((_, plan)) = known.iter().find(|(other, _)| *other == of) {
            return Ok(Arc::clone(plan));
        }
        if of.1 as usize >= layouts.len() {
            return Err(Error::misuse("a word of a push names a shard that its replica lacks"));
        }
        let target = Arc::new(RegisteredShard::new(layouts, of.1 as usize, Vec::new())?);
        let sources: Vec<&Layout> = sources.iter().map(Arc::as_ref).collect();
        let plan = weightcast_plan::plan(&target.layout, &target.cells, &sources)?;
        let made = Arc::new(PushPlan::new(target, &plan));
        if known.len() == PUSH_PLANS {
            known.pop_front();
        }
        known.push_back((of, Arc::clone(&made)));
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
