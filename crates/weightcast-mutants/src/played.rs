//! A mutant of any kind of world, as the command line plays it.

use std::ops::Range;

use weightcast_sim::Catch;

use crate::list::{MUTANTS, Mutant, PUSH_MUTANTS, PushMutant, UPDATE_MUTANTS, UpdateMutant};

/// A mutant, with the kind of world in which it shows.
#[derive(Clone, Copy, Debug)]
pub enum PlayedMutant {
    /// Shows in a cluster.
    Cluster(&'static Mutant),
    /// Shows in a world of engine updates.
    Update(&'static UpdateMutant),
    /// Shows in a world of pushes.
    Push(&'static PushMutant),
}

impl PlayedMutant {
    /// Every mutant.
    pub fn all() -> impl Iterator<Item = PlayedMutant> {
        let clusters = MUTANTS.iter().map(PlayedMutant::Cluster);
        let updates = UPDATE_MUTANTS.iter().map(PlayedMutant::Update);
        clusters.chain(updates).chain(PUSH_MUTANTS.iter().map(PlayedMutant::Push))
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<PlayedMutant> {
        Self::all().find(|mutant| mutant.name() == name)
    }

    /// As the command line has it.
    pub fn name(&self) -> &'static str {
        match self {
            PlayedMutant::Cluster(mutant) => mutant.name,
            PlayedMutant::Update(mutant) => mutant.name,
            PlayedMutant::Push(mutant) => mutant.name,
        }
    }

    /// What is switched off.
    pub fn what(&self) -> &'static str {
        match self {
            PlayedMutant::Cluster(mutant) => mutant.what,
            PlayedMutant::Update(mutant) => mutant.what,
            PlayedMutant::Push(mutant) => mutant.what,
        }
    }

    /// The invariants whose checkers must find it; one is enough.
    pub fn found_by(&self) -> &'static [&'static str] {
        match self {
            PlayedMutant::Cluster(mutant) => mutant.found_by,
            PlayedMutant::Update(mutant) => mutant.found_by,
            PlayedMutant::Push(mutant) => mutant.found_by,
        }
    }

    /// Plays worlds until one of the checkers that must find it does: the lowest such seed.
    pub fn hunt(&self, seeds: Range<u64>) -> Option<Catch> {
        match self {
            PlayedMutant::Cluster(mutant) => crate::hunt(mutant, seeds),
            PlayedMutant::Update(mutant) => weightcast_sim::hunt_updates(
                seeds,
                |seed| mutant.options(seed),
                |found| mutant.expects(found),
            ),
            PlayedMutant::Push(mutant) => weightcast_sim::hunt_pushes(
                seeds,
                |seed| mutant.options(seed),
                |found| mutant.expects(found),
            ),
        }
    }
}
