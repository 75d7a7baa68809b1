//! What the server waits for: one queue of times, each with what is due then.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{ContentDigest, Incarnation, Nonce, OpSeq, SessionId, Time};

/// What is due. The order breaks ties: readers are cut, and offloads given up,
/// before the call that waits for them ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::server) enum Timer {
    /// A session's lease may have run out.
    Lease(SessionId),
    /// A session has had no stream for a while.
    Unheard(SessionId),
    /// The readers of a group have had their time.
    Drain(Incarnation),
    /// The two groups of a challenge have had their time to answer.
    Proof(Nonce),
    /// A claimant whose comparison came to nothing may be compared again.
    Retry(Incarnation),
    /// A group's last copy has had its time to be offloaded.
    Hold(Incarnation),
    /// A call's deadline.
    Call(Incarnation, OpSeq),
    /// The grace time of a manifest without references is over.
    Blob(ContentDigest),
    /// A group has had its time to come over from an earlier term.
    Recovery(Incarnation),
    /// All clients of an earlier term have had theirs.
    Window,
}

/// Times in order, one for each timer. The handler of a timer checks whether it still applies, so a
/// timer may be late or moot. Setting a timer again moves it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Timers {
    queue: BTreeSet<(Time, Timer)>,
    at: BTreeMap<Timer, Time>,
}

impl Timers {
    /// Sets a timer, or moves it.
    pub(in crate::server) fn set(&mut self, at: Time, timer: Timer) {
        self.cancel(timer);
        self.at.insert(timer, at);
        self.queue.insert((at, timer));
    }

    /// Postpones the timers of a kind that are due earlier.
    pub(in crate::server) fn postpone(&mut self, until: Time, kind: impl Fn(&Timer) -> bool) {
        let early = self.queue.iter().take_while(|(at, _)| *at < until);
        let early: Vec<Timer> = early.map(|(_, timer)| *timer).filter(kind).collect();
        early.into_iter().for_each(|timer| self.set(until, timer));
    }

    pub(in crate::server) fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.queue.remove(&(at, timer));
        }
    }

    /// Forgets the timers of a group that is gone.
    pub(in crate::server) fn forget_group(&mut self, group: Incarnation) {
        [Timer::Drain, Timer::Retry, Timer::Hold, Timer::Recovery]
            .into_iter()
            .for_each(|timer| self.cancel(timer(group)));
    }

    /// Forgets all timers except those of manifests.
    pub(in crate::server) fn keep_blobs(&mut self) {
        let kept = |timer: &Timer| matches!(timer, Timer::Blob(_));
        self.queue.retain(|(_, timer)| kept(timer));
        self.at.retain(|timer, _| kept(timer));
    }

    pub(in crate::server) fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.queue.iter().map(|(_, timer)| timer)
    }

    pub(in crate::server) fn next(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| *at)
    }

    pub(in crate::server) fn pop_due(&mut self, now: Time) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.queue.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Term;

    fn group(number: u64) -> Incarnation {
        Incarnation { term: Term(1), number }
    }

    /// One of each kind, of whatever has this number; in the order in which ties are broken.
    fn timers(of: u64) -> [Timer; 9] {
        [
            Timer::Lease(SessionId(of.into())),
            Timer::Drain(group(of)),
            Timer::Proof(Nonce(of)),
            Timer::Retry(group(of)),
            Timer::Hold(group(of)),
            Timer::Call(group(of), OpSeq(of)),
            Timer::Blob(ContentDigest([of as u8; 16])),
            Timer::Recovery(group(of)),
            Timer::Window,
        ]
    }

    #[test]
    fn what_is_due_at_one_time_comes_in_an_order_of_kinds() {
        let mut queue = Timers::default();
        timers(1).into_iter().rev().for_each(|timer| queue.set(Time(5), timer));
        assert_eq!((queue.next(), queue.pop_due(Time(4))), (Some(Time(5)), None));
        let due: Vec<Timer> = std::iter::from_fn(|| queue.pop_due(Time(5))).collect();
        assert_eq!(due, timers(1));
        assert_eq!((queue.next(), queue.iter().next()), (None, None));
    }

    #[test]
    fn a_group_that_is_gone_is_waited_for_no_more_and_nobody_else_is_forgotten() {
        let mut queue = Timers::default();
        for of in [1, 2] {
            timers(of).into_iter().for_each(|timer| queue.set(Time(of), timer));
        }
        queue.forget_group(group(1));
        let left: Vec<Timer> = queue.iter().copied().collect();
        let [lease, _, proof, _, _, call, blob, ..] = timers(1);
        let expected: Vec<Timer> =
            [lease, proof, call, blob].into_iter().chain(timers(2)).collect();
        assert_eq!(left, expected, "a call is ended by whoever ends the group");
    }

    /// Against a list of what is waited for, which is looked through each time.
    #[test]
    fn whatever_is_set_moved_and_forgotten_comes_once_and_when_it_was_set_last() {
        let mut seed = 1u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut queue, mut expected) = (Timers::default(), BTreeMap::<Timer, Time>::new());
        for _ in 0..20_000 {
            let (at, of) = (Time(draw(20)), draw(3));
            let timer = timers(of)[draw(9) as usize];
            match draw(20) {
                0..10 => {
                    queue.set(at, timer);
                    expected.insert(timer, at);
                }
                10..13 => {
                    queue.cancel(timer);
                    expected.remove(&timer);
                }
                13 | 14 => {
                    let kind = |timer: &Timer| matches!(timer, Timer::Hold(_) | Timer::Window);
                    queue.postpone(at, kind);
                    let moved = expected.iter_mut().filter(|(timer, _)| kind(timer));
                    moved.for_each(|(_, due)| *due = at.max(*due));
                }
                15 => {
                    queue.keep_blobs();
                    expected.retain(|timer, _| matches!(timer, Timer::Blob(_)));
                }
                _ => {
                    let due = expected.iter().map(|(timer, due)| (*due, *timer)).min();
                    let due = due.filter(|(due, _)| *due <= at).map(|(_, timer)| timer);
                    assert_eq!(queue.pop_due(at), due);
                    due.and_then(|due| expected.remove(&due));
                }
            }
            let mut left: Vec<(Time, Timer)> = expected.iter().map(|(t, at)| (*at, *t)).collect();
            left.sort();
            assert_eq!(queue.next(), left.first().map(|(at, _)| *at));
            assert!(queue.iter().eq(left.iter().map(|(_, timer)| timer)));
            assert_eq!(queue.at, expected, "nothing is kept of what is forgotten");
        }
    }
}
