//! Room in bytes for large transfers, given to one origin after another: an origin that asks a
//! thousand times delays only itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use tonic::{Code, Status};

/// Where a connection comes from: a host, or a process of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientOrigin {
    Host(IpAddr),
    Process(i32),
}

/// The answer that asks a client to try again: more requests wait than there are places for.
pub(crate) const BUSY: Code = Code::Aborted;

pub(super) fn busy() -> Status {
    Status::new(BUSY, "too many wait to send or fetch what is large: try again")
}

/// Room for transfers of one kind; clones share it.
#[derive(Clone)]
pub(super) struct FairQueue(Arc<Mutex<QueueBook<oneshot::Sender<QueueShare>>>>);

/// Room that was given to one transfer, until it is dropped.
pub(super) struct QueueShare {
    queue: FairQueue,
    bytes: usize,
}

impl FairQueue {
    /// A queue with `bytes` of room, and `places` for transfers that wait.
    pub(super) fn new(bytes: usize, places: usize) -> Self {
        Self(Arc::new(Mutex::new(QueueBook::new(bytes, places))))
    }

    fn book(&self) -> MutexGuard<'_, QueueBook<oneshot::Sender<QueueShare>>> {
        self.0.lock().expect("no panic while held")
    }

    /// Waits for this origin's turn, and takes `bytes` of room.
    ///
    /// # Errors
    /// Too many transfers wait, and no origin has more of them than this one.
    pub(super) async fn take(
        &self,
        origin: ClientOrigin,
        bytes: usize,
    ) -> Result<QueueShare, Status> {
        let (given, share) = oneshot::channel();
        let (place, crowded_out) = self.book().ask(origin, bytes, given);
        // The drop tells the transfer that lost its place.
        drop(crowded_out);
        let _waits = Waits { queue: self, origin, place };
        self.give();
        share.await.map_err(|_| busy())
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.book().free
    }

    /// Gives room to transfers in turn, as long as there is enough.
    fn give(&self) {
        loop {
            let Some((bytes, to)) = self.book().next() else { return };
            // If the transfer has gone meanwhile, the dropped share gives its room back.
            drop(to.send(QueueShare { queue: self.clone(), bytes }));
        }
    }
}

/// A transfer that waits; if it is dropped before its turn, it leaves the queue.
struct Waits<'a> {
    queue: &'a FairQueue,
    origin: ClientOrigin,
    place: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let left = self.queue.book().leave(self.origin, self.place);
        // The transfer may have been the next one, and too large for the room: others may fit now.
        if left {
            self.queue.give();
        }
    }
}

impl QueueShare {
    /// Keeps `bytes` of the room, and gives back the rest.
    pub(super) fn keep(&mut self, bytes: usize) {
        let unused = self.bytes.saturating_sub(bytes);
        self.bytes -= unused;
        self.queue.book().free += unused;
        self.queue.give();
    }
}

impl Drop for QueueShare {
    fn drop(&mut self) {
        self.keep(0);
    }
}

/// The waiting transfers, and the room that is free.
struct QueueBook<T> {
    room: usize,
    free: usize,
    places: usize,
    waiting: usize,
    last_place: u64,
    /// The waiting transfers of each origin, in the order in which they came.
    queues: BTreeMap<ClientOrigin, BTreeMap<u64, (usize, T)>>,
    /// The origins with waiting transfers, the next one first.
    turns: VecDeque<ClientOrigin>,
}

impl<T> QueueBook<T> {
    fn new(room: usize, places: usize) -> Self {
        Self {
            room,
            free: room,
            places,
            waiting: 0,
            last_place: 0,
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Adds a waiting transfer. Returns its place, and the transfer that loses its place if there
    /// are too few: the newest of the origin with the most.
    fn ask(&mut self, origin: ClientOrigin, bytes: usize, who: T) -> (u64, Option<T>) {
        self.last_place += 1;
        self.waiting += 1;
        let queue = self.queues.entry(origin).or_default();
        if queue.is_empty() {
            self.turns.push_back(origin);
        }
        // A request for more than all the room would wait for ever.
        queue.insert(self.last_place, (bytes.min(self.room), who));
        // If the next transfer fits, it is about to leave its place.
        let crowded = self.waiting > self.places && !self.fits();
        (self.last_place, if crowded { self.crowd_out(origin) } else { None })
    }

    fn crowd_out(&mut self, newcomer: ClientOrigin) -> Option<T> {
        let most = |(origin, queue): &(&ClientOrigin, &BTreeMap<_, _>)| {
            (queue.len(), **origin == newcomer)
        };
        let (&origin, queue) = self.queues.iter().max_by_key(most)?;
        let newest = *queue.last_key_value()?.0;
        self.remove(origin, newest).map(|(_, who)| who)
    }

    fn first(&self) -> Option<(ClientOrigin, u64, usize)> {
        let origin = *self.turns.front()?;
        let (place, (bytes, _)) = self.queues.get(&origin)?.first_key_value()?;
        Some((origin, *place, *bytes))
    }

    fn fits(&self) -> bool {
        self.first().is_some_and(|(_, _, bytes)| bytes <= self.free)
    }

    /// Takes the transfer whose turn it is, if there is room. The next turn is another origin's.
    fn next(&mut self) -> Option<(usize, T)> {
        let (origin, place, bytes) = self.first().filter(|(_, _, bytes)| *bytes <= self.free)?;
        self.turns.rotate_left(1);
        let (_, who) = self.remove(origin, place)?;
        self.free -= bytes;
        Some((bytes, who))
    }

    /// Removes a transfer. False if it did not wait any more.
    fn leave(&mut self, origin: ClientOrigin, place: u64) -> bool {
        self.remove(origin, place).is_some()
    }

    fn remove(&mut self, origin: ClientOrigin, place: u64) -> Option<(usize, T)> {
        let queue = self.queues.get_mut(&origin)?;
        let removed = queue.remove(&place)?;
        self.waiting -= 1;
        if queue.is_empty() {
            self.queues.remove(&origin);
            self.turns.retain(|other| *other != origin);
        }
        Some(removed)
    }
}

#[cfg(test)]
mod tests;
