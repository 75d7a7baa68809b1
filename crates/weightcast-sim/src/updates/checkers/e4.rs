//! E4: a fleet serves one version: none before its commit, and no earlier one beside it.

use crate::updates::checkers::{UpdateChecker, UpdateFact};

pub(super) struct OneVersion {
    /// Versions in the order in which the fleet was committed to them. One that it went back to is there twice.
    commits: Vec<u64>,
    /// The last of these that an engine of the fleet has generated from, and that engine.
    newest: (usize, usize),
}

impl Default for OneVersion {
    fn default() -> Self {
        Self { commits: vec![1], newest: (0, 0) }
    }
}

impl OneVersion {
    fn served(&mut self, engine: usize, version: u64) -> Option<String> {
        let Some(at) = self.commits.iter().rposition(|committed| *committed == version) else {
            let commits = &self.commits;
            return Some(format!("engine {engine} serves {version}; the fleet was at {commits:?}"));
        };
        let (newest, other) = self.newest;
        if at < newest {
            let newest = self.commits[newest];
            return Some(format!(
                "engine {engine} serves {version} after engine {other} served {newest}"
            ));
        }
        if at > newest {
            self.newest = (at, engine);
        }
        None
    }
}

impl UpdateChecker for OneVersion {
    fn name(&self) -> &'static str {
        "E4"
    }

    fn observe(&mut self, fact: &UpdateFact<'_>) -> Option<String> {
        match fact {
            UpdateFact::Committed { version } => {
                self.commits.push(*version);
                None
            }
            UpdateFact::Forgotten { version } => {
                if self.commits.len() > 1 && self.commits.last() == Some(version) {
                    self.commits.pop();
                    self.newest.0 = self.newest.0.min(self.commits.len() - 1);
                }
                None
            }
            UpdateFact::Token { engine, parts, fleet: true, .. } => {
                self.served(*engine, parts[0].weights?)
            }
            _ => None,
        }
    }
}
