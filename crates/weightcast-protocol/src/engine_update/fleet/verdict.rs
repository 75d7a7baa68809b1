//! The verdict on a fleet's update.

use serde::{Deserialize, Serialize};

use crate::Version;
use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::report::EngineReport;

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

    /// The verdict on an update that no register remembers, by what all engines of the fleet say of themselves to one
    /// driver: from then on they obey no earlier driver, so none of them begins to serve `offered` any more. An engine
    /// that does, or that has it where another version was, shows that there was a commit.
    pub fn of_reports<'a>(
        reports: impl IntoIterator<Item = &'a EngineReport>,
        transaction: FleetTransaction,
        offered: Version,
    ) -> Self {
        let installed = |report: &EngineReport| {
            let replaced = report.old.is_some_and(|old| old != offered);
            report.ready == Some(offered)
                && (report.serving || replaced && report.transaction == Some(transaction))
        };
        if reports.into_iter().any(installed) { Self::Commit } else { Self::Abort }
    }
}
