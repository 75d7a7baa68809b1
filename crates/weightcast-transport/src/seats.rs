//! The places of a data port: who holds one, and who gives his up for a newcomer.

use crate::exports::lock;
use crate::limits::MAX_UNAUTHENTICATED;
use std::collections::{BTreeSet, HashMap};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One connection's place.
pub(crate) struct Seat {
    pub(crate) socket: Arc<TcpStream>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing is under way since then.
    Idle(Instant),
    /// A request has begun to arrive or is being answered.
    Busy,
    /// A newcomer has the place; the connection is shut down.
    Lost,
}

impl Seat {
    fn new(socket: Arc<TcpStream>) -> Self {
        Self { socket, state: Mutex::new(State::Idle(Instant::now())) }
    }

    /// Notes that nothing is under way.
    pub(crate) fn rest(&self) {
        let mut state = lock(&self.state);
        if *state == State::Busy {
            *state = State::Idle(Instant::now());
        }
    }

    /// Notes that a request has begun. False if the place was lost before.
    pub(crate) fn work(&self) -> bool {
        let mut state = lock(&self.state);
        if *state == State::Lost {
            return false;
        }
        *state = State::Busy;
        true
    }

    fn idle_since(&self) -> Option<Instant> {
        match *lock(&self.state) {
            State::Idle(since) => Some(since),
            State::Busy | State::Lost => None,
        }
    }

    /// Ends the connection, unless it is busy or was ended before.
    fn lose(&self) -> bool {
        let mut state = lock(&self.state);
        let idle = matches!(*state, State::Idle(_));
        if idle {
            *state = State::Lost;
            let _already_gone = self.socket.shutdown(Shutdown::Both);
        }
        idle
    }
}

/// All places of a port.
pub(crate) struct Seats {
    limit: usize,
    open: HashMap<u64, Arc<Seat>>,
    /// Those that have not proved themselves, the oldest first.
    unauthenticated: BTreeSet<u64>,
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
            unauthenticated: BTreeSet::new(),
            lost: 0,
            next: 0,
            closing: false,
        }
    }

    /// A place for a newcomer, or none if all are busy. A flood must not keep readers out: the
    /// oldest of too many strangers leaves, and of too many connections the longest idle.
    pub(crate) fn enter(&mut self, socket: &Arc<TcpStream>) -> Option<(u64, Arc<Seat>)> {
        // Threads of lost places end soon, but they are threads.
        if self.closing || self.open.len() >= 2 * self.limit {
            return None;
        }
        if self.unauthenticated.len() >= MAX_UNAUTHENTICATED
            && let Some(oldest) = self.unauthenticated.pop_first()
        {
            self.dismiss(oldest);
        }
        if self.taken() >= self.limit && !self.make_room() {
            return None;
        }
        self.next += 1;
        let seat = Arc::new(Seat::new(Arc::clone(socket)));
        self.open.insert(self.next, Arc::clone(&seat));
        self.unauthenticated.insert(self.next);
        Some((self.next, seat))
    }

    pub(crate) fn leave(&mut self, number: u64) {
        self.unauthenticated.remove(&number);
        if let Some(seat) = self.open.remove(&number)
            && *lock(&seat.state) == State::Lost
        {
            self.lost -= 1;
        }
    }

    /// Notes that a connection has proved itself.
    pub(crate) fn admit(&mut self, number: u64) {
        self.unauthenticated.remove(&number);
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
        for seat in self.open.values() {
            let _already_gone = seat.socket.shutdown(Shutdown::Both);
        }
    }

    /// Ends the connection that has been idle longest. False if all are busy.
    fn make_room(&mut self) -> bool {
        loop {
            let idle = self.open.iter().filter_map(|(n, seat)| Some((seat.idle_since()?, *n)));
            let Some((_, longest)) = idle.min() else { return false };
            // It may have become busy since.
            if self.dismiss(longest) {
                return true;
            }
        }
    }

    fn dismiss(&mut self, number: u64) -> bool {
        let dismissed = self.open.get(&number).is_some_and(|seat| seat.lose());
        if dismissed {
            self.unauthenticated.remove(&number);
            self.lost += 1;
        }
        dismissed
    }
}
