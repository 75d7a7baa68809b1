//! Whose turn it is, by hand and by a second implementation of the rule.

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

#[tokio::test]
async fn room_that_is_not_needed_is_the_next_ones() {
    for whole in [false, true] {
        let queue = FairQueue::new(10, 9);
        let mut first = Some(queue.take(HERE, 10).await.unwrap());
        let mut second = taking(queue.take(THERE, 6));
        assert!(poll(&mut second).is_none());
        match whole {
            true => first = None,
            false => first.as_mut().unwrap().keep(4),
        }
        assert!(poll(&mut second).is_some(), "{whole}");
        drop(first);
    }
}

/// The rule a second time: all waiting transfers in one list, and the turns of their origins.
#[derive(Default)]
struct PlainQueue {
    free: usize,
    places: usize,
    asked: u64,
    waiting: Vec<(ClientOrigin, u64, usize)>,
    turns: Vec<ClientOrigin>,
}

impl PlainQueue {
    fn of(&self, origin: ClientOrigin) -> Vec<(ClientOrigin, u64, usize)> {
        self.waiting.iter().copied().filter(|(of, ..)| *of == origin).collect()
    }

    fn leave(&mut self, place: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(_, of, _)| *of != place);
        let left: Vec<ClientOrigin> = self.waiting.iter().map(|(origin, ..)| *origin).collect();
        self.turns.retain(|origin| left.contains(origin));
        self.waiting.len() < before
    }

    fn fits(&self) -> Option<(ClientOrigin, u64, usize)> {
        let first = self.of(*self.turns.first()?)[0];
        (first.2 <= self.free).then_some(first)
    }

    /// Adds a transfer. Returns the transfer that loses its place, if there are too few.
    fn ask(&mut self, origin: ClientOrigin, bytes: usize) -> Option<u64> {
        self.asked += 1;
        self.waiting.push((origin, self.asked, bytes));
        if !self.turns.contains(&origin) {
            self.turns.push(origin);
        }
        if self.waiting.len() <= self.places || self.fits().is_some() {
            return None;
        }
        // Where as many wait of several: the newcomer's own, else the last of them.
        let mut origins: Vec<ClientOrigin> = self.turns.clone();
        origins.sort_by_key(|of| (self.of(*of).len(), *of == origin, *of));
        let newest = self.of(*origins.last()?).last()?.1;
        self.leave(newest);
        Some(newest)
    }

    fn next(&mut self) -> Option<u64> {
        let (origin, place, bytes) = self.fits()?;
        let turn = self.turns.remove(0);
        self.turns.push(turn);
        self.leave(place);
        self.free -= bytes;
        assert_eq!(turn, origin);
        Some(place)
    }
}

#[test]
fn whoever_asks_and_leaves_is_served_by_the_rule() {
    const ROOM: usize = 6;
    for seed in 0..2_000_u64 {
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let places = draw(5) as usize;
        let mut book = QueueBook::new(ROOM, places);
        let mut plain = PlainQueue { free: ROOM, places, ..PlainQueue::default() };
        for _ in 0..30 {
            match draw(4) {
                0 | 1 => {
                    let (origin, bytes) = (draw(3) as i32, draw(9) as usize);
                    let origin = ClientOrigin::Process(origin);
                    let (place, out) = book.ask(origin, bytes, plain.asked + 1);
                    assert_eq!(out, plain.ask(origin, bytes.min(ROOM)), "seed {seed}");
                    assert_eq!(place, plain.asked);
                }
                2 => {
                    let (origin, place) = (draw(3) as i32, draw(plain.asked + 2));
                    let origin = ClientOrigin::Process(origin);
                    let waits = plain.of(origin).iter().any(|(_, of, _)| *of == place);
                    let left = waits && plain.leave(place);
                    assert_eq!(book.leave(origin, place), left, "seed {seed}");
                }
                _ => {
                    let back = draw((ROOM - plain.free) as u64 + 1) as usize;
                    (book.free, plain.free) = (book.free + back, plain.free + back);
                    let next = book.next().map(|(_, place)| place);
                    assert_eq!(next, plain.next(), "seed {seed}");
                }
            }
            assert_eq!((book.free, book.waiting), (plain.free, plain.waiting.len()));
        }
    }
}
