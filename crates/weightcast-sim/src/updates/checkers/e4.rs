//! E4: a fleet serves one version: none before its commit, and no earlier one beside it.

use crate::updates::checkers::{UpdateChecker, UpdateFact};

#[derive(Default)]
pub(super) struct OneVersion {
    /// The newest version that an engine of the fleet has generated from, and that engine.
    newest: (u64, usize),
}

impl UpdateChecker for OneVersion {
    fn name(&self) -> &'static str {
        "E4"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        let UpdateFact::Token { engine, parts, committed: Some(committed), .. } = fact else {
            return None;
        };
        let version = parts[0].weights?;
        if version > *committed {
            return Some(format!("engine {engine} serves {version}; the fleet is at {committed}"));
        }
        if version < self.newest.0 {
            let (newest, other) = self.newest;
            return Some(format!(
                "engine {engine} serves {version} after engine {other} served {newest}"
            ));
        }
        if version > self.newest.0 {
            self.newest = (version, *engine);
        }
        None
    }
}
