//! The runtime's reports on its duties. A report on a duty that was replaced meanwhile is void.

use crate::message::{ClientMessage, ReadFailure};
use crate::session::Session;
use crate::session::assigned::Staging;
use crate::session::host::Output;
use crate::session::pace::ReadProgress;
use crate::{Attempt, CallError, Generation, Nonce, OpSeq, ShardSums, Span, Time, Version};

impl Session {
    /// A read asked for by `Output::Read` has ended. Void if the read was replaced meanwhile.
    pub fn handle_read(
        &mut self,
        now: Time,
        seq: OpSeq,
        attempt: Attempt,
        result: Result<ShardSums, ReadFailure>,
    ) {
        self.tick(now);
        let report = self.work().read_ended(seq, attempt, result);
        self.send(report);
    }

    /// The staged version is in the memory, as asked for by `Output::Install`.
    pub fn handle_installed(&mut self, now: Time, seq: OpSeq, attempt: Attempt) {
        self.tick(now);
        let report = self.work().installed(seq, attempt);
        self.send(report);
    }

    /// When the running read is measured next.
    pub(in crate::session) fn measures_at(&self) -> Option<Time> {
        let transfer = self.calls.transfer()?;
        let reads = transfer.runs() && transfer.read.staging != Staging::Installing;
        reads.then_some(transfer.pace.next())
    }

    pub(in crate::session) fn measure_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.measures_at().is_none_or(|at| at > now) {
            return;
        }
        let Some(pending) = &mut self.calls.pending else { return };
        let Some(transfer) = &mut pending.transfer else { return };
        transfer.pace.ask(now, &self.config);
        let (seq, attempt) = (pending.seq, transfer.read.attempt);
        self.outputs.push_back(Output::Measure { seq, attempt });
    }

    /// Progress of the read, as asked for by [`Output::Measure`]. Not called before bytes move.
    pub fn handle_progress(
        &mut self,
        now: Time,
        seq: OpSeq,
        attempt: Attempt,
        progress: ReadProgress,
    ) {
        self.tick(now);
        let Some(transfer) = self.calls.running(seq, attempt) else { return };
        let pace = transfer.pace.measure(now, progress.arrived);
        if transfer.pace.reports() {
            self.report_progress(now, seq, attempt, progress);
        }
        let Some(bytes_per_s) = pace else { return };
        if self.best_pace.is_slow(bytes_per_s, progress, &self.config) {
            let shard = progress.shard;
            self.send(ClientMessage::Slow { seq, attempt, shard, bytes_per_s });
        }
    }

    /// Tells the server the progress of the read, in place of the next heartbeat.
    fn report_progress(&mut self, now: Time, seq: OpSeq, attempt: Attempt, progress: ReadProgress) {
        if let Some(lease) = self.lease.as_mut().filter(|_| self.link.is_open()) {
            lease.beats(now, &self.config);
        }
        let ReadProgress { arrived, left, .. } = progress;
        let (sent_at, total) = (now.0, arrived.saturating_add(left));
        self.send(ClientMessage::Progress { sent_at, seq, attempt, arrived, total });
    }

    /// The published memory has been digested. Void if the memory was published anew meanwhile.
    pub fn handle_sealed(&mut self, now: Time, generation: Generation, sums: ShardSums) {
        self.tick(now);
        if self.memory.is_being_sealed(generation) {
            self.memory.sealed(sums);
            self.send(self.memory.seal_message());
        }
    }

    /// The published memory can't be digested, which is a bug of the runtime. No reader could ever
    /// commit the version, and the group could not give the memory up, so the shard leaves its
    /// group.
    pub fn handle_seal_failed(&mut self, now: Time, generation: Generation, reason: &str) {
        self.tick(now);
        if self.memory.is_being_sealed(generation) {
            let open = &self.config.open;
            let reason = format!("shard {} can't digest what it published: {reason}", open.shard);
            let error = CallError::GroupBroken { replica: open.replica.clone(), reason };
            self.send(ClientMessage::Close { deadline: Span(0) });
            self.fail(error);
        }
    }

    /// A sample of the memory has been summed. Void if the memory has changed meanwhile.
    pub fn handle_proved(&mut self, now: Time, generation: Generation, nonce: Nonce, sum: u64) {
        self.tick(now);
        if self.memory.holds_at(generation) {
            self.send(ClientMessage::Proof { generation, nonce, sum });
        }
    }

    /// The memory could not be copied, or the copy's session could not be opened. Void if the
    /// server has not asked for the copy, or the memory has been given up since.
    ///
    /// Report each copy's end exactly once: here, or by
    /// [`handle_offload_over`](Self::handle_offload_over). After a second report the session would
    /// take the next copy for one that has ended, and not stop it (S3).
    pub fn handle_offload_failed(
        &mut self,
        now: Time,
        version: Version,
        generation: Generation,
        reason: String,
    ) {
        self.tick(now);
        let failure = self.memory.offload.failed(version, generation, reason);
        self.send(failure);
    }

    /// The copy was made, and released since. Another copy is made when the server asks for it, or
    /// now if the server asked while the old copy was there. If the server did not mean another
    /// copy, it refuses the new one.
    pub fn handle_offload_over(&mut self, now: Time, version: Version, generation: Generation) {
        self.tick(now);
        if self.memory.offload.over(version, generation) {
            self.asked_to_offload(version, generation);
        }
    }

    /// The server asks to copy the memory aside.
    pub(in crate::session) fn asked_to_offload(&mut self, version: Version, at: Generation) {
        let failure = self.memory.asked_to_offload(version, at, &mut self.outputs);
        self.send(failure);
    }

    /// There is no memory for the seed, or the seed has failed. Void if the server has asked for
    /// another seed since.
    pub fn handle_seed_failed(&mut self, now: Time, ask: u64) {
        self.tick(now);
        let failure = self.seed.failed(ask);
        self.send(failure);
    }

    /// The server asks for a seed of a version.
    pub(in crate::session) fn asked_to_seed(&mut self, version: Version, ask: u64, time: Span) {
        let failure = self.seed.asked(version, ask, time, &mut self.outputs);
        self.send(failure);
    }
}
