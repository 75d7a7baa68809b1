//! The places of a data port: who holds one, and who gives his up for a newcomer.
//!
//! A stranger has a place of another kind, of which there are few, and cannot drive anybody out but
//! another stranger. Who has proved the token gets a place; where there is none left, he gets that
//! of whoever needs it least: a connection that is idle, or one that has been busy for long with
//! little. Whose peer holds more places gives one up first.

use crate::exports::lock;
use crate::limits::{BUSY_GRACE, MAX_PROCESS_CONNECTIONS, MAX_UNAUTHENTICATED, MIN_BUSY_RATE};
use crate::socket::Socket;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Who holds a place, as far as that is not his to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A process of this host, as the kernel says.
    Process(i32),
    /// An address, or the network that one host has to itself. The token is the job's, so over TCP
    /// nothing tells processes of one host apart.
    Address(IpAddr),
}

impl Holder {
    pub(crate) fn of_address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

/// One connection's place.
pub(crate) struct Seat {
    pub(crate) socket: Arc<Socket>,
    holder: Holder,
    state: Mutex<State>,
    /// Bytes that the peer has taken since it became busy.
    taken: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is under way since then.
    Idle(Instant),
    /// Since then requests arrive or are being answered.
    Busy(Instant),
    /// A newcomer has the place; the connection is shut down.
    Lost,
}

/// How readily a place is given up: the least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Idle(Instant),
    /// Bytes a second.
    Slow(u64),
}

impl Seat {
    fn new(socket: Arc<Socket>, holder: Holder, now: Instant) -> Self {
        let (state, taken) = (Mutex::new(State::Idle(now)), AtomicU64::new(0));
        Self { socket, holder, state, taken }
    }

    /// Notes that nothing is under way.
    pub(crate) fn rest(&self, now: Instant) {
        let mut state = lock(&self.state);
        if matches!(*state, State::Busy(_)) {
            *state = State::Idle(now);
        }
    }

    /// Notes that a request has begun. False if the place was lost before.
    pub(crate) fn work(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        if *state == State::Lost {
            return false;
        }
        self.taken.store(0, Ordering::Relaxed);
        *state = State::Busy(now);
        true
    }

