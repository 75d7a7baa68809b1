//! Reading from an assigned source, and telling the server what came of it.

use super::pace::Pace;
use super::staging::Staging;
use super::{Output, Session};
use crate::message::{Assignment, ClientMessage, ReadFailure};
use crate::{Attempt, CallError, ContentDigest, OpSeq, Safeguard, ShardSums, Time, Version};

/// A read that was assigned.
#[derive(Clone, Debug)]
pub(super) struct ShardTransfer {
    attempt: Attempt,
    /// The assignment with which the memory began anew.
    since: Attempt,
    version: Version,
    /// Some of it was read in a call before this one, and the memory was the user's since: nobody is
    /// served before all of it is digested.
    carried: bool,
    /// How fast it is.
    pub(super) pace: Pace,
    /// Logical tensors of the version.
    catalog: ContentDigest,
    /// Whether it is read beside the memory, and if so whether it is on its way into it.
    pub(super) staging: Staging,
    /// Digests of what was read, once it is.
    sums: Option<ShardSums>,
    /// What was told to the server when the read ended.
    report: Option<ClientMessage>,
}

impl ShardTransfer {
    /// Goes from beside the memory into it, if this assignment is read and that has not begun yet.
    pub(super) fn begins_install(&mut self, attempt: Attempt) -> bool {
        let ready = self.attempt == attempt && self.sums.is_some();
        if !ready || self.staging != Staging::Beside {
            return false;
        }
        self.staging = Staging::Installing;
        self.report = None;
        true
    }

    pub(super) fn catalog(&self) -> ContentDigest {
        self.catalog
    }

    /// Whether the runtime is reading.
    pub(super) fn runs(&self) -> bool {
        self.report.is_none()
    }

    /// What is read: the assignment, that with which the memory began anew, the version.
    pub(super) fn read(&self) -> (Attempt, Attempt, Version) {
        (self.attempt, self.since, self.version)
    }
}

impl Session {
    pub(super) fn assigned(
        &mut self,
        now: Time,
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
        let Assignment { version, catalog, staged, .. } = assignment;
        let staging = if staged { Staging::Beside } else { Staging::InPlace };
        let same = |old: &ShardTransfer| {
            old.since == since || !self.config.safeguards.on(Safeguard::DropSuspect)
        };
        let left = self.left.take();
        let resumes =
            left.as_ref().is_some_and(|left| left.goes_on(since, attempt, version, staging));
        let keep = match old {
            Some(old) => same(old) && old.staging == staging,
            None => resumes,
        };
        let keep = keep && self.config.relays;
        let carried = keep && old.map_or(resumes, |old| old.carried);
        let pace = Pace::new(now + self.config.pace_window);
        let transfer = ShardTransfer {
            attempt,
            since,
            version,
            carried,
            pace,
            catalog,
            staging,
            sums: None,
            report: None,
        };
        pending.transfer = Some(transfer);
        let deadline = pending.deadline();
        if !resumes {
            self.discard(left);
        }
        if !staged {
            self.catalog = catalog;
        }
        match (keep, staged) {
            (true, _) => {}
            (false, false) => self.begin_anew(reads),
            (false, true) if reads => self.outputs.push_back(Output::StopRead),
            (false, true) => {}
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
        if transfer.staging != Staging::InPlace || transfer.carried {
            return; // nobody reads what is beside the memory, or what the user may have written to
        }
        let (seq, since, generation) = (pending.seq, transfer.since, self.memory.generation());
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
        let Some(transfer) = self.reading(seq, attempt) else { return };
        let staging = transfer.staging;
        let report = match result {
            Ok(sums) => {
                transfer.sums = Some(sums);
                if staging == Staging::InPlace {
                    // Before the server can commit and send readers here.
                    self.expose();
                } else if !self.config.safeguards.on(Safeguard::StagedInstall) {
                    self.outputs.push_back(Output::Install { seq, attempt });
                }
                let generation = self.memory.generation();
                ClientMessage::Prepared { seq, attempt, generation, sums }
            }
            Err(failure) => ClientMessage::ReadFailed { seq, attempt, failure },
        };
        self.report(report);
    }

    /// The transfer of this assignment, if nothing was reported of it since the last thing that was
    /// asked for.
    pub(super) fn reading(&mut self, seq: OpSeq, attempt: Attempt) -> Option<&mut ShardTransfer> {
        let pending = self.pending.as_mut().filter(|pending| pending.seq == seq)?;
        pending.transfer.as_mut().filter(|t| t.attempt == attempt && t.report.is_none())
    }

    pub(super) fn report(&mut self, report: ClientMessage) {
        let transfer = self.pending.as_mut().and_then(|pending| pending.transfer.as_mut());
        transfer.expect("checked by the caller").report = Some(report);
        self.send_report();
    }

    pub(super) fn send_report(&mut self) {
        let transfer = self.pending.as_ref().and_then(|pending| pending.transfer.as_ref());
        if let Some(report) = transfer.and_then(|transfer| transfer.report.clone()) {
            self.send(report);
        }
    }

    /// A transfer ends without success: the memory holds nothing and nobody reads it, or it holds
    /// what it held and only what was read beside it goes.
    pub(super) fn abandon(&mut self, transfer: Option<ShardTransfer>) {
        let Some(transfer) = transfer else { return };
        if transfer.report.is_none() {
            self.outputs.push_back(Output::StopRead);
        }
        if transfer.staging != Staging::InPlace {
            self.outputs.push_back(Output::Unstage);
        }
        if transfer.staging != Staging::Beside {
            self.make_mutable();
        }
    }

    /// The digests of what was read, once it is.
    pub(super) fn prepared_sums(&self) -> Option<ShardSums> {
        self.pending.as_ref()?.transfer.as_ref()?.sums
    }

    /// The error for a commit whose outcome is unknown, if there is one: this shard was prepared.
    pub(super) fn in_doubt(&self) -> Option<CallError> {
        if let Some(doubt) = self.doubt() {
            return Some(doubt);
        }
        let transfer = self.pending.as_ref()?.transfer.as_ref()?;
        let prepared = match transfer.staging {
            Staging::InPlace => matches!(transfer.report, Some(ClientMessage::Prepared { .. })),
            // Its group commits only once this shard has said that the version is in place.
            Staging::Beside | Staging::Installing => {
                matches!(transfer.report, Some(ClientMessage::Installed { .. }))
            }
        };
        prepared.then_some(CallError::InDoubt { version: transfer.version })
    }
}
