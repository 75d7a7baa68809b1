//! The effect of a call on the shard's memory, from the call's beginning to its end.

use super::assigned::Staging;
use super::calls::Calls;
use super::config::SessionConfig;
use super::host::{Output, Outputs};
use super::memory::ShardMemory;
use super::transfer::ShardTransfer;
use crate::message::{Answer, Call, Registration};
use crate::{CallError, OpSeq, Time};

/// A shard's memory and its calls, borrowed for one step. `reading` has the steps of a transfer.
pub(super) struct ShardWork<'a> {
    pub(super) config: &'a SessionConfig,
    pub(super) memory: &'a mut ShardMemory,
    pub(super) calls: &'a mut Calls,
    pub(super) outputs: &'a mut Outputs,
}

impl ShardWork<'_> {
    /// The user makes a call.
    pub(super) fn begin(&mut self, call: Call, deadline: Time) -> OpSeq {
        let holds = self.memory.version().is_some();
        // Without a held version the call withdraws nothing, and must not withdraw the next
        // publication.
        self.memory.withdrawn |= holds && matches!(call, Call::Unpublish);
        let fresh = !holds && matches!(call, Call::Publish { .. });
        let seq = self.calls.begin(call, deadline, fresh);
        self.offer();
        seq
    }

    /// A pending publish offers the memory at its present generation. Readers may come as soon as
    /// the other shards have called.
    pub(super) fn offer(&mut self) {
        let Some(pending) = &mut self.calls.pending else { return };
        if let Call::Publish { generation, .. } = &mut pending.call {
            *generation = self.memory.generation();
        }
        if pending.fresh {
            self.memory.expose(self.outputs);
        }
    }

    /// The server has answered the call.
    pub(super) fn answered(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        let Some(pending) = self.calls.settle(seq) else { return };
        if matches!(pending.call, Call::Register { .. } | Call::Unregister) {
            self.memory.forget_left(self.outputs);
        }
        if let Ok(answer) = &result {
            self.take_over(&pending.call, answer);
        }
        match &result {
            Ok(Answer::Published { version }) => {
                self.memory.published(*version, pending.fresh, self.outputs);
            }
            Ok(Answer::Unpublished) => self.memory.make_mutable(self.outputs),
            // The error is about a refusal before. The memory is given up nevertheless.
            Err(CallError::ContentMismatch { .. }) if pending.call == Call::Unpublish => {
                self.memory.make_mutable(self.outputs);
            }
            Ok(Answer::Committed { version, .. }) => {
                let sums = pending.transfer.and_then(|transfer| transfer.sums);
                self.memory.committed(*version, sums);
            }
            Err(_) if pending.fresh => self.memory.make_mutable(self.outputs),
            Err(CallError::Timeout { .. }) => self.leave(pending.transfer),
            // A staged update may have lost its source: the group then keeps what it had.
            Ok(Answer::Unchanged { .. }) | Err(_) => self.abandon(pending.transfer),
            Ok(_) => {}
        }
        self.outputs.push_back(Output::Done { seq, result });
    }

    /// Takes over what the call declared: the registration of the memory, the tensors of the version, or what is
    /// kept for the group.
    fn take_over(&mut self, call: &Call, answer: &Answer) {
        match (answer, call) {
            (Answer::Registered { .. }, &Call::Register { layout, export, bytes }) => {
                self.calls.registration = Some(Registration { layout, export, bytes });
            }
            (Answer::Unregistered, _) => self.calls.registration = None,
            (Answer::Retained { version }, _) => drop(self.calls.retains.insert(*version)),
            (Answer::LetGo, Call::LetGo { version: number }) => {
                self.calls.retains.retain(|version| version.number != *number);
            }
            (Answer::Published { .. }, Call::Publish { catalog, .. }) => {
                self.memory.catalog = *catalog;
            }
            _ => {}
        }
    }

    /// The pending call ends without the server's answer. Returns its number, for the caller to be told.
    pub(super) fn break_off(&mut self) -> Option<OpSeq> {
        let pending = self.calls.pending.take()?;
        self.abandon(pending.transfer);
        Some(pending.seq)
    }

    /// Stops acting on the server's messages: withdraws what the session offered, and drops what
    /// the server assigned. The content of the memory stays, unless a read has begun to replace it.
    pub(super) fn withdraw(&mut self) {
        let doubt = self.calls.in_doubt();
        self.memory.forget_left(self.outputs);
        let mut transfer = None;
        if let Some(pending) = &mut self.calls.pending {
            transfer = pending.transfer.take();
            pending.doubt = doubt;
        }
        let filled = transfer.as_ref().is_some_and(|t| t.read.staging != Staging::Beside);
        self.abandon(transfer);
        if !filled {
            self.memory.stop_serving(self.outputs);
        }
    }

    /// A transfer runs out of time. The memory is not served any more, but the bytes that were read
    /// stay for the next call.
    fn leave(&mut self, transfer: Option<ShardTransfer>) {
        let Some(transfer) = transfer else { return };
        if transfer.read.staging == Staging::Installing || !self.config.relays {
            return self.abandon(Some(transfer));
        }
        if transfer.runs() {
            self.outputs.push_back(Output::StopRead);
        }
        if transfer.read.staging == Staging::InPlace {
            self.memory.make_mutable(self.outputs);
        }
        self.memory.leave(transfer.read);
    }

    /// A transfer ends without success. Bytes beside the memory are dropped, and the memory keeps
    /// its version. A transfer into the memory leaves nothing in it, and the memory is fenced.
    fn abandon(&mut self, transfer: Option<ShardTransfer>) {
        let Some(transfer) = transfer else { return };
        if transfer.runs() {
            self.outputs.push_back(Output::StopRead);
        }
        if transfer.read.staging != Staging::InPlace {
            self.outputs.push_back(Output::Unstage);
        }
        if transfer.read.staging != Staging::Beside {
            self.memory.make_mutable(self.outputs);
        }
    }
}
