//! Offloads and seeds that fail, at each stage: nothing of them is left.

use std::thread;

use weightcast_plan::{DType, LayoutBuilder, Part};
use weightcast_protocol::message::{Answer, Call};
use weightcast_protocol::{Epoch, Selector, Span};
use weightcast_transport::ExportId;

use super::super::room::Room;
use super::super::seed::{self, Seeder};
use super::*;
use crate::client::connection::tests::whole;
use crate::client::handle::ShardHandle;
use crate::client::handle::tests::{HandleScene, LONG};
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::RegisteredShard;
use crate::config::{Options, Replica};
use crate::manifest;
use crate::serve::{ServeConfig, serve};

const BYTES: u64 = 4_000;
const VERSION: Version = Version { epoch: Epoch(0), number: 1 };

/// What a handle has for offloads and seeds, without the handle.
struct CopyScene {
    owner: Owner,
    offloader: Offloader,
    seeder: Seeder,
    queue: mpsc::UnboundedReceiver<Event>,
}

fn registration() -> RegisteredShard {
    let mut layout = LayoutBuilder::new();
    layout.add("w", DType::U8, &[BYTES], vec![Part::new("w").shape([BYTES])], 0);
    let region = Region::allocate(BYTES as usize).unwrap();
    RegisteredShard::new(&[Arc::new(layout.build().unwrap())], 0, vec![region]).unwrap()
}

fn scene(server: &str, room: u64) -> CopyScene {
    let options = Options {
        server: Some(server.to_owned()),
        insecure: true,
        deadline: Duration::from_millis(500),
        ..Options::new(Role::Rollout)
    };
    let shared = HandleState::alone(Some((Arc::new(registration()), ExportId(7))), None);
    let owner = Owner {
        model: "model".to_owned(),
        replica: Replica::new("rollout", 0, 1),
        options,
        shared,
        room: Room::new(Some(room)),
        open: Arc::new(ShardHandle::open),
    };
    let (events, queue) = mpsc::unbounded_channel();
    let seeder = Seeder::new(owner.clone(), events.clone());
    CopyScene { offloader: Offloader::new(owner.clone(), events), seeder, owner, queue }
}

impl CopyScene {
    fn offload(&mut self) -> String {
        self.offloader.start(VERSION, Generation(3));
        match self.queue.blocking_recv() {
            Some(Event::OffloadFailed { version: VERSION, generation: Generation(3), reason }) => {
                reason
            }
            _ => panic!("another event"),
        }
    }

    fn seed(&mut self) -> String {
        self.seeder.start(VERSION, 5, Span::from_millis(300));
        match self.queue.blocking_recv() {
            Some(Event::SeedFailed { ask: 5, reason }) => reason,
            _ => panic!("another event"),
        }
    }

    /// Neither memory nor room is held by anything but the handle.
    fn nothing_is_left(&self, what: &str) {
        if let Some((registration, _)) = self.owner.shared.current() {
            assert_eq!(Arc::strong_count(&registration), 2, "{what}: memory");
            let free = self.owner.room.take(&registration, Duration::ZERO);
            assert!(free.is_ok(), "{what}: room");
        }
        assert!(self.owner.shared.exports.exports().is_empty(), "{what}: exports");
    }
}

#[test]
fn nothing_is_left_where_nothing_is_registered() {
    let mut scene = scene("127.0.0.1:1", BYTES);
    scene.owner.shared.release();
    assert!(scene.offload().contains("nothing is registered"));
    assert!(scene.seed().contains("nothing is registered"));
    let registration = registration();
    assert!(scene.owner.room.take(&registration, Duration::ZERO).is_ok());
}

#[test]
fn nothing_is_left_where_there_is_no_room() {
    let mut scene = scene("127.0.0.1:1", BYTES);
    let (registration, _) = scene.owner.shared.current().unwrap();
    let share = scene.owner.room.take(&registration, Duration::ZERO).unwrap();
    drop(registration);
    assert!(scene.offload().contains("no room"));
    assert!(scene.seed().contains("no room"));
    drop(share);
    scene.nothing_is_left("no room");
}

#[test]
fn nothing_is_left_where_no_server_is_reached() {
    let mut scene = scene("127.0.0.1:1", BYTES);
    for _ in 0..2 {
        let reason = scene.offload();
        assert!(reason.contains("127.0.0.1:1"), "{reason}");
        scene.nothing_is_left("no server, offload");
        let reason = scene.seed();
        assert!(reason.contains("127.0.0.1:1"), "{reason}");
        scene.nothing_is_left("no server, seed");
    }
}

#[test]
fn nothing_is_left_where_the_server_wants_none() {
    let server = serve(ServeConfig { insecure: true, ..ServeConfig::default() }).unwrap();
    let mut scene = scene(server.address(), BYTES);
    scene.seed();
    scene.nothing_is_left("seed");
}

