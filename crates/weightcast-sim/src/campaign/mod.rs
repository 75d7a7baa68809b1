//! Many worlds: a campaign plays a range of seeds; a hunt plays until a violation is found.

pub(crate) mod pinned;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use weightcast_protocol::Span;

use crate::base::workers::{cores, for_each};
use crate::report::{InvariantViolation, Report};
use crate::settings::harshness::Harshness;
use crate::settings::options::WorldOptions;
use crate::sights::coverage::{Coverage, Point};
use crate::{run, world::World};

/// One seed in this many is played twice, and both reports must be equal.
const REPEAT_EVERY: u64 = 50;

/// The result of a campaign. It depends on the seeds alone, not on the number of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CampaignSummary {
    /// Worlds played.
    pub seeds: u64,
    /// Virtual time of all worlds together.
    pub time: Span,
    /// Events of all worlds together.
    pub events: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Calls that ended, by call and end.
    pub calls: BTreeMap<String, u64>,
    /// Points of the coverage table that were reached.
    pub points: BTreeSet<Point>,
    /// The first violation of each invariant in each world, by seed.
    pub violations: Vec<(u64, InvariantViolation)>,
    /// The fingerprint of each world, by seed.
    pub fingerprints: BTreeMap<u64, u64>,
    /// Seeds played twice.
    pub repeated: u64,
    /// Seeds whose second report differed.
    pub unrepeatable: Vec<u64>,
}

impl CampaignSummary {
    /// The coverage that was reached, of what must be reached.
    pub fn coverage(&self) -> Coverage {
        Coverage::of(&self.points, &self.faults, &self.calls)
    }

    fn add_world(&mut self, options: &WorldOptions, report: Report) {
        let mut first = BTreeSet::new();
        let violations = report.violations.iter();
        let firsts = violations.filter(|violation| first.insert(violation.invariant.clone()));
        self.violations.extend(firsts.map(|violation| (report.seed, violation.clone())));
        self.add(CampaignSummary {
            seeds: 1,
            time: Span(options.fault_time.0 + options.quiet_time.0),
            events: report.events,
            faults: report.faults,
            calls: report.calls,
            points: report.points,
            fingerprints: BTreeMap::from([(report.seed, report.fingerprint)]),
            ..CampaignSummary::default()
        });
    }

    fn add(&mut self, other: CampaignSummary) {
        self.seeds += other.seeds;
        self.time = Span(self.time.0 + other.time.0);
        self.events += other.events;
        other.faults.into_iter().for_each(|(k, n)| *self.faults.entry(k).or_default() += n);
        other.calls.into_iter().for_each(|(k, n)| *self.calls.entry(k).or_default() += n);
        self.points.extend(other.points);
        self.violations.extend(other.violations);
        self.fingerprints.extend(other.fingerprints);
        self.repeated += other.repeated;
        self.unrepeatable.extend(other.unrepeatable);
    }
}

/// Plays a world for each seed, with this harshness, and calls `played` after each.
pub fn campaign(
    seeds: Range<u64>,
    harshness: Harshness,
    played: impl Fn() + Sync,
) -> CampaignSummary {
    let first = seeds.start;
    let parts = for_each(seeds, cores(), |summary: &mut CampaignSummary, seed| {
        let options = harshness.options(seed);
        let report = run(seed, &options);
        if (seed - first).is_multiple_of(REPEAT_EVERY) {
            summary.repeated += 1;
            if run(seed, &options) != report {
                summary.unrepeatable.push(seed);
            }
        }
        summary.add_world(&options, report);
        played();
        true
    });
    let mut whole = CampaignSummary::default();
    parts.into_iter().for_each(|part| whole.add(part));
    whole.violations.sort_by_key(|(seed, violation)| (*seed, violation.step));
    whole.unrepeatable.sort_unstable();
    whole
}

/// A violation that was hunted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// The world's seed.
    pub seed: u64,
    /// The violation.
    pub violation: InvariantViolation,
}

/// Plays worlds until one has a wanted violation. Returns the lowest such seed.
pub fn hunt(
    seeds: Range<u64>,
    options: impl Fn(u64) -> WorldOptions + Sync,
    wanted: impl Fn(&InvariantViolation) -> bool + Sync,
) -> Option<Catch> {
    let parts = for_each(seeds, cores(), |caught: &mut Option<Catch>, seed| {
        let report = World::new(seed, options(seed)).play_until(&wanted);
        if let Some(violation) = report.violations.into_iter().find(&wanted) {
            // A thread takes its seeds in ascending order, so its first catch is its lowest.
            caught.get_or_insert(Catch { seed, violation });
        }
        caught.is_none()
    });
    parts.into_iter().flatten().min_by_key(|catch| catch.seed)
}
