//! Many worlds of pushes, and the hunt for a violation.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::workers::{cores, for_each};
use crate::campaign::Catch;
use crate::pushes::coverage::PushPoint;
use crate::pushes::options::PushOptions;
use crate::pushes::report::PushWorldReport;
use crate::pushes::world::PushWorld;
use crate::report::InvariantViolation;

/// One seed in this many is played twice, and both reports must be equal.
const REPEAT_EVERY: u64 = 50;

/// What came of many worlds of pushes. It depends on the seeds alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushCampaign {
    /// Worlds played.
    pub seeds: u64,
    /// Events of all worlds together.
    pub events: u64,
    /// Writes that were let in, of all worlds together.
    pub writes: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How pushes ended, at each of their targets.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How often each point of the coverage table was reached.
    pub points: BTreeMap<PushPoint, u64>,
    /// The first violation of each world, by seed.
    pub violations: Vec<(u64, InvariantViolation)>,
    /// Seeds played twice.
    pub repeated: u64,
    /// Seeds whose second report differed.
    pub unrepeatable: Vec<u64>,
}

impl PushCampaign {
    /// Points of the coverage table that no world has reached.
    pub fn missed(&self) -> Vec<&'static str> {
        let missed = |point: &&PushPoint| !self.points.contains_key(point);
        PushPoint::ALL.iter().filter(missed).map(|point| point.name()).collect()
    }

    fn add_world(&mut self, report: PushWorldReport) {
        let seed = report.seed;
        self.seeds += 1;
        self.events += report.events;
        self.writes += report.writes;
        report.faults.into_iter().for_each(|(k, n)| *self.faults.entry(k).or_default() += n);
        report.outcomes.into_iter().for_each(|(k, n)| *self.outcomes.entry(k).or_default() += n);
        report.points.into_iter().for_each(|(k, n)| *self.points.entry(k).or_default() += n);
        self.violations.extend(report.violations.into_iter().next().map(|first| (seed, first)));
    }

    fn add(&mut self, other: PushCampaign) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.writes += other.writes;
        other.faults.into_iter().for_each(|(k, n)| *self.faults.entry(k).or_default() += n);
        other.outcomes.into_iter().for_each(|(k, n)| *self.outcomes.entry(k).or_default() += n);
        other.points.into_iter().for_each(|(k, n)| *self.points.entry(k).or_default() += n);
        self.violations.extend(other.violations);
        self.repeated += other.repeated;
        self.unrepeatable.extend(other.unrepeatable);
    }
}

/// Plays a world of pushes for each seed, and calls `played` after each.
pub fn campaign_of_pushes(seeds: Range<u64>, played: impl Fn() + Sync) -> PushCampaign {
    let first = seeds.start;
    let play = |seed| PushWorld::new(seed, PushOptions::drawn(seed)).play(|_| false, false);
    let parts = for_each(seeds, cores(), |campaign: &mut PushCampaign, seed| {
        let report = play(seed);
        if (seed - first).is_multiple_of(REPEAT_EVERY) {
            campaign.repeated += 1;
            if play(seed) != report {
                campaign.unrepeatable.push(seed);
            }
        }
        campaign.add_world(report);
        played();
        true
    });
    let mut whole = PushCampaign::default();
    parts.into_iter().for_each(|part| whole.add(part));
    whole.violations.sort_by_key(|(seed, _)| *seed);
    whole.unrepeatable.sort_unstable();
    whole
}

/// Plays worlds of pushes until one has a wanted violation. Returns the lowest such seed.
pub fn hunt_pushes(
    seeds: Range<u64>,
    options: impl Fn(u64) -> PushOptions + Sync,
    wanted: impl Fn(&InvariantViolation) -> bool + Sync,
) -> Option<Catch> {
    let parts = for_each(seeds, cores(), |caught: &mut Option<Catch>, seed| {
        let report = PushWorld::new(seed, options(seed)).play(&wanted, false);
        if let Some(violation) = report.violations.into_iter().find(&wanted) {
            caught.get_or_insert(Catch { seed, violation });
        }
        caught.is_none()
    });
    parts.into_iter().flatten().min_by_key(|catch| catch.seed)
}
