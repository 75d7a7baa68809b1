//! What the server waits for: one queue of times, each with what is due then.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ContentDigest, Incarnation, Nonce, OpSeq, SessionId, Time};

/// What is due. The order breaks ties: readers are cut, and offloads given up,
/// before the call that waits for them ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A session's lease may have run out.
    Lease(SessionId),
    /// The readers of a group have had their time.
    Drain(Incarnation),
    /// Those who were asked for proofs have had their time.
    Proof(Nonce),
    /// A group that did not show its copy, or not beside the right one, may do so now.
    Retry(Incarnation),
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

/// Times in order, one for each timer: whoever one is for looks whether it still applies, so it may be
/// set anew, but it never waits twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Time, Timer)>,
    at: BTreeMap<Timer, Time>,
}

impl Timers {
    /// Sets a timer, or moves it.
    pub(super) fn set(&mut self, at: Time, timer: Timer) {
        self.cancel(timer);
        self.at.insert(timer, at);
        self.queue.insert((at, timer));
    }

    /// Moves those that are due before, of a kind.
    pub(super) fn postpone(&mut self, until: Time, kind: impl Fn(&Timer) -> bool) {
        let early = self.queue.iter().take_while(|(at, _)| *at < until);
        let early: Vec<Timer> = early.map(|(_, timer)| *timer).filter(kind).collect();
        early.into_iter().for_each(|timer| self.set(until, timer));
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// A group is gone, and with it what it would wait for.
    pub(super) fn forget_group(&mut self, group: Incarnation) {
        [Timer::Drain, Timer::Retry, Timer::Hold, Timer::Recovery]
            .into_iter()
            .for_each(|timer| self.cancel(timer(group)));
    }

    /// Forgets all but the manifests.
    pub(super) fn keep_blobs(&mut self) {
        let kept = |timer: &Timer| matches!(timer, Timer::Blob(_));
        self.queue.retain(|(_, timer)| kept(timer));
        self.at.retain(|timer, _| kept(timer));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.queue.iter().map(|(_, timer)| timer)
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.queue.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }
}
