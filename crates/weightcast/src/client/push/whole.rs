//! Pushes through a real server, its sessions and data ports, in one process.

use std::thread;
use std::time::Duration;

use weightcast_plan::{DType, Layout, LayoutBuilder, Part};
use weightcast_protocol::push::TargetEnd;
use weightcast_protocol::{CallError, Selector};
use weightcast_transport::Region;

use super::outcome::{PushEnd, PushTerms, PushWay, Pushed};
use super::scene::heard;
use super::sending::SendingRoom;
use super::word::{PushQuestion, PushWord};
use crate::LayoutSource;
use crate::client::updated::Updated;
use crate::config::{Options, Replica, Role};
use crate::error::Error;
use crate::serve::{ServeConfig, Server, serve};
use crate::{ShardHandle, Version};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(600);
const ROWS: u64 = 12;
const COLUMNS: u64 = 8;

struct ServedShard {
    handle: ShardHandle,
    region: Region,
}

fn server() -> Server {
    let config = ServeConfig { lease: Duration::from_secs(5), ..ServeConfig::default() };
    serve(config).unwrap()
}

/// A share of the one matrix: rows (`dim` 0) or columns.
fn layout(dim: usize, index: u64, of: u64) -> Layout {
    let mut shape = [ROWS, COLUMNS];
    shape[dim] /= of;
    let part = Part::new("w").shape([ROWS, COLUMNS]).dim(dim, index, of);
    let mut builder = LayoutBuilder::new();
    builder.add("w", DType::U8, &shape, vec![part], 0);
    builder.build().unwrap()
}

/// The share of a version.
fn share(dim: usize, index: u64, of: u64, version: u8) -> Vec<u8> {
    let element =
        |row: u64, column: u64| ((row * COLUMNS + column) as u8 * 2 + 1) ^ version.wrapping_mul(64);
    let mut shape = [ROWS, COLUMNS];
    shape[dim] /= of;
    let from = |d: usize| if d == dim { index * shape[d] } else { 0 };
    let rows = from(0)..from(0) + shape[0];
    rows.flat_map(|row| (from(1)..from(1) + shape[1]).map(move |column| element(row, column)))
        .collect()
}

fn shard(server: &Server, name: &str, role: Role, dim: usize, index: u64, of: u64) -> ServedShard {
    let options = Options { server: Some(server.address().to_owned()), ..Options::new(role) };
    let replica = Replica::new(name, index as u32, of as u32);
    let handle = ShardHandle::open("model", replica, &options).unwrap();
    let region = Region::allocate((ROWS * COLUMNS / of) as usize).unwrap();
    let shard = ServedShard { handle, region };
    shard.register(dim, index, of);
    shard
}

impl ServedShard {
    fn register(&self, dim: usize, index: u64, of: u64) {
        let layout = LayoutSource::Known(layout(dim, index, of));
        self.handle.register(layout, vec![self.region.clone()], LONG).unwrap();
    }

    fn accept(&self) -> Result<Updated, Error> {
        self.handle.accept(&mut |_| true, LONG)
    }

    fn has(&self, dim: usize, index: u64, of: u64, version: u8) {
        assert_eq!(self.region.to_vec(), share(dim, index, of, version));
    }
}

