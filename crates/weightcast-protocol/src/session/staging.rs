//! Staged updates: the new version is read beside the memory, whose old one is held and served until
//! the server has it verified on all shards. Then it is copied into place (G4).

use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{Attempt, OpSeq, Span, Time};

/// Where a transfer's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Staging {
    /// Into the memory: it holds nothing else.
    InPlace,
    /// Beside it: it holds what it held.
    Beside,
    /// From beside it into it: it holds nothing else any more.
    Installing,
}

impl Session {
    /// The version is verified on all shards: the old one is given up for it (S3).
    pub(super) fn install(&mut self, now: Time, seq: OpSeq, attempt: Attempt, deadline: Span) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.seq == seq) else {
            return;
        };
        if !pending.transfer.as_mut().is_some_and(|transfer| transfer.begins_install(attempt)) {
            return; // a repetition
        }
        self.catalog = pending.transfer.as_ref().expect("checked").catalog();
        pending.extend_deadline(now + deadline);
        self.make_mutable();
        self.outputs.push_back(Output::Install { seq, attempt });
    }

    /// What was read beside the memory is in it, as asked for by `Output::Install`.
    pub fn handle_installed(&mut self, now: Time, seq: OpSeq, attempt: Attempt) {
        self.tick(now);
        let Some(transfer) = self.reading(seq, attempt) else { return };
        if transfer.staging != Staging::Installing {
            return;
        }
        self.expose();
        let generation = self.memory.generation();
        self.report(ClientMessage::Installed { seq, attempt, generation });
    }
}
