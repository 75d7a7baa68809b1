//! The search itself, breadth first.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::bounds::Bounds;
use crate::invariants::properties;
use crate::story;

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
pub fn search(bounds: Bounds, threads: usize, limit: Option<Duration>) -> SearchResult {
    let begun = Instant::now();
    let mut builder = bounds.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(limit) = limit {
        builder = builder.timeout(limit);
    }
    let checker = builder.spawn_bfs().join();
    let mut broken = Vec::new();
    let mut missed = Vec::new();
    for property in properties() {
        let discovery = checker.discovery(property.name);
        match (property.expectation.discovery_is_failure(), discovery) {
            (true, Some(path)) => {
                broken.push((property.name, story::tell(&bounds, property.name, path)))
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