fn group(server: &Server, name: &str, role: Role, dim: usize, of: u64) -> Vec<ServedShard> {
    let opened = |index| shard(server, name, role, dim, index, of);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..of).map(|index| scope.spawn(move || opened(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The same call on all shards.
fn all<T: Send>(group: &[ServedShard], call: impl Fn(&ServedShard) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = group.iter().map(|shard| scope.spawn(|| call(shard))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Trainer shards by rows, which publish a version.
fn trainer(server: &Server, of: u64) -> Vec<ServedShard> {
    group(server, "trainer", Role::Trainer, 0, of)
}

fn publish(trainer: &[ServedShard], version: u8) {
    publish_as(trainer, version, version);
}

/// Publishes the bytes of another version under this number.
fn publish_as(trainer: &[ServedShard], version: u8, content: u8) {
    all(trainer, |shard| {
        if shard.handle.version().is_some() {
            shard.handle.unpublish(LONG).unwrap();
        }
        let index = u64::from(shard.handle.replica().shard);
        shard.region.write_at(0, &share(0, index, trainer.len() as u64, content)).unwrap();
        shard.handle.publish(u64::from(version), LONG).unwrap();
        shard.handle.wait_sealed(LONG).unwrap();
    });
}

fn terms(to: Option<&[&str]>, deadline: Duration) -> PushTerms {
    let to = to.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    PushTerms { to, deadline, ..PushTerms::default() }
}

fn ends(pushed: &Pushed) -> Vec<(&str, u32, PushEnd)> {
    pushed.shards.iter().map(|of| (of.replica.as_str(), of.shard, of.end)).collect()
}

fn ways(
    handle: &ShardHandle,
    to: Option<&[&str]>,
    deadline: Duration,
) -> Vec<(String, PushWay, u64, String)> {
    let outlooks = handle.explain_push(&terms(to, deadline)).unwrap();
    outlooks
        .into_iter()
        .map(|of| (format!("{}.{}", of.replica, of.shard), of.way, of.bytes, of.why))
        .collect()
}

/// Pushes while these accept.
fn pushed(
    group: &[ServedShard],
    from: &ShardHandle,
    terms: &PushTerms,
) -> (Pushed, Vec<Result<Updated, Error>>) {
    thread::scope(|scope| {
        let accepts = scope.spawn(|| all(group, ServedShard::accept));
        let pushed = from.push(terms).unwrap();
        (pushed, accepts.join().unwrap())
    })
}

#[test]
fn all_shards_of_a_trainer_write_into_a_rollout_of_another_layout() {
    let server = server();
    let trainer = trainer(&server, 3);
    publish(&trainer, 1);
    let rollout = group(&server, "rollout", Role::Rollout, 1, 2);
    let half = ROWS * COLUMNS / 2;
    let (came, updated) = pushed(&rollout, &trainer[2].handle, &terms(Some(&["rollout"]), LONG));
    assert_eq!(ends(&came), [("rollout", 0, PushEnd::New), ("rollout", 1, PushEnd::New)]);
    assert!(came.is_whole() && came.version.number == 1);
    assert!(came.shards.iter().all(|of| (of.bytes, of.moved) == (half, 0)), "{came:?}");
    for updated in updated {
        let updated = updated.unwrap();
        assert_eq!((updated.changed, updated.version), (true, Some(came.version)));
        let moved = updated.transfer;
        assert_eq!((moved.way.as_str(), moved.bytes, moved.verified), ("push", half, half));
        assert!(moved.way_reason.starts_with("3 senders"), "{}", moved.way_reason);
    }
    for (index, shard) in (0..).zip(&rollout) {
        shard.has(1, index, 2, 1);
    }
    // Who has the version is told so, and who is not there.
    let again = trainer[0].handle.push(&terms(Some(&["rollout"]), LONG)).unwrap();
    assert_eq!(ends(&again), [("rollout", 0, PushEnd::Held), ("rollout", 1, PushEnd::Held)]);
    let absent = trainer[0].handle.push(&terms(Some(&["nobody"]), SHORT)).unwrap();
    assert_eq!(ends(&absent), [("nobody", 0, PushEnd::Absent)]);
    let told = ways(&trainer[0].handle, None, LONG);
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|of| of.1 == PushWay::Neither && of.3.contains("holds")), "{told:?}");
    // The server knows too: others read from the rollout. The next version is pushed into the same memory.
    publish(&trainer, 2);
    let (came, updated) = pushed(&rollout, &trainer[0].handle, &terms(None, LONG));
    assert!(came.is_whole() && updated.iter().all(|of| of.as_ref().is_ok_and(|of| of.changed)));
    rollout[1].has(1, 1, 2, 2);
}

/// As if a grant had come.
fn sends(shard: &ServedShard) -> &SendingRoom {
    let room = &shard.handle.own().unwrap().shared.push.sending;
    room.begin();
    room
}

/// Whatever changes what a shard holds ends its part as a sender before.
#[test]
fn a_shard_whose_version_changes_writes_no_more_of_it() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    let rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    rollout[0].handle.replicate(Selector::Latest, LONG).unwrap();
    let rooms = [&trainer, &rollout].map(|group| sends(&group[0]));
    publish(&trainer, 2);
    assert!(rooms[0].is_over());
    rollout[0].handle.update(Selector::Latest, false, LONG).unwrap();
    assert!(rooms[1].is_over());
}

/// A call that lets the program write to the memory waits for what is under way.
#[test]
fn a_shard_gives_its_memory_up_once_nobody_writes_from_it() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    let room = sends(&trainer[0]);
    let reading = room.reading.read().unwrap();
    thread::scope(|scope| {
        let gives_up = scope.spawn(|| trainer[0].handle.unpublish(LONG));
        while !gives_up.is_finished() && room.reading.try_read().is_ok() {
            thread::yield_now();
        }
        for _ in 0..1_000 {
            assert!(!gives_up.is_finished());
            thread::yield_now();
        }
        drop(reading);
        gives_up.join().unwrap().unwrap();
    });
}

/// And of the version after that only what is new.
#[test]
fn memory_that_was_pushed_to_reads_the_next_version() {
    let server = server();
    let trainer = trainer(&server, 2);
    publish(&trainer, 1);
    let rollout = group(&server, "rollout", Role::Rollout, 1, 2);
    assert!(pushed(&rollout, &trainer[0].handle, &terms(None, LONG)).0.is_whole());
    for (version, content, unchanged) in [(2, 2, 0), (3, 3, 0), (4, 3, ROWS * COLUMNS / 2)] {
        publish_as(&trainer, version, content);
        let updated = all(&rollout, |shard| shard.handle.update(Selector::Latest, false, LONG));
        for (index, (shard, updated)) in (0..).zip(rollout.iter().zip(updated)) {
            let moved = updated.unwrap().transfer;
            assert_eq!((moved.way == "push", moved.unchanged), (false, unchanged), "{version}");
            shard.has(1, index, 2, content);
        }
    }
}

/// What others have written is known by its cells.
#[test]
fn memory_that_was_pushed_to_reads_nothing_of_the_same_content() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    let rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    assert!(pushed(&rollout, &trainer[0].handle, &terms(None, LONG)).0.is_whole());
    publish_as(&trainer, 2, 1);
    let updated = rollout[0].handle.update(Selector::Latest, false, LONG).unwrap();
    assert_eq!((updated.changed, updated.transfer.unchanged), (true, ROWS * COLUMNS));
    rollout[0].has(0, 0, 1, 1);
}

