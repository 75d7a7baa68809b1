//! A transfer's steps: assigned, read, installed if it is staged.

use super::assigned::{AssignedRead, Staging};
use super::host::Output;
use super::pace::Pace;
use super::transfer::ShardTransfer;
use super::work::ShardWork;
use crate::message::{Assignment, ClientMessage, ReadFailure};
use crate::{Attempt, OpSeq, Safeguard, ShardSums, Span, Time};

impl ShardWork<'_> {
    /// The server has assigned a source to the pending call. Returns the order to read.
    pub(super) fn assigned(
        &mut self,
        now: Time,
        seq: OpSeq,
        attempt: Attempt,
        since: Attempt,
        assignment: Assignment,
    ) -> Option<Output> {
        let pending = self.calls.pending_as(seq)?;
        if pending.transfer.as_ref().is_some_and(|old| old.read.attempt >= attempt) {
            return None; // a repetition
        }
        let Assignment { version, catalog, staged, .. } = assignment;
        let staging = if staged { Staging::Beside } else { Staging::InPlace };
        let read = AssignedRead { attempt, since, version, staging };
        let resumes = self.memory.take_up_left(&read, self.outputs);
        let old = pending.transfer.take();
        // Without relays every read begins anew.
        let (keep, carried) = match &old {
            _ if !self.config.relays => (false, false),
            Some(old) if old.is_kept_by(&read, self.config.safeguards) => (true, old.carried),
            Some(_) => (false, false),
            None => (resumes, resumes),
        };
        let pace = Pace::new(now, self.config);
        let transfer = ShardTransfer { read, carried, pace, catalog, sums: None, report: None };
        pending.transfer = Some(transfer);
        let deadline = pending.deadline;
        if !staged {
            self.memory.catalog = catalog;
        }
        if !keep {
            self.begin_anew(old.is_some_and(|old| old.runs()), staging);
        }
        Some(Output::Read { seq, attempt, since, assignment, keep, deadline })
    }

    /// Discards everything that was read so far. Bytes that are read into the memory from now on
    /// may be served.
    fn begin_anew(&mut self, reads: bool, staging: Staging) {
        if reads {
            // The old read must not move the progress of the next generation.
            self.outputs.push_back(Output::StopRead);
        }
        if staging == Staging::InPlace {
            self.memory.make_mutable(self.outputs);
            if self.config.relays {
                self.memory.expose_filling(self.outputs);
            }
        }
    }

    /// The runtime has read what was assigned, or could not. Returns the report for the server.
    pub(super) fn read_ended(
        &mut self,
        seq: OpSeq,
        attempt: Attempt,
        result: Result<ShardSums, ReadFailure>,
    ) -> Option<ClientMessage> {
        let transfer = self.calls.running(seq, attempt)?;
        let report = match result {
            Ok(sums) => {
                transfer.sums = Some(sums);
                if transfer.read.staging == Staging::InPlace {
                    // Serve before the report: the server may then commit, and send readers here.
                    self.memory.expose(self.outputs);
                } else if !self.config.safeguards.on(Safeguard::StagedInstall) {
                    self.outputs.push_back(Output::Install { seq, attempt });
                }
                let generation = self.memory.generation();
                ClientMessage::Prepared { seq, attempt, generation, sums }
            }
            Err(failure) => ClientMessage::ReadFailed { seq, attempt, failure },
        };
        transfer.report = Some(report.clone());
        Some(report)
    }

    /// The version is verified on all shards: the old version is given up for it (S3).
    pub(super) fn install(&mut self, now: Time, seq: OpSeq, attempt: Attempt, deadline: Span) {
        let Some(pending) = self.calls.pending_as(seq) else { return };
        let Some(transfer) = &mut pending.transfer else { return };
        if !transfer.begins_install(attempt) {
            return; // a repetition
        }
        self.memory.catalog = transfer.catalog;
        // The call's own deadline must not interrupt the copying.
        pending.deadline = pending.deadline.max(now + deadline);
        self.memory.make_mutable(self.outputs);
        self.outputs.push_back(Output::Install { seq, attempt });
    }

    /// The runtime has installed the staged version. Returns the report for the server.
    pub(super) fn installed(&mut self, seq: OpSeq, attempt: Attempt) -> Option<ClientMessage> {
        let transfer = self.calls.running(seq, attempt)?;
        if transfer.read.staging != Staging::Installing {
            return None;
        }
        self.memory.expose(self.outputs);
        let generation = self.memory.generation();
        let report = ClientMessage::Installed { seq, attempt, generation };
        transfer.report = Some(report.clone());
        Some(report)
    }
}
