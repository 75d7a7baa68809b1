//! A shard's calls: one at a time, numbered, sent again after a reconnect, answered once (G5).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::assigned::Staging;
use super::transfer::ShardTransfer;
use crate::message::{Call, ClientMessage, Registration};
use crate::{Attempt, CallError, Generation, OpSeq, Time, Version};

/// The call that has not been answered yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) seq: OpSeq,
    pub(super) call: Call,
    pub(super) deadline: Time,
    /// Set once a source was assigned. Unless the transfer is staged, the memory holds nothing from then on.
    pub(super) transfer: Option<ShardTransfer>,
    /// Whether the call is a publish that exposed the memory, and not a repeated publish.
    pub(super) fresh: bool,
    /// The error of the call if it fails, set when the server was lost while a commit was possible.
    pub(super) doubt: Option<CallError>,
}

/// The pending call, and the outcome of earlier calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) pending: Option<Pending>,
    last: OpSeq,
    /// The last call that the server has answered.
    answered: OpSeq,
    /// The shard's memory, as the last answered `register` declared it.
    pub(super) registration: Option<Registration>,
    /// The versions that are kept for the group, as the server has answered.
    pub(super) retains: BTreeSet<Version>,
}

impl Calls {
    /// A call begins, under the next number.
    pub(super) fn begin(&mut self, call: Call, deadline: Time, fresh: bool) -> OpSeq {
        self.last = self.last.next();
        let seq = self.last;
        self.pending = Some(Pending { seq, call, deadline, transfer: None, fresh, doubt: None });
        seq
    }

    /// The server has answered the call of this number: takes the call, if it is pending.
    pub(super) fn settle(&mut self, seq: OpSeq) -> Option<Pending> {
        let pending = self.pending.take_if(|pending| pending.seq == seq)?;
        self.answered = seq;
        Some(pending)
    }

    /// The last call that the server has answered.
    pub(super) fn answered(&self) -> OpSeq {
        self.answered
    }

    /// Whether the server has answered any call.
    pub(super) fn any_answered(&self) -> bool {
        self.answered > OpSeq(0)
    }

    /// The call of this number, if it is pending.
    pub(super) fn pending_as(&mut self, seq: OpSeq) -> Option<&mut Pending> {
        self.pending.as_mut().filter(|pending| pending.seq == seq)
    }

    /// The transfer of the pending call.
    pub(super) fn transfer(&self) -> Option<&ShardTransfer> {
        self.pending.as_ref()?.transfer.as_ref()
    }

    /// The transfer of this assignment, while the runtime reads or installs. Otherwise a report of
    /// the runtime is void: the assignment was replaced, or its end was reported before.
    pub(super) fn running(&mut self, seq: OpSeq, attempt: Attempt) -> Option<&mut ShardTransfer> {
        let transfer = self.pending_as(seq)?.transfer.as_mut()?;
        Some(transfer).filter(|transfer| transfer.read.attempt == attempt && transfer.runs())
    }

    /// The message that makes the pending call.
    pub(super) fn call_message(&self, now: Time) -> Option<ClientMessage> {
        let Pending { seq, call, deadline, .. } = self.pending.as_ref()?;
        Some(ClientMessage::Call { seq: *seq, deadline: *deadline - now, call: call.clone() })
    }

    /// Tells at which generation the memory is served while it is being filled.
    pub(super) fn filling_message(&self, generation: Generation) -> Option<ClientMessage> {
        let (pending, transfer) = (self.pending.as_ref()?, self.transfer()?);
        // Bytes beside the memory are not served, nor bytes that the user may have written to.
        let served = transfer.read.staging == Staging::InPlace && !transfer.carried;
        let (seq, since) = (pending.seq, transfer.read.since);
        served.then_some(ClientMessage::Filling { seq, since, generation })
    }

    /// The report that the server got when the read ended.
    pub(super) fn report_message(&self) -> Option<ClientMessage> {
        self.transfer()?.report.clone()
    }

    /// The error for a pending call whose outcome was unknown when an earlier server was lost.
    pub(super) fn doubt(&self) -> Option<CallError> {
        self.pending.as_ref()?.doubt.clone()
    }

    /// The error for a commit whose outcome is unknown if the server is lost now, or was before.
    pub(super) fn in_doubt(&self) -> Option<CallError> {
        self.doubt().or_else(|| self.transfer()?.in_doubt())
    }
}