/// What rests between two pushes is of the memory that was registered then.
#[test]
fn memory_that_is_registered_anew_is_filled_like_any_other() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    let mut rollout = group(&server, "rollout", Role::Rollout, 1, 2);
    assert!(pushed(&rollout, &trainer[0].handle, &terms(None, LONG)).0.is_whole());
    publish(&trainer, 2);
    for shard in &mut rollout {
        shard.region = Region::allocate(shard.region.len()).unwrap();
    }
    // By rows now.
    all(&rollout, |shard| {
        shard.handle.unpublish(LONG).unwrap();
        shard.handle.unregister(LONG).unwrap();
        shard.register(0, u64::from(shard.handle.replica().shard), 2);
    });
    let (came, updated) = pushed(&rollout, &trainer[0].handle, &terms(None, LONG));
    assert!(came.is_whole(), "{came:?}");
    assert!(updated.into_iter().all(|of| of.unwrap().transfer.way == "push"));
    for (index, shard) in (0..).zip(&rollout) {
        shard.has(0, index, 2, 2);
    }
}

/// Other holders in the same layout write too, and those in other layouts do not.
#[test]
fn all_that_hold_the_version_in_the_senders_layout_may_write() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    let twin = group(&server, "twin", Role::Rollout, 0, 1);
    let other = group(&server, "other", Role::Rollout, 1, 2);
    for of in [&twin, &other] {
        all(of, |shard| shard.handle.replicate(Selector::Latest, LONG).unwrap());
    }
    let idle = group(&server, "idle", Role::Rollout, 0, 1);
    let target = group(&server, "target", Role::Rollout, 0, 1);
    thread::scope(|scope| {
        let accepts = scope.spawn(|| target[0].accept());
        // It takes part as soon as it is seen to accept.
        let told = loop {
            let told = ways(&trainer[0].handle, None, LONG);
            if told.iter().any(|of| of.1 == PushWay::Push) {
                break told;
            }
        };
        let of = |name: &str| told.iter().find(|of| of.0 == name).unwrap();
        assert_eq!((of("target.0").1, of("target.0").2), (PushWay::Push, ROWS * COLUMNS));
        assert!(of("target.0").3.contains("as 1 parcels; 2 replicas hold"), "{}", of("target.0").3);
        assert_eq!((of("idle.0").1, of("twin.0").1), (PushWay::Pull, PushWay::Neither));
        assert!(of("idle.0").3.contains("does not accept"));
        assert_eq!(of("other.1").1, PushWay::Neither);
        let names: Vec<&str> = told.iter().map(|of| of.0.as_str()).collect();
        assert_eq!(names, ["idle.0", "other.0", "other.1", "target.0", "twin.0"]);
        assert!(trainer[0].handle.push(&terms(Some(&["target"]), LONG)).unwrap().is_whole());
        accepts.join().unwrap().unwrap();
    });
    target[0].has(0, 0, 1, 1);
    assert_eq!(idle[0].handle.version(), None);
    // A rollout that was pushed to pushes on.
    let next = group(&server, "next", Role::Rollout, 1, 2);
    let (came, _) = pushed(&next, &target[0].handle, &terms(Some(&["next"]), LONG));
    assert!(came.is_whole());
    next[1].has(1, 1, 2, 1);
}

