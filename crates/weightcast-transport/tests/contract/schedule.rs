//! Owners, relays and readers under a seeded scheduler: one thread runs at a time, and at every point
//! of a read a seed says which goes on. So a seed is one order of events, and can be played again.
//!
//! Direct reads, shared memory and the reference: over TCP threads of the kernel's choice take and judge.

use crate::ways::{Direct, Reference, Shared, Way, soon};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use weightcast_transport::limits::MIN_UNIT_BYTES;
use weightcast_transport::*;

const UNITS: usize = 4;
const LEN: usize = UNITS * MIN_UNIT_BYTES as usize;
const VERSIONS: u64 = 5;

/// Who runs. Threads have numbers; all are there from the beginning.
struct Schedule {
    turns: Mutex<Turns>,
    changed: Condvar,
}

struct Turns {
    state: u64,
    live: BTreeSet<usize>,
    /// Those that wait for somebody else to do something.
    parked: BTreeSet<usize>,
    running: usize,
    /// The order so far.
    played: Vec<usize>,
}

impl Turns {
    /// Somebody who can go on; whoever only waits, if nobody else is left.
    fn next(&mut self) {
        let ready: Vec<usize> = self.live.difference(&self.parked).copied().collect();
        let from = if ready.is_empty() { self.live.iter().copied().collect() } else { ready };
        if from.is_empty() {
            return;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.running = from[(self.state >> 33) as usize % from.len()];
        self.played.push(self.running);
    }
}

impl Schedule {
    fn new(seed: u64, threads: usize) -> Arc<Self> {
        let live = (0..threads).collect();
        let state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut turns =
            Turns { state, live, parked: BTreeSet::new(), running: 0, played: Vec::new() };
        turns.next();
        Arc::new(Self { turns: Mutex::new(turns), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap()
    }

    /// Waits for the thread's turn.
    fn begin(&self, thread: usize) {
        let turns = self.lock();
        drop(self.changed.wait_while(turns, |turns| turns.running != thread).unwrap());
    }

    /// Lets another one go on, perhaps. `moved`: who waits should look again.
    fn pause(&self, thread: usize, waits: bool, moved: bool) {
        let mut turns = self.lock();
        if moved {
            turns.parked.clear();
        }
        if waits {
            turns.parked.insert(thread);
        }
        turns.next();
        self.changed.notify_all();
        drop(self.changed.wait_while(turns, |turns| turns.running != thread).unwrap());
    }

    fn end(&self, thread: usize) {
        let mut turns = self.lock();
        turns.live.remove(&thread);
        turns.parked.clear();
        turns.next();
        self.changed.notify_all();
    }
}

/// A thread of a schedule, until it is dropped.
struct Player {
    schedule: Arc<Schedule>,
    number: usize,
}

impl Player {
    fn begin(schedule: &Arc<Schedule>, number: usize) -> Self {
        schedule.begin(number);
        Self { schedule: Arc::clone(schedule), number }
    }

    fn pause(&self) {
        self.schedule.pause(self.number, false, false);
    }

    /// Something was fenced.
    fn fenced(&self) {
        self.schedule.pause(self.number, false, true);
    }

    /// Stops at every point of a read by the player of this number.
    fn holds(&self, number: usize) -> Holds {
        let (schedule, told) = (Arc::clone(&self.schedule), AtomicBool::new(false));
        Holds::new(move |point| {
            let moved = told.swap(point == HoldPoint::Telling, Ordering::SeqCst);
            schedule.pause(number, point == HoldPoint::Waiting, moved);
        })
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.schedule.end(self.number);
    }
}

/// The bytes of a version.
fn bytes_of(version: u64) -> Vec<u8> {
    vec![version as u8; LEN]
}

/// What is served now: an export and its version. Zero: nothing.
#[derive(Default)]
struct Board(Mutex<Option<(ExportId, u64)>>);

impl Board {
    fn set(&self, shown: Option<(ExportId, u64)>) {
        *self.0.lock().unwrap() = shown;
    }

    fn get(&self) -> Option<(ExportId, u64)> {
        *self.0.lock().unwrap()
    }
}

/// Serves one version after the other from the same memory, each fenced before the next is written,
/// half by half.
fn own<W: Way>(player: &Player, exports: &ExportTable, board: &Board) {
    let memory = W::memory(LEN);
    let name = ExportId::random();
    for version in 1..=VERSIONS {
        let bytes = bytes_of(version);
        for half in [0, LEN / 2] {
            memory.write_at(half, &bytes[half..half + LEN / 2]).unwrap();
            player.pause();
        }
        let export = name.at(version);
        exports.expose_as(export, version, vec![memory.clone()]);
        board.set(Some((export, version)));
        // As long as some reads take, or less.
        for _ in 0..version * 10 {
            player.pause();
        }
        board.set(None);
        exports.fence(export);
        player.fenced();
    }
}

/// What is read, and what came of it.
#[derive(Default)]
struct Tally {
    good: usize,
    fenced: usize,
}

/// Fills its memory again and again from who is on one board, and shows itself on the other while it
/// does.
fn relay<W: Way>(player: &Player, way: &W, from: &Board, to: &Board) -> Tally {
    let memory = W::memory(LEN);
    let mut tally = Tally::default();
    for _ in 0..3 * VERSIONS {
        let Some((source, version)) = from.get() else {
            player.pause();
            continue;
        };
        // What was here before is fenced: it may be written.
        memory.write_at(0, &[0xEE; LEN]).unwrap();
        let filling = Arc::new(Filling::new(std::slice::from_ref(&memory)));
        let own = ExportId::random();
        let regions = vec![memory.clone()];
        way.exports().expose_filling(own, version, regions, Arc::clone(&filling));
        // Only the next player reads it; where a data port waits, it does so for that one.
        way.exports().hold(own, player.holds(player.number + 1));
        to.set(Some((own, version)));
        let options = TransferOptions {
            threads: 1,
            filling: Some(Arc::clone(&filling)),
            deadline: Some(soon()),
            holds: player.holds(player.number),
            ..TransferOptions::default()
        };
        let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, LEN as u64)];
        let job = SourceJob { peer: way.peer(), export: source, generation: version, copies };
        let outcome = read(&[job], std::slice::from_ref(&memory), &options);
        check(&outcome, &memory.to_vec(), version, &filling);
        match outcome {
            Ok(_) => tally.good += 1,
            Err(_) => tally.fenced += 1,
        }
        // As long as another one takes to read it, or less.
        for _ in 0..10 * (version % 3) {
            player.pause();
        }
        to.set(None);
        way.exports().fence(own);
        player.fenced();
    }
    tally
}

/// A read that ends well has its version's bytes, and what was told of is right however it ends:
/// others may have read it.
fn check(outcome: &Result<Vec<Digest>, ReadError>, now: &[u8], version: u64, filling: &Filling) {
    let expected = bytes_of(version);
    let units = now.chunks(LEN / UNITS).zip(expected.chunks(LEN / UNITS));
    let right = units.filter(|(now, expected)| now == expected).count();
    assert!(filling.progress().0 <= right, "it told of bytes that are not there");
    match outcome {
        Ok(digests) => {
            assert_eq!((right, filling.progress()), (UNITS, (UNITS, UNITS)), "torn");
            assert_eq!(*digests, [digest_at(0, &expected)]);
        }
        Err(error) => assert_eq!(error.advice(), Advice::RetryElsewhere, "{error}"),
    }
}

/// An owner, a relay of it, and a relay of that, in the order that a seed gives.
fn play<W: Way>(seed: u64) -> (Tally, Tally, Vec<usize>) {
    let way = W::new();
    let schedule = Schedule::new(seed, 3);
    let boards = [Board::default(), Board::default(), Board::default()];
    let (first, second) = thread::scope(|scope| {
        let (way, schedule, boards) = (&way, &schedule, &boards);
        scope.spawn(move || own::<W>(&Player::begin(schedule, 0), way.exports(), &boards[0]));
        let first =
            scope.spawn(move || relay(&Player::begin(schedule, 1), way, &boards[0], &boards[1]));
        let second =
            scope.spawn(move || relay(&Player::begin(schedule, 2), way, &boards[1], &boards[2]));
        (first.join(), second.join())
    });
    let seeded = |_| panic!("seed {seed}");
    let (first, second) = (first.unwrap_or_else(seeded), second.unwrap_or_else(seeded));
    let played = std::mem::take(&mut schedule.lock().played);
    (first, second, played)
}

fn many<W: Way>() {
    let mut all = [0; 4];
    for seed in 0..100 {
        let (first, second, _) = play::<W>(seed);
        let one = [first.good, first.fenced, second.good, second.fenced];
        all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
    }
    // Else the orders would show nothing.
    assert!(all.iter().all(|count| *count > 20), "good and fenced, of both relays: {all:?}");
}

#[test]
fn in_any_order_no_torn_bytes_end_well_by_reference() {
    many::<Reference>();
}

#[test]
fn in_any_order_no_torn_bytes_end_well_directly() {
    many::<Direct>();
}

#[test]
fn in_any_order_no_torn_bytes_end_well_out_of_shared_memory() {
    many::<Shared>();
}

#[test]
fn a_seed_is_one_order() {
    let (played, again) = (play::<Reference>(7).2, play::<Reference>(7).2);
    assert!(played.len() > 50 && played == again);
    assert_ne!(played, play::<Reference>(8).2);
}
