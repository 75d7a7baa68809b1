//! The register of a fleet: who drives, what was decided, and which version the fleet has.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::fleet::numbers::DriverNumbers;
use crate::engine_update::fleet::verdict::FleetVerdict;
use crate::{Safeguard, Safeguards, Version};

/// Verdicts that a register keeps. Of each driver only the last one can still be asked for by an engine in doubt.
const KEPT: usize = 256;

/// What has to outlive every driver of a fleet: the numbers of drivers, the verdicts, and the fleet's version. Any store
/// with a first-write-wins operation can keep it.
///
/// A register may be lost. The next one has another `life`, and says of updates of the former one's drivers that it knows
/// no verdict, and never that there was none: then all engines together tell what was decided
/// ([`FleetVerdict::of_reports`]). A driver's number has the life that gave it in its lower half, so no two registers give
/// the same number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetRegister {
    drivers: DriverNumbers,
    /// Of pushes.
    push_drivers: DriverNumbers,
    verdicts: BTreeMap<FleetTransaction, FleetVerdict>,
    /// Of this update, and of earlier ones, nothing is known but what `verdicts` has.
    forgotten: Option<FleetTransaction>,
    version: Option<Version>,
    safeguards: Safeguards,
}

/// What a register is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FleetQuestion {
    /// The newest driver's number, and the fleet's version.
    State,
    /// A number for a driver that starts.
    Number {
        /// Drawn by the asking driver, another one for each number: whoever asks again gets the same number.
        key: u64,
        /// The newest order that engines have heard has this driver's number, which is later than the one that the asking
        /// driver has. The register gives no number if it knows that driver: it is the asking one's successor.
        heard: Option<u64>,
    },
    /// The same, for a driver of pushes: they are numbered apart, so a push takes over from no driver of updates.
    PushNumber {
        /// Drawn by the asking driver, another one for each number.
        key: u64,
        /// The newest order that targets have heard.
        heard: Option<u64>,
    },
    /// Which verdict counts.
    Verdict {
        /// The update.
        transaction: FleetTransaction,
        /// Counts if there is none yet.
        wanted: FleetVerdict,
        /// What a commit is about.
        version: Version,
    },
}

/// What a register says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FleetAnswer {
    /// The newest driver's number; 0 if there was none. To `Number` and `PushNumber` the number that was given.
    pub driver: u64,
    /// The asking driver has a successor: no number was given.
    pub superseded: bool,
    /// The version of the last commit that is known.
    pub version: Option<Version>,
    /// The verdict that counts. `None` to a question for a verdict: it is not known, and nothing was written.
    pub verdict: Option<FleetVerdict>,
}

impl FleetRegister {
    /// A register that knows nothing. No other register that its drivers or engines may have asked has this `life`.
    pub fn new(life: u32, safeguards: Safeguards) -> Self {
        Self {
            drivers: DriverNumbers::new(life),
            push_drivers: DriverNumbers::new(life),
            verdicts: BTreeMap::new(),
            forgotten: None,
            version: None,
            safeguards,
        }
    }

    /// Answers a question.
    pub fn answer(&mut self, question: FleetQuestion) -> FleetAnswer {
        let (mut verdict, mut superseded) = (None, false);
        match question {
            FleetQuestion::State => {}
            FleetQuestion::Number { key, heard } => {
                superseded = self.drivers.next(key, heard).is_none();
            }
            FleetQuestion::PushNumber { key, heard } => {
                superseded = self.push_drivers.next(key, heard).is_none();
            }
            FleetQuestion::Verdict { transaction, wanted, version } => {
                verdict = self.decide(transaction, wanted, version);
            }
        }
        let of_pushes = matches!(question, FleetQuestion::PushNumber { .. });
        let numbers = if of_pushes { &self.push_drivers } else { &self.drivers };
        FleetAnswer { driver: numbers.newest(), superseded, version: self.version, verdict }
    }

    /// A number for a driver that starts: later than all before, and than what engines have `heard`. `None`: this register
    /// has given that number, so the driver that has it is the successor of the one that asks.
    pub fn next_driver(&mut self, key: u64, heard: Option<u64>) -> Option<u64> {
        self.drivers.next(key, heard)
    }

    /// The newest driver's number; 0 if there was none. An engine that starts obeys no earlier driver.
    pub fn newest_driver(&self) -> u64 {
        self.drivers.newest()
    }

    /// Writes a verdict, unless there is one; returns the one that counts. `version` is what a commit is about. A commit of
    /// an earlier driver than the newest becomes an abort. `None`: an earlier register may have written one.
    pub fn decide(
        &mut self,
        transaction: FleetTransaction,
        wanted: FleetVerdict,
        version: Version,
    ) -> Option<FleetVerdict> {
        let first =
            self.verdict(transaction).filter(|_| self.safeguards.on(Safeguard::FirstVerdict));
        if first.is_some() {
            return first;
        }
        let known =
            self.drivers.has_given(transaction.driver) && self.forgotten < Some(transaction);
        let told = known || !self.safeguards.on(Safeguard::LostUnsaid);
        told.then(|| self.write(transaction, wanted, version))
    }

    /// A driver that has a successor commits nothing any more: the successor has asked the engines, and where none of them
    /// remembers the update, it has them serve the version of before.
    fn write(
        &mut self,
        transaction: FleetTransaction,
        wanted: FleetVerdict,
        version: Version,
    ) -> FleetVerdict {
        let late = transaction.driver < self.newest_driver()
            && self.safeguards.on(Safeguard::NewestCommits);
        let verdict = if late { FleetVerdict::Abort } else { wanted };
        if verdict == FleetVerdict::Commit {
            // A fleet may go back to an earlier version.
            let largest = self.version.filter(|_| !self.safeguards.on(Safeguard::LastCommit));
            self.version = largest.max(Some(version));
        }
        self.verdicts.insert(transaction, verdict);
        if self.verdicts.len() > KEPT {
            self.forgotten = self.verdicts.pop_first().map(|(first, _)| first);
        }
        verdict
    }

    /// The version of the last commit that is known.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The verdict on an update, if there is one.
    pub fn verdict(&self, transaction: FleetTransaction) -> Option<FleetVerdict> {
        self.verdicts.get(&transaction).copied()
    }
}
