//! One connection's place, and how readily it is given up.

use crate::base::limits::{BUSY_GRACE, MIN_BUSY_RATE, NEWCOMER_GRACE};
use crate::base::lock::lock;
use crate::port::holder::Holder;
use crate::wire::socket::Socket;
use std::net::IpAddr;
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

    /// The host that it comes from, unless it is a process of this host.
    pub(crate) fn host(&self) -> Option<IpAddr> {
        self.holder.host()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    const MOMENT: Duration = Duration::from_nanos(1);
    const LEAST: u64 = MIN_BUSY_RATE * BUSY_GRACE.as_secs();

    /// A place that was taken now. Nobody is at the other end.
    fn seat() -> (ConnectionSeat, Instant) {
        let now = Instant::now();
        let socket = Arc::new(Socket::Local(UnixStream::pair().unwrap().0));
        (ConnectionSeat::new(socket, Holder::Process(1), now), now)
    }

    #[test]
    fn who_comes_in_is_left_alone_for_a_while() {
        let (seat, now) = seat();
        assert_eq!(seat.worth(now), Some(Worth::Idle(now)));
        let come = now + Duration::from_secs(9);
        seat.begin(come);
        let until = come + NEWCOMER_GRACE;
        assert_eq!(seat.worth(come), Some(Worth::Busy(0)));
        assert_eq!(seat.worth(until - MOMENT), Some(Worth::Busy(0)));
        assert_eq!(seat.worth(until), Some(Worth::Idle(until)));
        seat.rest(until + MOMENT);
        assert_eq!(seat.worth(until + MOMENT), Some(Worth::Idle(until)), "it has not worked");
        assert!(seat.work(come));
        seat.begin(come);
        assert_eq!(seat.worth(come), Some(Worth::Busy(0)));
        assert_eq!(seat.worth(come + BUSY_GRACE), Some(Worth::Slow(0)), "it has begun already");
    }

    #[test]
    fn who_is_busy_for_long_with_little_is_slow() {
        for (taken, worth) in [
            (0, Worth::Slow(0)),
            (BUSY_GRACE.as_secs() * 3 + 1, Worth::Slow(3)),
            (LEAST - 1, Worth::Slow(MIN_BUSY_RATE - 1)),
            (LEAST, Worth::Busy(LEAST)),
            (LEAST + 1, Worth::Busy(LEAST + 1)),
        ] {
            let (seat, now) = seat();
            assert!(seat.work(now));
            seat.moved(1);
            seat.moved(taken as usize);
            assert_eq!(seat.taken(), taken + 1);
            seat.taken.fetch_sub(1, Ordering::Relaxed);
            assert_eq!(seat.worth(now), Some(Worth::Busy(taken)));
            assert_eq!(seat.worth(now + BUSY_GRACE - MOMENT), Some(Worth::Busy(taken)));
            assert_eq!(seat.worth(now + BUSY_GRACE), Some(worth), "{taken}");
            // The same bytes in twice the time.
            let later = Some(Worth::Slow(taken / BUSY_GRACE.as_secs() / 2));
            assert_eq!(seat.worth(now + 2 * BUSY_GRACE), later, "{taken}");
        }
    }

    #[test]
    fn a_rest_ends_the_work_only_if_it_is_long() {
        for (rest, goes_on) in
            [(Duration::ZERO, true), (BUSY_GRACE - MOMENT, true), (BUSY_GRACE, false)]
        {
            let (seat, now) = seat();
            assert!(seat.work(now));
            seat.moved(77);
            let rested = now + Duration::from_secs(2);
            assert!(seat.work(rested), "it asks again");
            seat.rest(rested);
            assert_eq!(seat.worth(rested), Some(Worth::Idle(rested)));
            seat.rest(rested + MOMENT);
            assert_eq!(seat.worth(rested + rest), Some(Worth::Idle(rested)), "since the first");
            assert!(seat.work(rested + rest));
            assert_eq!(seat.taken(), if goes_on { 77 } else { 0 });
            let long = now + BUSY_GRACE + rest;
            let expected = match goes_on {
                true => Worth::Slow(77 / (long - now).as_secs()),
                false => Worth::Busy(0),
            };
            assert_eq!(seat.worth(long), Some(expected), "{rest:?}");
        }
    }

    /// Idle, slow and busy, against what was seen of it.
    #[test]
    fn a_place_is_lost_unless_it_has_become_worth_more() {
        let worths = |now| [Worth::Idle(now), Worth::Slow(9), Worth::Busy(9)];
        for (is, seen) in (0..3).flat_map(|is| (0..3).map(move |seen| (is, seen))) {
            let (seat, begun) = seat();
            let now = begun + 2 * BUSY_GRACE;
            if is > 0 {
                assert!(seat.work(if is == 1 { begun } else { now }));
            }
            assert_eq!(seat.worth(now).map(Worth::rank), Some(is as u8));
            assert_eq!(worths(now)[seen].rank(), seen as u8);
            let lost = seat.lose(worths(now)[seen], now);
            assert_eq!((lost, seat.is_lost()), (is <= seen, is <= seen), "{is} seen as {seen}");
            assert_eq!(seat.worth(now).is_none(), lost);
            assert_eq!(seat.work(now), !lost);
            seat.rest(now);
            seat.begin(now);
            assert_eq!((seat.is_lost(), seat.work(now)), (lost, !lost), "for good");
            if lost {
                assert!(!seat.lose(Worth::Busy(0), now), "once");
            }
        }
    }

    #[test]
    fn who_loses_the_place_loses_the_connection() {
        let (here, there) = UnixStream::pair().unwrap();
        let (socket, now) = (Arc::new(Socket::Local(here)), Instant::now());
        let seat = ConnectionSeat::new(Arc::clone(&socket), Holder::Process(1), now);
        assert!(seat.work(now) && !seat.lose(Worth::Slow(0), now) && socket.is_connected());
        seat.rest(now);
        assert!(seat.lose(Worth::Idle(now), now) && !socket.is_connected());
        drop(there);
    }

    /// By which it is told from those that sip.
    #[test]
    fn what_is_sent_counts_as_taken() {
        let (here, there) = UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::Local(here));
        let seat = ConnectionSeat::new(socket, Holder::Process(1), Instant::now());
        let mut output = crate::port::answer_writer::AnswerWriter::default();
        output.pending.extend(b"header");
        output.send(&seat, b"and bytes").unwrap();
        assert_eq!(seat.taken(), 15);
        drop(there);
    }

    /// So does what is written here, granted or not: otherwise an honest writer would seem to sip.
    #[test]
    fn what_is_written_counts_as_taken() {
        use crate::base::secret::Auth;
        use crate::port::serve::{Connection, Desk};
        use crate::wire::mac::Nonces;
        use crate::wire::{FrameKind, Header};
        use std::io::Write;
        let desk = Desk::new(None, Auth::default().word_key());
        let (here, mut there) = UnixStream::pair().unwrap();
        let socket = Arc::new(Socket::Local(here));
        let seat = ConnectionSeat::new(socket, Holder::Process(1), Instant::now());
        // A claim without extents, a proof, and five bytes.
        let body = [0; 24 + 32 + 5];
        there.write_all(&Header::new(FrameKind::Write, body.len()).encode()).unwrap();
        there.write_all(&body).unwrap();
        there.shutdown(std::net::Shutdown::Write).unwrap();
        Connection::new(&seat, &desk, Nonces::NONE).run().unwrap();
        assert_eq!(seat.taken(), body.len() as u64 + 16, "and the refusal");
    }
}
