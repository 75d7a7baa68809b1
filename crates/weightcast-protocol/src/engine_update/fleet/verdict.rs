//! The verdict on a fleet's update, and the register that keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::FleetTransaction;
use crate::{Safeguard, Safeguards, Version};

/// Whether a fleet's update is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FleetVerdict {
    /// Every engine installs the new version.
    Commit,
    /// Every engine goes back to the old version.
    Abort,
}

impl FleetVerdict {
    /// The verdict's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            FleetVerdict::Commit => "commit",
            FleetVerdict::Abort => "abort",
        }
    }
}

/// What has to outlive every driver of a fleet: the numbers of drivers, the verdicts, and the fleet's version. Any store
/// with a first-write-wins operation can keep it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FleetRegister {
    drivers: u64,
    verdicts: BTreeMap<FleetTransaction, FleetVerdict>,
    version: Option<Version>,
    safeguards: Safeguards,
}

impl FleetRegister {
    /// A register for a fleet whose engines have started with `version`.
    pub fn new(version: Version, safeguards: Safeguards) -> Self {
        Self { version: Some(version), safeguards, ..Self::default() }
    }

    /// A number for a driver that starts: later than all before.
    pub fn next_driver(&mut self) -> u64 {
        self.drivers = self.drivers.saturating_add(1);
        self.drivers
    }

    /// The newest driver's number. An engine that starts obeys no earlier driver.
    pub fn newest_driver(&self) -> u64 {
        self.drivers
    }

    /// Writes a verdict, unless there is one; returns the one that counts. `version` is what a commit is about. A commit of
    /// an earlier driver than the newest becomes an abort.
    pub fn decide(
        &mut self,
        transaction: FleetTransaction,
        verdict: FleetVerdict,
        version: Version,
    ) -> FleetVerdict {
        let first =
            self.verdict(transaction).filter(|_| self.safeguards.on(Safeguard::FirstVerdict));
        first.unwrap_or_else(|| self.write(transaction, verdict, version))
    }

    /// A driver that has a successor commits nothing any more: the successor has asked the engines, and where none of them
    /// remembers the update, it has them serve the version of before.
    fn write(
        &mut self,
        transaction: FleetTransaction,
        wanted: FleetVerdict,
        version: Version,
    ) -> FleetVerdict {
        let late =
            transaction.driver < self.drivers && self.safeguards.on(Safeguard::NewestCommits);
        let verdict = if late { FleetVerdict::Abort } else { wanted };
        if verdict == FleetVerdict::Commit {
            // A fleet may go back to an earlier version.
            let largest = self.version.filter(|_| !self.safeguards.on(Safeguard::LastCommit));
            self.version = largest.max(Some(version));
        }
        self.verdicts.insert(transaction, verdict);
        verdict
    }

    /// The version of the last commit.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The verdict on an update, if there is one.
    pub fn verdict(&self, transaction: FleetTransaction) -> Option<FleetVerdict> {
        self.verdicts.get(&transaction).copied()
    }
}