    /// Notes that the peer has taken so many bytes.
    pub(crate) fn moved(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What the place is worth, if it may be given up at all.
    fn worth(&self, state: State, now: Instant) -> Option<Worth> {
        match state {
            State::Idle(since) => Some(Worth::Idle(since)),
            State::Lost => None,
            State::Busy(since) => {
                let busy = now.saturating_duration_since(since);
                let rate = self.taken.load(Ordering::Relaxed) / busy.as_secs().max(1);
                (busy >= BUSY_GRACE && rate < MIN_BUSY_RATE).then_some(Worth::Slow(rate))
            }
        }
    }

    /// Ends the connection, unless it has become worth its place, or was ended before.
    fn lose(&self, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let lost = self.worth(*state, now).is_some();
        if lost {
            *state = State::Lost;
            self.socket.shut_down();
        }
        lost
    }
}

/// All places of a port.
pub(crate) struct Seats {
    limit: usize,
    open: HashMap<u64, Arc<Seat>>,
    /// Those that have not proved themselves, the oldest first.
    strangers: BTreeSet<u64>,
    /// How many of the open lost their place; their threads are about to notice.
    lost: usize,
    next: u64,
    /// Whether nobody is let in any more.
    pub(crate) closing: bool,
}

impl Seats {
    /// `limit` places, one at least.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            open: HashMap::new(),
            strangers: BTreeSet::new(),
            lost: 0,
            next: 0,
            closing: false,
        }
    }

    /// A stranger's place for a newcomer: the oldest of too many leaves.
    pub(crate) fn enter(
        &mut self,
        socket: &Arc<Socket>,
        holder: Holder,
        now: Instant,
    ) -> Option<(u64, Arc<Seat>)> {
        // Threads of lost places end soon, but they are threads.
        if self.closing || self.open.len() >= 2 * (self.limit + MAX_UNAUTHENTICATED) {
            return None;
        }
        if self.strangers.len() >= MAX_UNAUTHENTICATED {
            self.dismiss_stranger(now);
        }
        self.next += 1;
        let seat = Arc::new(Seat::new(Arc::clone(socket), holder, now));
        self.open.insert(self.next, Arc::clone(&seat));
        self.strangers.insert(self.next);
        Some((self.next, seat))
    }

    pub(crate) fn leave(&mut self, number: u64) {
        self.strangers.remove(&number);
        if let Some(seat) = self.open.remove(&number)
            && *lock(&seat.state) == State::Lost
        {
            self.lost -= 1;
        }
    }

    /// A place for a stranger that has proved himself. False if all are worth more.
    pub(crate) fn admit(&mut self, number: u64, now: Instant) -> bool {
        // One that a newer stranger drove out takes nobody's place.
        if !self.strangers.contains(&number) {
            return false;
        }
        let Some(seat) = self.open.get(&number) else { return false };
        let holder = seat.holder;
        let of_holder = |seat: &Seat| seat.holder == holder;
        if matches!(holder, Holder::Process(_))
            && self.members().filter(|(_, seat)| of_holder(seat)).count() >= MAX_PROCESS_CONNECTIONS
            && !self.make_room(now, of_holder)
        {
            return false;
        }
        if self.members().count() >= self.limit && !self.make_room(now, |_| true) {
            return false;
        }
        self.strangers.remove(&number)
    }

    /// Places in use.
    pub(crate) fn taken(&self) -> usize {
        self.open.len() - self.lost
    }

    /// True if no connection's thread runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Ends all connections, busy or not.
    pub(crate) fn close(&self) {
        self.open.values().for_each(|seat| seat.socket.shut_down());
    }

    /// Gives a descriptor back that somebody needs more: a stranger's, or the least worth's. False
    /// if there is none.
    pub(crate) fn give_way(&mut self, now: Instant) -> bool {
        self.dismiss_stranger(now) || self.make_room(now, |_| true)
    }

    /// Those that have proved themselves and hold a place.
    fn members(&self) -> impl Iterator<Item = (u64, &Arc<Seat>)> {
        let seats = self.open.iter().filter(|(number, _)| !self.strangers.contains(number));
        seats.map(|(n, seat)| (*n, seat)).filter(|(_, seat)| *lock(&seat.state) != State::Lost)
    }

    fn dismiss_stranger(&mut self, now: Instant) -> bool {
        self.strangers.first().copied().is_some_and(|oldest| self.dismiss(oldest, now))
    }

    /// Ends the connection that is worth the least, of those that may. False if none may.
    fn make_room(&mut self, now: Instant, may: impl Fn(&Seat) -> bool) -> bool {
        // Each time that one became busy meanwhile, another is looked for.
        (0..=self.open.len()).any(|_| {
            let mut held: HashMap<Holder, usize> = HashMap::new();
            self.members().for_each(|(_, seat)| *held.entry(seat.holder).or_default() += 1);
            let candidates =
                self.members().filter(|(_, seat)| may(seat)).filter_map(|(n, seat)| {
                    let worth = seat.worth(*lock(&seat.state), now)?;
                    let is_slow = matches!(worth, Worth::Slow(_));
                    Some((is_slow, Reverse(held[&seat.holder]), worth, n))
                });
            let least = candidates.min().map(|(_, _, _, number)| number);
            least.is_some_and(|number| self.dismiss(number, now))
        })
    }

    fn dismiss(&mut self, number: u64, now: Instant) -> bool {
        let dismissed = self.open.get(&number).is_some_and(|seat| seat.lose(now));
        if dismissed {
            self.strangers.remove(&number);
            self.lost += 1;
        }
        dismissed
    }
}

#[cfg(test)]
mod tests;
