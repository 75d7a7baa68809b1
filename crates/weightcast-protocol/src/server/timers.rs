//! What the server waits for: one queue of times, each with what is due then.

use std::collections::BTreeSet;

use crate::{ContentDigest, Incarnation, OpSeq, SessionId, Time};

/// What is due. The order breaks ties: readers are cut, and offloads given up,
/// before the call that waits for them ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A session's lease may have run out.
    Lease(SessionId),
    /// The readers of a group have had their time.
    Drain(Incarnation),
    /// A group's last copy has had its time to be offloaded.
    Hold(Incarnation),
    /// A call's deadline.
    Call(Incarnation, OpSeq),
    /// A manifest that nobody refers to may go.
    Blob(ContentDigest),
    /// A group has had its time to come over from an earlier term.
    Recovery(Incarnation),
    /// All clients of an earlier term have had theirs.
    Window,
}

/// Times in order. Timers are not taken back: whoever one is for looks whether it still applies.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BTreeSet<(Time, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn cancel(&mut self, at: Time, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    /// Forgets all but the manifests.
    pub(super) fn keep_blobs(&mut self) {
        self.0.retain(|(_, timer)| matches!(timer, Timer::Blob(_)));
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
