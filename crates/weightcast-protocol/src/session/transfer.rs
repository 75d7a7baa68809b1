//! The transfer of the pending call: the read, and the report on it.

use serde::{Deserialize, Serialize};

use super::assigned::{AssignedRead, Staging};
use super::pace::Pace;
use crate::message::ClientMessage;
use crate::{Attempt, CallError, ContentDigest, Safeguard, Safeguards, ShardSums};

/// A transfer from an assigned source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ShardTransfer {
    pub(super) read: AssignedRead,
    /// Part of the bytes was read in an earlier call, and the user may have written to the memory
    /// since. So nothing is served before everything is digested.
    pub(super) carried: bool,
    /// How fast the read is.
    pub(super) pace: Pace,
    /// Logical tensors of the version.
    pub(super) catalog: ContentDigest,
    /// Digests of the whole read, once it has ended well.
    pub(super) sums: Option<ShardSums>,
    /// The report that the server got when the read, or the copying into place, ended.
    pub(super) report: Option<ClientMessage>,
}

impl ShardTransfer {
    /// Whether the runtime is reading or installing.
    pub(super) fn runs(&self) -> bool {
        self.report.is_none()
    }

    /// Whether a further assignment of the same call keeps the bytes read so far.
    pub(super) fn is_kept_by(&self, next: &AssignedRead, safeguards: Safeguards) -> bool {
        let same = self.read.since == next.since || !safeguards.on(Safeguard::DropSuspect);
        same && self.read.staging == next.staging
    }

    /// Whether the version has to be installed now: this assignment is read, and installing has not
    /// begun. If so, notes that it begins.
    pub(super) fn begins_install(&mut self, attempt: Attempt) -> bool {
        let ready = self.read.attempt == attempt && self.sums.is_some();
        if !ready || self.read.staging != Staging::Beside {
            return false;
        }
        self.read.staging = Staging::Installing;
        self.report = None;
        true
    }

    /// The error if the server is lost now and may have committed the transfer.
    pub(super) fn in_doubt(&self) -> Option<CallError> {
        let prepared = match self.read.staging {
            Staging::InPlace => matches!(self.report, Some(ClientMessage::Prepared { .. })),
            // The group commits only after this shard has reported that it installed the version.
            Staging::Beside | Staging::Installing => {
                matches!(self.report, Some(ClientMessage::Installed { .. }))
            }
        };
        prepared.then_some(CallError::InDoubt { version: self.read.version })
    }
}
