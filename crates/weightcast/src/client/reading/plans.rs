//! Plans that were made, kept in memory and, where asked for, in files.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weightcast_plan::stored::PlanName;
use weightcast_plan::{Layout, Plan, PlanComparison};
use weightcast_protocol::ContentDigest;
use weightcast_protocol::message::ReadFailure;

use super::plan_files::PlanFiles;
use crate::client::memory::registration::RegisteredShard;
use crate::limits::CACHED_PLANS;

/// What a plan was made for: the digests of the sources' manifests, and the number of the one source that it is of, if it
/// is of one alone.
type SourceLayouts = (Vec<ContentDigest>, Option<usize>);

/// The plans for what is registered, the newest last.
pub(in crate::client) struct Plans {
    known: Mutex<KnownPlans>,
    files: Option<PlanFiles>,
}

/// Where a plan came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanFrom {
    /// No plan was needed: nothing was read.
    #[default]
    Nowhere,
    /// The plan was made for this read.
    Planner,
    /// Planned before, by this handle.
    Memory,
    /// Planned before, by the handle that left it in
    /// [`Options::plan_cache`](crate::Options::plan_cache).
    File,
}

impl PlanFrom {
    /// The origin in one word; an empty text for [`PlanFrom::Nowhere`].
    pub fn name(self) -> &'static str {
        match self {
            PlanFrom::Nowhere => "",
            PlanFrom::Planner => "planner",
            PlanFrom::Memory => "memory",
            PlanFrom::File => "file",
        }
    }
}

impl Plans {
    pub(in crate::client) fn new(files: Option<PlanFiles>) -> Self {
        Self { known: Mutex::default(), files }
    }

    /// The plan for a source with the layouts of these names, whether it is read from or writes: remembered,
    /// read, or made and then kept. Helpers, whose layouts may follow, have the same. With `only`, of the source shard of
    /// this number alone, which holds all that is registered.
    pub(in crate::client) fn get(
        &self,
        registration: &RegisteredShard,
        names: &[ContentDigest],
        sources: &[Arc<Layout>],
        only: Option<usize>,
    ) -> Result<(Arc<Plan>, PlanFrom), ReadFailure> {
        let mut known = self.known.lock().expect("no panic while planning");
        let of = only.map_or(0..names.len(), |shard| shard..shard + 1);
        let made_for = (names[of.clone()].to_vec(), only);
        if let Some(plan) = remembered(&known, &made_for) {
            return Ok((plan, PlanFrom::Memory));
        }
        let sources: Vec<&Layout> = sources[of.clone()].iter().map(Arc::as_ref).collect();
        let (mut plan, from) = self.find(registration, &made_for.0, &sources)?;
        plan.copies.iter_mut().for_each(|copy| copy.source += of.start as u32);
        Ok((remember(&mut known, made_for, plan), from))
    }

    /// Whose digests tell what of the copies of a plan from these sources: worked out once for each plan.
    pub(in crate::client) fn comparison(
        &self,
        plan: &Arc<Plan>,
        registration: &RegisteredShard,
        sources: &[Arc<Layout>],
    ) -> Arc<PlanComparison> {
        let mut known = self.known.lock().expect("no panic while planning");
        let mut kept = known.iter_mut().find(|known| Arc::ptr_eq(&known.plan, plan));
        if let Some(comparison) = kept.as_ref().and_then(|known| known.comparison.as_ref()) {
            return Arc::clone(comparison);
        }
        let sources: Vec<&Layout> = sources.iter().map(Arc::as_ref).collect();
        let (target, cells) = (&registration.layout, &registration.cells);
        let comparison = Arc::new(PlanComparison::new(plan, target, cells, &sources));
        if let Some(known) = &mut kept {
            known.comparison = Some(Arc::clone(&comparison));
        }
        comparison
    }

    /// Loads a plan that is not in memory, or makes and stores it.
    fn find(
        &self,
        registration: &RegisteredShard,
        names: &[ContentDigest],
        sources: &[&Layout],
    ) -> Result<(Plan, PlanFrom), ReadFailure> {
        let (target, cells) = (&registration.layout, &registration.cells);
        let Some(files) = &self.files else {
            return Ok((planned(registration, sources)?, PlanFrom::Planner));
        };
        let name = PlanName::new(target, cells, names.iter().map(|name| name.0));
        if let Some(plan) = files.load(&name, target, cells, sources) {
            return Ok((plan, PlanFrom::File));
        }
        let plan = planned(registration, sources)?;
        files.save(&name, &plan);
        Ok((plan, PlanFrom::Planner))
    }

    /// Forgets all plans but those in files: the registered layout has changed.
    pub(in crate::client) fn forget(&self) {
        self.known.lock().expect("no panic while planning").clear();
    }
}

/// The newest last.
type KnownPlans = VecDeque<KnownPlan>;

/// A plan, by what it was made for.
struct KnownPlan {
    made_for: SourceLayouts,
    plan: Arc<Plan>,
    /// Once a read has asked for it.
    comparison: Option<Arc<PlanComparison>>,
}

fn remembered(known: &KnownPlans, made_for: &SourceLayouts) -> Option<Arc<Plan>> {
    let known = known.iter().find(|known| known.made_for == *made_for)?;
    Some(Arc::clone(&known.plan))
}

fn remember(known: &mut KnownPlans, made_for: SourceLayouts, plan: Plan) -> Arc<Plan> {
    if known.len() == CACHED_PLANS {
        known.pop_front();
    }
    let plan = Arc::new(plan);
    known.push_back(KnownPlan { made_for, plan: Arc::clone(&plan), comparison: None });
    plan
}

/// A new plan, from these sources to what is registered.
fn planned(registration: &RegisteredShard, sources: &[&Layout]) -> Result<Plan, ReadFailure> {
    weightcast_plan::plan(&registration.layout, &registration.cells, sources)
        .map_err(|error| ReadFailure::Layout { detail: error.to_string() })
}
