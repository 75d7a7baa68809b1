//! Room in bytes for what is large, given out by turns: to one origin after the other, so that whoever
//! asks a thousand times waits for itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;
use tonic::{Code, Status};

/// Where a connection comes from: a host, or a process of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientOrigin {
    Host(IpAddr),
    Process(i32),
}

/// What the server answers if it is to be asked again: more wait than it has places for.
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
    /// Room for so many bytes, and places for so many that wait.
    pub(super) fn new(bytes: usize, places: usize) -> Self {
        Self(Arc::new(Mutex::new(QueueBook::new(bytes, places))))
    }

    fn book(&self) -> MutexGuard<'_, QueueBook<oneshot::Sender<QueueShare>>> {
        self.0.lock().expect("no panic while held")
    }

    /// Room for so many bytes, once it is this origin's turn.
    ///
    /// # Errors
    /// Too many wait, and nobody more than this origin.
    pub(super) async fn take(
        &self,
        origin: ClientOrigin,
        bytes: usize,
    ) -> Result<QueueShare, Status> {
        let (given, share) = oneshot::channel();
        let (place, crowded_out) = self.book().ask(origin, bytes, given);
        drop(crowded_out);
        let _waits = Waits { queue: self, origin, place };
        self.give();
        share.await.map_err(|_| busy())
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.book().free
    }

    /// Gives out what there is room for.
    fn give(&self) {
        loop {
            let Some((bytes, to)) = self.book().next() else { return };
            // Whoever has gone meanwhile gives it back.
            drop(to.send(QueueShare { queue: self.clone(), bytes }));
        }
    }
}

/// Somebody who may go before it is its turn.
struct Waits<'a> {
    queue: &'a FairQueue,
    origin: ClientOrigin,
    place: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let left = self.queue.book().leave(self.origin, self.place);
        if left {
            self.queue.give();
        }
    }
}

impl QueueShare {
    /// Gives back what turned out not to be needed.
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

/// Who waits for room, and how much of it there is.
struct QueueBook<T> {
    room: usize,
    free: usize,
    places: usize,
    waiting: usize,
    last_place: u64,
    /// Those that wait, of each origin in the order in which they came.
    queues: BTreeMap<ClientOrigin, BTreeMap<u64, (usize, T)>>,
    /// Whose turn it is: all origins of which somebody waits.
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

    /// Lets somebody wait. Also who has no place any more: the newest of the origin of which most wait.
    fn ask(&mut self, origin: ClientOrigin, bytes: usize, who: T) -> (u64, Option<T>) {
        self.last_place += 1;
        self.waiting += 1;
        let queue = self.queues.entry(origin).or_default();
        if queue.is_empty() {
            self.turns.push_back(origin);
        }
        // Nothing is larger than all the room: it would wait for ever.
        queue.insert(self.last_place, (bytes.min(self.room), who));
        // One that need not wait takes no place.
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

    /// Whose turn it is, if there is room: the next turn is another origin's.
    fn next(&mut self) -> Option<(usize, T)> {
        let (origin, place, bytes) = self.first().filter(|(_, _, bytes)| *bytes <= self.free)?;
        self.turns.rotate_left(1);
        let (_, who) = self.remove(origin, place)?;
        self.free -= bytes;
        Some((bytes, who))
    }

    /// Whether it waited still.
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
