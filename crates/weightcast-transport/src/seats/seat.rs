//! One connection's place, and how readily it is given up.

use super::Holder;
use crate::exports::lock;
use crate::limits::{BUSY_GRACE, MIN_BUSY_RATE, NEWCOMER_GRACE};
use crate::socket::Socket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One connection's place.
pub(crate) struct ConnectionSeat {
    pub(crate) socket: Arc<Socket>,
    pub(super) holder: Holder,
    state: Mutex<State>,
    /// Bytes that the peer has taken since it became busy.
    taken: AtomicU64,
}

/// Busy is who asks again and again as well: only a long rest ends that.
#[derive(Clone, Copy)]
enum State {
    /// Nothing is under way since then, which lies ahead of who has just come; before, it was busy
    /// since `begun`.
    Idle { since: Instant, begun: Option<Instant> },
    /// Requests arrive or are being answered.
    Busy { begun: Instant },
    /// A newcomer has the place; the connection is shut down.
    Lost,
}

/// What a place is worth to who holds it, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// Nothing is under way since then.
    Idle(Instant),
    /// Busy for long with so many bytes a second, which is little.
    Slow(u64),
    /// Busy; it has taken so many bytes.
    Busy(u64),
}

impl Worth {
    /// Whether it is of the same kind as `other`, or of a lesser one.
    fn is_no_more_than(self, other: Self) -> bool {
        self.rank() <= other.rank()
    }

    pub(super) fn rank(self) -> u8 {
        match self {
            Self::Idle(_) => 0,
            Self::Slow(_) => 1,
            Self::Busy(_) => 2,
        }
    }
}

impl ConnectionSeat {
    pub(super) fn new(socket: Arc<Socket>, holder: Holder, now: Instant) -> Self {
        let state = Mutex::new(State::Idle { since: now, begun: None });
        Self { socket, holder, state, taken: AtomicU64::new(0) }
    }

    /// Notes that it has been let in, and is about to ask.
    pub(super) fn begin(&self, now: Instant) {
        let mut state = lock(&self.state);
        if let State::Idle { since, .. } = &mut *state {
            *since = now + NEWCOMER_GRACE;
        }
    }

    /// Notes that nothing is under way.
    pub(crate) fn rest(&self, now: Instant) {
        let mut state = lock(&self.state);
        if let State::Busy { begun } = *state {
            *state = State::Idle { since: now, begun: Some(begun) };
        }
    }

    /// Notes that a request has begun. False if the place was lost before.
    pub(crate) fn work(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let begun = match *state {
            State::Lost => return false,
            State::Busy { begun } => Some(begun),
            State::Idle { since, begun } => {
                begun.filter(|_| now.saturating_duration_since(since) < BUSY_GRACE)
            }
        };
        if begun.is_none() {
            self.taken.store(0, Ordering::Relaxed);
        }
        *state = State::Busy { begun: begun.unwrap_or(now) };
        true
    }

    /// Notes that the peer has taken so many bytes.
    pub(crate) fn moved(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(*lock(&self.state), State::Lost)
    }

    /// What the place is worth; nothing if it is lost.
    pub(super) fn worth(&self, now: Instant) -> Option<Worth> {
        self.worth_in(*lock(&self.state), now)
    }

    fn worth_in(&self, state: State, now: Instant) -> Option<Worth> {
        match state {
            State::Lost => None,
            State::Idle { since, .. } if since > now => Some(Worth::Busy(0)),
            State::Idle { since, .. } => Some(Worth::Idle(since)),
            State::Busy { begun } => {
                let (taken, busy) = (self.taken(), now.saturating_duration_since(begun));
                let rate = taken / busy.as_secs().max(1);
                let is_slow = busy >= BUSY_GRACE && rate < MIN_BUSY_RATE;
                Some(if is_slow { Worth::Slow(rate) } else { Worth::Busy(taken) })
            }
        }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Ends the connection, unless it has become worth more meanwhile, or was ended before.
    pub(super) fn lose(&self, seen: Worth, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let worth = self.worth_in(*state, now);
        let lost = worth.is_some_and(|worth| worth.is_no_more_than(seen));
        if lost {
            *state = State::Lost;
            self.socket.shut_down();
        }
        lost
    }
}
