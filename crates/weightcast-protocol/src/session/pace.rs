//! How fast a read is. A shard that gets far less than it could tells the server, which has it go on at
//! another source if one is free (L2). It is measured in windows; what it takes to plan and to connect
//! does not count.

use super::staging::Staging;
use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{Attempt, OpSeq, Time};

/// A read is slow if it gets this much less than the shard has had in any window.
const FAR_LESS: u64 = 8;

/// What a read has come to, as [`Output::Measure`] asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadProgress {
    /// Bytes that have arrived in this read.
    pub arrived: u64,
    /// Bytes that are still to come.
    pub left: u64,
    /// The source's shard that has most of these, by its place in the assignment.
    pub shard: u32,
}

/// The pace of one read.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// When it is measured next.
    at: Time,
    /// When it was measured last, and what had arrived.
    since: Option<(Time, u64)>,
}

impl Pace {
    pub(super) fn new(at: Time) -> Self {
        Self { at, since: None }
    }

    /// Bytes a second since it was measured last.
    fn measure(&mut self, now: Time, arrived: u64) -> Option<u64> {
        let (then, had) = self.since.replace((now, arrived))?;
        let nanos = u128::from((now - then).0);
        let bytes = u128::from(arrived.saturating_sub(had));
        (nanos > 0).then(|| u64::try_from(bytes * 1_000_000_000 / nanos).unwrap_or(u64::MAX))
    }
}

impl Session {
    /// When the read that runs is measured next.
    pub(super) fn measures_at(&self) -> Option<Time> {
        let transfer = self.pending.as_ref()?.transfer.as_ref()?;
        let reads = transfer.runs() && transfer.staging != Staging::Installing;
        reads.then_some(transfer.pace.at)
    }

    pub(super) fn measure_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.measures_at().is_none_or(|at| at > now) {
            return;
        }
        let window = self.config.pace_window;
        let Some(pending) = &mut self.pending else { return };
        let Some(transfer) = &mut pending.transfer else { return };
        transfer.pace.at = now + window;
        let (attempt, _, _) = transfer.read();
        self.outputs.push_back(Output::Measure { seq: pending.seq, attempt });
    }

    /// How far the read is, as asked for by [`Output::Measure`]. Not called before bytes move.
    pub fn handle_progress(
        &mut self,
        now: Time,
        seq: OpSeq,
        attempt: Attempt,
        progress: ReadProgress,
    ) {
        self.tick(now);
        let Some(transfer) = self.reading(seq, attempt) else { return };
        let ReadProgress { arrived, left, shard } = progress;
        let Some(bytes_per_s) = transfer.pace.measure(now, arrived) else { return };
        let best = self.best_pace;
        self.best_pace = best.max(bytes_per_s);
        let slow = bytes_per_s < self.config.slow_pace.max(best / FAR_LESS);
        let seconds = u128::from(left) / u128::from(bytes_per_s.max(1));
        let patience = u128::from(self.config.slow_patience.0) / 1_000_000_000;
        if slow && left > 0 && seconds >= patience {
            self.send(ClientMessage::Slow { seq, attempt, shard, bytes_per_s });
        }
    }
}
