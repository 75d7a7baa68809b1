//! How a transfer runs.

use super::gauge::Gauge;
use crate::base::holds::Holds;
use crate::base::patience::Patience;
use crate::piece::filling::Filling;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// How a transfer runs.
#[derive(Clone, Debug)]
pub struct TransferOptions {
    /// Threads, and so streams over TCP. Every TCP source has one stream at least, as far as
    /// [`MAX_THREADS`](crate::limits::MAX_THREADS) go.
    pub threads: usize,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Raise it to give up.
    pub cancel: Arc<AtomicBool>,
    /// Tells how many bytes have arrived and were served, and how many each source still has to send.
    /// Each read has a gauge of its own.
    pub gauge: Arc<Gauge>,
    /// Where progress is advertised while the targets are being filled. What is final there is not
    /// read again; the digests are then only of what was, so use those of the whole memory.
    pub filling: Option<Arc<Filling>>,
    /// Where the progress of what comes from the sources alone is advertised: to siblings, shards of the
    /// reader's own group, which are being filled as this one is and take it from here. What is final
    /// there is not read again. The units are those of `filling`.
    pub entering: Option<Arc<Filling>>,
    /// How many jobs, the last ones, read from siblings. Each has a worker of its own, which waits until the
    /// sibling has the bytes; no other worker waits for a sibling.
    pub siblings: usize,
    /// Whether digests are made; without them all slots stay zero.
    pub digests: bool,
    /// How many sources have the same bytes. There are as many jobs for each, those of the first source
    /// first, and those of siblings after all. Jobs of the other sources come without copies: each gives pieces of the first source's job in
    /// its place, as fast as it can.
    pub stripes: usize,
    /// Number of digests returned: one more than the largest slot of a copy.
    pub slots: usize,
    /// Where a test stops it.
    #[doc(hidden)]
    pub holds: Holds,
}

impl Default for TransferOptions {
    /// Two threads, one source of each byte, digests into one slot, no deadline.
    fn default() -> Self {
        Self {
            threads: 2,
            deadline: None,
            cancel: Arc::default(),
            gauge: Arc::default(),
            filling: None,
            entering: None,
            siblings: 0,
            digests: true,
            stripes: 1,
            slots: 1,
            holds: Holds::default(),
        }
    }
}

impl TransferOptions {
    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience { deadline: self.deadline, cancel: Some(&self.cancel), ..Patience::default() }
    }
}
