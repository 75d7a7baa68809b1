//! The search itself, breadth first.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::invariants::Broken;
use crate::story;

/// A small world that can be explored.
pub trait ExploredWorld: Model<State: Clone + PartialEq, Action: Copy + PartialEq> + Copy {
    /// The first invariant that has broken on the way to this state.
    fn broken(state: &Self::State) -> Option<&Broken>;

    /// Whether a state shows that an invariant does not hold.
    fn breaks_now(&self, state: &Self::State, invariant: &str) -> bool;

    /// A step as a person would tell it.
    fn line(&self, before: &Self::State, step: Self::Action, after: &Self::State) -> String;
}

/// What a search came to.
#[derive(Debug)]
pub struct SearchResult {
    /// Different states seen.
    pub unique: usize,
    /// Steps taken.
    pub taken: usize,
    /// Of the longest story.
    pub depth: usize,
    /// Whether all there is within the bounds was seen.
    pub exhaustive: bool,
    /// How long it took.
    pub time: Duration,
    /// Invariants that broke, each with a story that ends there.
    pub broken: Vec<(&'static str, String)>,
    /// What should have happened somewhere and did not.
    pub missed: Vec<&'static str>,
}

/// Looks at every state within the bounds, until one breaks an invariant or the time is up.
///
/// One thread goes breadth first exactly; more are faster.
pub fn search<W>(world: W, threads: usize, limit: Option<Duration>) -> SearchResult
where
    W: ExploredWorld + Send + Sync + 'static,
    W::State: std::fmt::Debug + std::hash::Hash + Send + Sync + 'static,
    W::Action: std::fmt::Debug + Send + Sync,
{
    let begun = Instant::now();
    let mut builder = world.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(limit) = limit {
        builder = builder.timeout(limit);
    }
    let checker = builder.spawn_bfs().join();
    let mut broken = Vec::new();
    let mut missed = Vec::new();
    for property in world.properties() {
        let discovery = checker.discovery(property.name);
        match (property.expectation.discovery_is_failure(), discovery) {
            (true, Some(path)) => {
                broken.push((property.name, story::tell(&world, property.name, path)))
            }
            (false, None) => missed.push(property.name),
            _ => {}
        }
    }
    SearchResult {
        unique: checker.unique_state_count(),
        taken: checker.state_count(),
        depth: checker.max_depth(),
        exhaustive: broken.is_empty() && limit.is_none_or(|limit| begun.elapsed() < limit),
        time: begun.elapsed(),
        broken,
        missed,
    }
}
