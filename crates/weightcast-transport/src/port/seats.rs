//! The places of a data port: which connection has one, and which gives its place to a newcomer.
//!
//! **Easily misread:** a *stranger* (a connection that has not proved the token) has a place of another
//! kind, of which there are few. A stranger can only replace another stranger, of the origin that has
//! most of them.
//!
//! A connection that has proved the token gets a place. If none is free, the least useful connection
//! gives way: first one that is idle, then one that has been busy for long with few bytes, and in
//! neither case one of a holder with fewer places than the newcomer's. If all are busy, a holder with
//! few places takes one from the holder with most. Among equals, the holder with more places gives way.

mod seat;

use crate::base::limits::{BUSY_GRACE, MAX_PROCESS_CONNECTIONS, MAX_UNAUTHENTICATED};
use crate::port::descriptors::Descriptors;
use crate::port::door::makes_room;
use crate::port::holder::Holder;
use crate::wire::socket::Socket;
pub(crate) use seat::ConnectionSeat;
use seat::Worth;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// All places of a port.
pub(crate) struct Seats {
    limit: usize,
    open: HashMap<u64, Arc<ConnectionSeat>>,
    /// Those that have not proved themselves, the oldest first.
    strangers: BTreeSet<u64>,
    /// How many of the open lost their place; their threads are about to notice.
    lost: usize,
    next: u64,
    /// As far as was seen when the last one came.
    descriptors: Descriptors,
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
            descriptors: Descriptors::PLENTY,
            closing: false,
        }
    }

    /// A newcomer's descriptor is number `newest` of the `limit` of the process. Closes as many
    /// connections as the process needs back, if they may be closed: it has opened more of its own.
    /// What is being closed already counts as closed, though its descriptor is still the port's.
    pub(crate) fn look(&mut self, limit: u64, newest: u64, now: Instant) {
        let descriptors = Descriptors::seen(limit, newest, self.open.len() + 1);
        self.descriptors = descriptors;
        let excess = self.members().count().saturating_sub(descriptors.places());
        let gave_way = (0..excess).take_while(|_| self.make_room(None, now, |_| true)).count();
        if excess > 0 {
            tracing::warn!(excess, gave_way, "few descriptors are left: data connections close");
        }
    }

    /// Whether a newcomer had better wait for what is being closed: until then the process would
    /// miss the descriptor.
    pub(crate) fn is_short(&self) -> bool {
        self.lost > 0 && !self.descriptors.can_spare(self.open.len() + 1)
    }

    /// A stranger's place for a newcomer: of too many one leaves. `None` if there is none.
    pub(crate) fn enter(
        &mut self,
        socket: &Arc<Socket>,
        holder: Holder,
        now: Instant,
    ) -> Option<(u64, Arc<ConnectionSeat>)> {
        // Threads of lost places end soon, but they are threads.
        let threads = 2 * (self.limit + MAX_UNAUTHENTICATED);
        let room = self.open.len() < threads && self.descriptors.can_spare(self.open.len() + 1);
        if self.closing || !room {
            return None;
        }
        while self.strangers.len() >= self.door() && self.dismiss_stranger(Some(holder), now) {}
        self.next += 1;
        let seat = Arc::new(ConnectionSeat::new(Arc::clone(socket), holder, now));
        self.open.insert(self.next, Arc::clone(&seat));
        self.strangers.insert(self.next);
        Some((self.next, seat))
    }

    /// Strangers that there may be, one at least.
    fn door(&self) -> usize {
        let free = self.descriptors.places().saturating_sub(self.members().count());
        free.max(self.descriptors.at_the_door()).clamp(1, MAX_UNAUTHENTICATED)
    }

    pub(crate) fn leave(&mut self, number: u64) {
        self.strangers.remove(&number);
        if let Some(seat) = self.open.remove(&number)
            && seat.is_lost()
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
        let Some(seat) = self.open.get(&number).cloned() else { return false };
        let holder = seat.holder;
        let of_holder = |seat: &ConnectionSeat| seat.holder == holder;
        if matches!(holder, Holder::Process(_))
            && self.members().filter(|(_, seat)| of_holder(seat)).count() >= MAX_PROCESS_CONNECTIONS
            && !self.make_room(Some(holder), now, of_holder)
        {
            return false;
        }
        let places = self.limit.min(self.descriptors.places());
        if self.members().count() >= places && !self.make_room(Some(holder), now, |_| true) {
            return false;
        }
        seat.begin(now);
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

    /// Gives back what the system has no more of: a stranger's place, or the least worth's. False
    /// if there is none, or one is being given back already.
    pub(crate) fn give_way(&mut self, now: Instant) -> bool {
        self.lost == 0 && (self.dismiss_stranger(None, now) || self.make_room(None, now, |_| true))
    }

    /// Those that have proved themselves and hold a place.
    fn members(&self) -> impl Iterator<Item = (u64, &Arc<ConnectionSeat>)> {
        let seats = self.open.iter().filter(|(number, _)| !self.strangers.contains(number));
        seats.map(|(n, seat)| (*n, seat)).filter(|(_, seat)| !seat.is_lost())
    }

    fn dismiss_stranger(&mut self, newcomer: Option<Holder>, now: Instant) -> bool {
        let strangers = self.strangers.iter();
        let held = strangers.filter_map(|n| self.open.get(n).map(|seat| (*n, seat.holder)));
        let goes = makes_room(held, newcomer);
        // A stranger's place is never worth more.
        goes.is_some_and(|goes| self.dismiss(goes, Worth::Idle(now), now))
    }

    /// Ends the connection that is worth the least, of those that may, for a newcomer or for the
    /// process. False if none may.
    fn make_room(
        &mut self,
        newcomer: Option<Holder>,
        now: Instant,
        may: impl Fn(&ConnectionSeat) -> bool,
    ) -> bool {
        // Each time that one became busy meanwhile, another is looked for.
        (0..=self.open.len()).any(|_| {
            let mut held: HashMap<Holder, usize> = HashMap::new();
            self.members().for_each(|(_, seat)| *held.entry(seat.holder).or_default() += 1);
            let claim = newcomer.map(|holder| held.get(&holder).copied().unwrap_or_default());
            let candidates = self.members().filter_map(|(number, seat)| {
                let (worth, held) = (seat.worth(now)?, held[&seat.holder]);
                let gives = may(seat) && gives_way(worth, held, claim, now);
                gives.then_some((worth.rank(), Reverse(held), worth, number))
            });
            let least = candidates.min();
            least.is_some_and(|(_, _, worth, number)| self.dismiss(number, worth, now))
        })
    }

    fn dismiss(&mut self, number: u64, seen: Worth, now: Instant) -> bool {
        let dismissed = self.open.get(&number).is_some_and(|seat| seat.lose(seen, now));
        if dismissed {
            self.strangers.remove(&number);
            self.lost += 1;
        }
        dismissed
    }
}

/// Whether a place is given up by one who holds so many, for a newcomer who holds `claim`, or for
/// the process. To have rested for long costs nobody anything. Else whoever has more places already
/// takes none of one who has fewer, and a busy one's only goes where it makes shares more equal.
fn gives_way(worth: Worth, held: usize, claim: Option<usize>, now: Instant) -> bool {
    match worth {
        Worth::Idle(since) if now.saturating_duration_since(since) >= BUSY_GRACE => true,
        Worth::Idle(_) | Worth::Slow(_) => claim.is_none_or(|claim| claim <= held),
        Worth::Busy(_) => claim.is_some_and(|claim| claim + 2 <= held),
    }
}

#[cfg(test)]
mod door_tests;

#[cfg(test)]
mod tests;