/// `stop` waits until the copy has let go of the memory. A stopped copy sends no event.
#[test]
fn a_copy_that_is_stopped_is_waited_for_and_leaves_nothing() {
    let CopyScene { owner, mut offloader, mut queue, seeder } = scene("127.0.0.1:1", BYTES);
    let reads = Arc::clone(&offloader.running.reads);
    // As if the copy had just begun: it waits for its turn in vain.
    let copying = reads.lock().unwrap();
    offloader.running.cancel = Arc::default();
    let cancel = Arc::clone(&offloader.running.cancel);
    let (stopping, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let offloader = &mut offloader;
        let (stopping, stopped) = (&stopping, &stopped);
        let (said, told) = std::sync::mpsc::channel();
        scope.spawn(move || {
            said.send(this_thread()).unwrap();
            stopping.store(true, Ordering::SeqCst);
            offloader.stop();
            stopped.store(true, Ordering::SeqCst);
        });
        let name = told.recv().unwrap();
        // From then on nothing but the copy is waited for.
        while !stopping.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        while !stopped.load(Ordering::SeqCst) && !sleeps(&name) {
            thread::yield_now();
        }
        assert!(!stopped.load(Ordering::SeqCst), "the copy still reads");
        assert!(cancel.load(Ordering::SeqCst), "it is told to end before it is waited for");
        drop(copying);
    });
    assert!(offloader.running.cancel.load(Ordering::SeqCst));
    // One that begins after it was stopped copies nothing.
    let copying = offloader.running.clone();
    let (said, kept) = std::sync::mpsc::channel();
    let here = owner.clone();
    here.begin(
        "weightcast-test",
        ("copy".to_owned(), Role::Offload(VERSION)),
        move |second| {
            said.send(keep(second, VERSION, &copying, &SharedFigures::default())).unwrap();
            Ok(())
        },
        |reason| panic!("{reason}"),
    );
    assert!(!kept.recv().unwrap().unwrap(), "there is no copy that could be over");
    drop((seeder, offloader, here));
    assert!(queue.blocking_recv().is_none(), "nobody is told");
    let (registration, _) = owner.shared.current().unwrap();
    assert!(owner.room.take(&registration, Duration::ZERO).is_ok());
    assert_eq!(Arc::strong_count(&registration), 2);
}

/// A second replica over a handle whose calls are answered well, and what is called.
fn kept(room: &Arc<Room>) -> (Second, std::sync::mpsc::Receiver<Call>) {
    let made = registration();
    let encoded = manifest::encode(&made.layout);
    let name = manifest::blob_digest(&encoded);
    let (says, said) = std::sync::mpsc::channel();
    let scene = HandleScene::new(1, vec![whole(b""), whole(&encoded)], move |call| {
        says.send(call.clone()).expect("it is heard");
        Ok(match call {
            Call::Register { .. } => {
                Answer::Registered { layouts: [name].into(), siblings: [].into() }
            }
            Call::Publish { .. } => Answer::Published { version: VERSION },
            _ => Answer::Committed { version: VERSION, source: "trainer".to_owned() },
        })
    });
    let handle = Mutex::new(Some(scene.handle));
    let owner = Owner {
        model: "model".to_owned(),
        replica: Replica::new("rollout", 0, 1),
        options: Options::new(Role::Rollout),
        shared: HandleState::alone(Some((Arc::new(made), ExportId(7))), None),
        room: Arc::clone(room),
        open: Arc::new(move |_, _, _| Ok(handle.lock().unwrap().take().expect("it opens once"))),
    };
    let (tells, told) = std::sync::mpsc::channel();
    let keep = move |second| {
        tells.send(second).unwrap();
        Ok(())
    };
    let role = Role::Seed(VERSION);
    owner.begin("weightcast-test", ("copy".to_owned(), role), keep, |reason| panic!("{reason}"));
    (told.recv().unwrap(), said)
}

/// And counts once it holds that.
#[test]
fn a_copy_holds_the_version_that_it_was_made_for() {
    let figures = SharedFigures::default();
    let (second, said) = kept(&Room::new(None));
    assert!(keep(second, VERSION, &Copying::default(), &figures).unwrap(), "it is over");
    let calls: Vec<Call> = said.try_iter().collect();
    let [Call::Register { .. }, Call::Publish { version, .. }] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!((*version, figures.lock().unwrap().offloads), (VERSION.number, 1));
    let (second, said) = kept(&Room::new(None));
    seed::keep(second, VERSION, LONG, &figures).unwrap();
    let calls: Vec<Call> = said.try_iter().collect();
    let [Call::Register { .. }, Call::Replicate { selector }] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!((*selector, figures.lock().unwrap().seeds), (Selector::Exact(VERSION.number), 1));
}

/// Whose replica is just being dropped.
#[test]
fn a_seed_waits_for_the_room_of_the_one_before() {
    let room = Room::new(Some(BYTES));
    let (second, _said) = kept(&room);
    let before = room.take(&second.registration, Duration::ZERO).unwrap();
    let (says, told) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let seed = scope.spawn(move || {
            says.send(this_thread()).unwrap();
            seed::keep(second, VERSION, LONG, &SharedFigures::default())
        });
        let name = told.recv().unwrap();
        while !seed.is_finished() && !sleeps(&name) {
            thread::yield_now();
        }
        drop(before);
        seed.join().unwrap().expect("there is room");
    });
}

/// `start` ends an older copy that still runs, and leaves the new copy running.
#[test]
fn a_copy_ends_when_the_next_one_begins() {
    let mut scene = scene("127.0.0.1:1", BYTES);
    let first = Arc::clone(&scene.offloader.running.cancel);
    assert!(!first.load(Ordering::Acquire));
    assert!(scene.offload().contains("127.0.0.1:1"));
    assert!(first.load(Ordering::Acquire));
    assert!(!scene.offloader.running.cancel.load(Ordering::Acquire));
}

/// The name of the running thread in `/proc`.
fn this_thread() -> String {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    format!("/proc/{}/stat", link.display())
}

fn sleeps(thread: &str) -> bool {
    let stat = std::fs::read_to_string(thread).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}