#[test]
fn what_cannot_be_pushed_is_said() {
    let server = server();
    let trainer = trainer(&server, 1);
    let handle = &trainer[0].handle;
    let refused = |terms: &PushTerms| handle.push(terms).unwrap_err().to_string();
    assert!(refused(&terms(None, SHORT)).contains("published"));
    publish(&trainer, 1);
    // What it fails with does not keep the next push from beginning.
    let layouts = handle.own().unwrap().shared.push.layouts();
    handle.own().unwrap().shared.push.registered(Vec::new());
    for _ in 0..2 {
        assert!(refused(&terms(None, SHORT)).contains("is not listed"));
        let explained = handle.explain_push(&terms(None, SHORT)).unwrap_err().to_string();
        assert!(explained.contains("is not listed"), "{explained}");
    }
    handle.own().unwrap().shared.push.registered(layouts);
    let third = PushTerms { version: Some(3), ..terms(None, SHORT) };
    assert!(refused(&third).contains("version 3"));
    assert!(handle.explain_push(&third).unwrap_err().to_string().contains("version 3"));
    // It is not the version of this handle that is out of date now, but the replica's at the server.
    let rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    for to in [Some(&["rollout"][..]), None] {
        let told = ways(handle, to, LONG);
        assert_eq!((told.len(), told[0].1), (1, PushWay::Pull), "{told:?}");
    }
    let told = ways(handle, Some(&["nobody"]), SHORT);
    assert_eq!((told.len(), told[0].1), (1, PushWay::Neither));
    assert!(told[0].3.contains("no replica of this name"));
    let declined = handle.push(&terms(Some(&["rollout"]), SHORT)).unwrap();
    assert_eq!(ends(&declined), [("rollout", 0, PushEnd::Declined)]);
    assert!(!declined.is_whole());
    assert!(handle.push(&terms(None, SHORT)).unwrap().shards.is_empty());
    match rollout[0].handle.accept(&mut |_| true, Duration::from_millis(1)) {
        Err(Error::Call(CallError::Timeout { call, waiting_for, .. })) => {
            assert_eq!((call.as_str(), waiting_for.as_str()), ("accept", "a push of model"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rollout[0].region.to_vec(), vec![0; (ROWS * COLUMNS) as usize]);
    let options =
        Options { server: Some(server.address().to_owned()), ..Options::new(Role::Rollout) };
    let bare = ShardHandle::open("model", Replica::new("bare", 0, 1), &options).unwrap();
    let refused = bare.accept(&mut |_| true, SHORT).unwrap_err().to_string();
    assert!(refused.contains("register memory"), "{refused}");
}

#[test]
fn who_is_told_before_may_refuse_and_may_accept_the_next() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    let rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    let mut told: Vec<Version> = Vec::new();
    let to = terms(Some(&["rollout"]), LONG);
    thread::scope(|scope| {
        let refuses = scope.spawn(|| {
            let mut before = |version| {
                told.push(version);
                assert!(
                    rollout[0].accept().is_err_and(|error| error.to_string().contains("already"))
                );
                false
            };
            rollout[0].handle.accept(&mut before, LONG)
        });
        let came = trainer[0].handle.push(&to).unwrap();
        assert_eq!(ends(&came), [("rollout", 0, PushEnd::Ended(TargetEnd::Left))]);
        assert!(!came.shards[0].detail.is_empty());
        assert!(matches!(refuses.join().unwrap(), Err(Error::Interrupted)));
    });
    assert_eq!(told.iter().map(|of| of.number).collect::<Vec<_>>(), [1]);
    assert_eq!(
        rollout[0].region.to_vec(),
        vec![0; (ROWS * COLUMNS) as usize],
        "nothing is written"
    );
    assert!(pushed(&rollout, &trainer[0].handle, &to).0.is_whole());
    rollout[0].has(0, 0, 1, 1);
}

#[test]
fn a_call_that_is_interrupted_ends() {
    let server = server();
    let mut rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    rollout[0].handle.interrupted = Some(Box::new(|| true));
    assert!(matches!(rollout[0].accept(), Err(Error::Interrupted)));
    let mut trainer = trainer(&server, 1);
    publish(&trainer, 1);
    trainer[0].handle.interrupted = Some(Box::new(|| true));
    let explained = trainer[0].handle.explain_push(&terms(None, LONG));
    assert!(matches!(explained, Err(Error::Interrupted)));
}

/// Memory that has changed since it was published.
#[test]
fn what_is_not_the_version_is_found_out() {
    let server = server();
    let trainer = trainer(&server, 1);
    publish(&trainer, 1);
    trainer[0].region.write_at(3, &[0]).unwrap();
    let rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    let (came, updated) = pushed(&rollout, &trainer[0].handle, &terms(Some(&["rollout"]), LONG));
    assert_eq!(ends(&came), [("rollout", 0, PushEnd::Ended(TargetEnd::Differs))]);
    assert!(came.shards[0].detail.contains('w'), "{}", came.shards[0].detail);
    assert!(
        matches!(updated[0], Err(Error::Call(CallError::DigestMismatch { .. }))),
        "{updated:?}"
    );
    assert_eq!(rollout[0].handle.version(), None);
}

/// More than one sender's word holds at once; and a tensor of two names, which lies in memory once.
#[test]
fn large_tensors_and_tied_ones_are_pushed_in_parcels() {
    const LARGE: u64 = 9 << 20;
    let layout = || {
        let part = |name: &str, bytes| vec![Part::new(name).shape([bytes])];
        let mut builder = LayoutBuilder::new();
        builder.add("large", DType::U8, &[LARGE], part("large", LARGE), 0);
        builder
            .add("b", DType::U8, &[COLUMNS], part("b", COLUMNS), 0)
            .also(part("tied", COLUMNS), 0);
        LayoutSource::Known(builder.build().unwrap())
    };
    let content: Vec<u8> = (0..LARGE).map(|at| (at * 7 + at / 4_099) as u8 | 1).collect();
    let server = server();
    let opened = |name: &str, role, bytes: &[u8]| {
        let options = Options { server: Some(server.address().to_owned()), ..Options::new(role) };
        let handle = ShardHandle::open("model", Replica::new(name, 0, 1), &options).unwrap();
        let regions = [bytes, &[5; COLUMNS as usize]].map(|of| Region::from_bytes(of).unwrap());
        handle.register(layout(), regions.to_vec(), LONG).unwrap();
        (handle, regions)
    };
    let (trainer, _) = opened("trainer", Role::Trainer, &content);
    trainer.publish(1, LONG).unwrap();
    trainer.wait_sealed(LONG).unwrap();
    let (rollout, regions) = opened("rollout", Role::Rollout, &vec![0; LARGE as usize]);
    regions[1].write_at(0, &[0; COLUMNS as usize]).unwrap();
    let updated = thread::scope(|scope| {
        let accepts = scope.spawn(|| rollout.accept(&mut |_| true, LONG).unwrap());
        let pushed = trainer.push(&terms(Some(&["rollout"]), LONG)).unwrap();
        assert!(pushed.is_whole() && pushed.shards[0].bytes == LARGE + COLUMNS, "{pushed:?}");
        accepts.join().unwrap()
    });
    let moved = updated.transfer;
    let came = (moved.way.as_str(), moved.tcp, moved.bytes);
    assert_eq!(came, ("push", LARGE + COLUMNS, LARGE + 2 * COLUMNS));
    assert!(regions[0].to_vec() == content && regions[1].to_vec() == [5; COLUMNS as usize]);
}

/// Its next look might be half a second away.
#[test]
fn a_driver_that_has_asked_hears_of_each_accept() {
    let server = server();
    let rollout = group(&server, "rollout", Role::Rollout, 0, 1);
    let trainer = group(&server, "trainer", Role::Trainer, 0, 1);
    let [state, driver] = [&rollout[0], &trainer[0]].map(|of| &of.handle.own().unwrap().shared);
    let words = driver.push.drive().unwrap();
    let (replica, driver) = ("rollout".to_owned(), driver.push.address.clone());
    assert!(!state.push.target.accepts(&PushQuestion { replica, shard: 0, driver }));
    rollout[0].handle.accept(&mut |_| true, Duration::from_millis(1)).unwrap_err();
    let PushWord::Offer(offer) = heard(&words) else { panic!("an offer") };
    assert!(offer.accepts);
}
