//! Reading from an assigned source, and telling the server what came of it.

use super::{Output, Session};
use crate::message::{Assignment, ClientMessage, ReadFailure};
use crate::{Attempt, CallError, OpSeq, ShardSums, Time, Version};

/// A read that was assigned.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    attempt: Attempt,
    /// The assignment with which the memory began anew.
    since: Attempt,
    version: Version,
    /// What was told to the server when the read ended.
    report: Option<ClientMessage>,
}

impl Session {
    pub(super) fn assigned(
        &mut self,
        seq: OpSeq,
        attempt: Attempt,
        since: Attempt,
        assignment: Assignment,
    ) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.seq == seq) else {
            return;
        };
        let old = pending.transfer.as_ref();
        if old.is_some_and(|transfer| transfer.attempt >= attempt) {
            return; // a repetition
        }
        let reads = old.is_some_and(|transfer| transfer.report.is_none());
        let keep = self.config.relays
            && old.is_some_and(|old| old.since == since || self.config.mutants.keep_suspect);
        let version = assignment.version;
        self.catalog = assignment.catalog;
        pending.transfer = Some(Transfer { attempt, since, version, report: None });
        let deadline = pending.deadline();
        if !keep {
            self.begin_anew(reads);
        }
        self.send_filling();
        self.outputs.push_back(Output::Read { seq, attempt, assignment, keep, deadline });
    }

    /// Nothing of what the memory holds counts any more; what is read from now on may be served.
    fn begin_anew(&mut self, reads: bool) {
        if reads {
            // It must not move the progress of the next generation.
            self.outputs.push_back(Output::StopRead);
        }
        self.make_mutable();
        if self.config.relays {
            self.expose_filling();
        }
    }

    /// Tells the server at which generation the memory is served while it is being filled.
    pub(super) fn send_filling(&mut self) {
        let Some(pending) = self.pending.as_ref().filter(|_| self.config.relays) else { return };
        let Some(transfer) = &pending.transfer else { return };
        let (seq, since, generation) = (pending.seq, transfer.since, self.copy.generation());
        self.send(ClientMessage::Filling { seq, since, generation });
    }

    /// A read asked for by `Output::Read` has ended. Void if it was replaced meanwhile.
    pub fn handle_read(
        &mut self,
        now: Time,
        seq: OpSeq,
        attempt: Attempt,
        result: Result<ShardSums, ReadFailure>,
    ) {
        self.tick(now);
        let current = self.pending.as_ref().filter(|pending| pending.seq == seq).is_some_and(|p| {
            p.transfer.as_ref().is_some_and(|t| t.attempt == attempt && t.report.is_none())
        });
        if !current {
            return;
        }
        let report = match result {
            Ok(sums) => {
                // Before the server can commit and send readers here.
                self.expose();
                let generation = self.copy.generation();
                ClientMessage::Prepared { seq, attempt, generation, sums }
            }
            Err(failure) => ClientMessage::ReadFailed { seq, attempt, failure },
        };
        let transfer = self.pending.as_mut().and_then(|pending| pending.transfer.as_mut());
        transfer.expect("checked").report = Some(report);
        self.send_report();
    }

    pub(super) fn send_report(&mut self) {
        let transfer = self.pending.as_ref().and_then(|pending| pending.transfer.as_ref());
        if let Some(report) = transfer.and_then(|transfer| transfer.report.clone()) {
            self.send(report);
        }
    }

    /// A transfer ends without success: the memory holds nothing and nobody reads it.
    pub(super) fn abandon(&mut self, transfer: Option<Transfer>) {
        let Some(transfer) = transfer else { return };
        if transfer.report.is_none() {
            self.outputs.push_back(Output::StopRead);
        }
        self.make_mutable();
    }

    /// The digests of what was read, once it is.
    pub(super) fn prepared_sums(&self) -> Option<ShardSums> {
        match self.pending.as_ref()?.transfer.as_ref()?.report {
            Some(ClientMessage::Prepared { sums, .. }) => Some(sums),
            _ => None,
        }
    }

    /// The error for a commit whose outcome is unknown, if there is one: this shard was prepared.
    pub(super) fn in_doubt(&self) -> Option<CallError> {
        if let Some(doubt) = self.doubt() {
            return Some(doubt);
        }
        let transfer = self.pending.as_ref()?.transfer.as_ref()?;
        let prepared = matches!(transfer.report, Some(ClientMessage::Prepared { .. }));
        prepared.then_some(CallError::InDoubt { version: transfer.version })
    }
}
