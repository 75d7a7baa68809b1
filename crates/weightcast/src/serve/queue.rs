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
mod tests {
    use super::*;

    const HERE: ClientOrigin = ClientOrigin::Process(1);
    const THERE: ClientOrigin = ClientOrigin::Process(2);

    fn asked(book: &mut QueueBook<&'static str>, origin: ClientOrigin, who: &[&'static str]) {
        for who in who {
            assert_eq!(book.ask(origin, 4, who).1, None);
        }
    }

    fn served(book: &mut QueueBook<&'static str>) -> Vec<&'static str> {
        std::iter::from_fn(|| {
            let (bytes, who) = book.next()?;
            book.free += bytes;
            Some(who)
        })
        .collect()
    }

    #[test]
    fn origins_have_their_turns_one_after_the_other() {
        let mut book = QueueBook::new(4, 9);
        asked(&mut book, HERE, &["a", "b", "c", "d"]);
        asked(&mut book, THERE, &["x", "y"]);
        assert_eq!(served(&mut book), ["a", "x", "b", "y", "c", "d"]);
        assert_eq!((book.waiting, book.turns.len(), book.queues.len()), (0, 0, 0));
    }

    #[test]
    fn what_does_not_fit_waits_and_is_not_passed_over() {
        let mut book = QueueBook::new(10, 9);
        book.ask(HERE, 6, "first");
        book.ask(THERE, 60, "all of it, and no more");
        book.ask(HERE, 1, "last");
        assert_eq!(book.next(), Some((6, "first")));
        assert_eq!(book.next(), None);
        book.free += 6;
        assert_eq!(book.next(), Some((10, "all of it, and no more")));
        assert_eq!(book.next(), None);
        book.free += 10;
        assert_eq!(book.next(), Some((1, "last")));
    }

    #[test]
    fn where_too_many_wait_whoever_has_most_of_them_gives_way() {
        let mut book = QueueBook::new(4, 2);
        assert_eq!(book.ask(HERE, 4, "a"), (1, None));
        assert_eq!(book.next(), Some((4, "a")));
        asked(&mut book, HERE, &["b", "c"]);
        assert_eq!(book.ask(THERE, 4, "x").1, Some("c"));
        assert_eq!(book.ask(HERE, 4, "d").1, Some("d"), "itself, if it is the one");
        book.free += 4;
        assert_eq!(served(&mut book), ["b", "x"]);
    }

    #[test]
    fn whoever_leaves_is_not_served() {
        let mut book = QueueBook::new(4, 9);
        asked(&mut book, HERE, &["a", "b"]);
        asked(&mut book, THERE, &["x"]);
        assert!(book.leave(HERE, 1) && book.leave(HERE, 2) && !book.leave(HERE, 2));
        assert_eq!(served(&mut book), ["x"]);
    }

    #[tokio::test]
    async fn room_is_given_back_whoever_goes() {
        let queue = FairQueue::new(10, 9);
        let mut first = queue.take(HERE, 10).await.unwrap();
        let mut second = taking(queue.take(HERE, 6));
        let mut third = taking(queue.take(THERE, 6));
        assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
        first.keep(4);
        drop(second); // it was given room, and never took it
        let third = poll(&mut third).expect("there is room").unwrap();
        drop((first, third));
        assert_eq!(queue.free(), 10);
        assert_eq!(queue.book().waiting, 0);
    }

    #[tokio::test]
    async fn whoever_stood_behind_one_that_leaves_is_looked_at() {
        let queue = FairQueue::new(10, 9);
        let _first = queue.take(HERE, 6).await.unwrap();
        let mut large = taking(queue.take(THERE, 8));
        let mut small = taking(queue.take(HERE, 3));
        assert!(poll(&mut large).is_none() && poll(&mut small).is_none());
        drop(large);
        assert!(poll(&mut small).is_some(), "there was room for it all along");
    }

    type Taking<'a> = std::pin::Pin<Box<dyn Future<Output = Result<QueueShare, Status>> + 'a>>;

    fn taking<'a>(take: impl Future<Output = Result<QueueShare, Status>> + 'a) -> Taking<'a> {
        Box::pin(take)
    }

    fn poll(taking: &mut Taking<'_>) -> Option<Result<QueueShare, Status>> {
        let waker = std::task::Waker::noop();
        match taking.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
            std::task::Poll::Ready(ready) => Some(ready),
            std::task::Poll::Pending => None,
        }
    }
}
