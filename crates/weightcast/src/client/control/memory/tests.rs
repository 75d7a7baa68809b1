//! The memory's note describes what the memory holds, not what was read beside it.

use weightcast_plan::{DType, LayoutBuilder, Part, Plan};
use weightcast_protocol::message::{Assignment, Sibling};
use weightcast_protocol::session::Opening;
use weightcast_protocol::{ContentDigest, Epoch, Version};
use weightcast_transport::{Auth, Peer, Region};

use super::*;
use crate::client::memory::registration::RegisteredShard;
use crate::client::push::target::TargetEvent;
use crate::client::reading::evidence::Evidence;
use crate::client::reading::unchanged::content::KnownContent;
use crate::client::updated::Transfer;

const OLD: &[u8] = b"digests of the old version";
const NEW: &[u8] = b"digests of the new version";
const EXPORT: ExportId = ExportId(7);

fn auth() -> Auth {
    Auth { token: None, insecure: false }
}

/// Memory that holds a version with its note, and is served.
fn holding() -> RegisteredMemory {
    told().0
}

/// The same, and what its control thread is told.
fn told() -> (RegisteredMemory, mpsc::UnboundedReceiver<Event>) {
    of(&[])
}

/// The same, of a shard whose group has these on its host.
fn of(siblings: &[Sibling]) -> (RegisteredMemory, mpsc::UnboundedReceiver<Event>) {
    let mut layout = LayoutBuilder::new();
    layout.add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0);
    let (layout, region) = (Arc::new(layout.build().unwrap()), Region::from_bytes(&[1; 8]));
    let layouts = vec![layout; siblings.len().max(1)];
    let registration = RegisteredShard::new(&layouts, 0, vec![region.unwrap()]).unwrap();
    let registration = registration.beside(&layouts, 0, siblings);
    let shared = HandleState::alone(Some((Arc::new(registration), EXPORT)), None);
    let connection = ServerConnection::new("127.0.0.1:1", None).unwrap();
    let (events, queue) = mpsc::unbounded_channel();
    let mut memory = RegisteredMemory::new(shared, connection, events);
    memory.sealing = Some(Generation(1));
    memory.expose(Generation(1));
    memory.sealed(Generation(1), OLD.to_vec());
    (memory, queue)
}

/// A read beside the memory, from nobody.
fn staged() -> Assignment {
    Assignment {
        version: Version { epoch: Epoch(0), number: 2 },
        catalog: ContentDigest::default(),
        replica: "trainer".to_owned(),
        in_flight: false,
        staged: true,
        helpers: Vec::new(),
        shards: [].into(),
    }
}

/// A read of it. The deadline is the test's.
fn order(seq: u64, attempt: u64, since: u64, keep: bool) -> ReadOrder {
    let (seq, attempt, since) = (OpSeq(seq), Attempt(attempt), Attempt(since));
    let deadline = weightcast_protocol::Time(0);
    ReadOrder { seq, attempt, since, assignment: staged(), keep, deadline }
}

/// What a staged read has brought beside the memory.
fn beside(memory: &RegisteredMemory) -> Box<ArrivedRead> {
    let (registration, _) = memory.shared.current().unwrap();
    let target = staging::allocate(&registration, None).unwrap();
    Box::new(ArrivedRead {
        sums: ShardSums::default(),
        transfer: Transfer::default(),
        note: NEW.to_vec(),
        content: KnownContent::default(),
        in_place: false,
        evidence: Evidence {
            registration: target.registration,
            assignment: staged(),
            sources: Vec::new(),
            plan: Arc::new(Plan::default()),
            digests: Vec::new(),
            overwritten: Arc::default(),
        },
    })
}

/// What the data port says of the memory that is served at a generation.
fn noted(memory: &RegisteredMemory, generation: u64) -> Option<Vec<u8>> {
    let soon = Instant::now() + Duration::from_secs(20);
    let peer = Peer::connect(memory.shared.exports.addr(), &auth(), soon).unwrap();
    peer.note(EXPORT.at(generation), generation, soon).unwrap()
}

#[tokio::test]
async fn an_old_version_that_is_served_anew_has_its_own_note() {
    // The server is lost when the new version has been read beside it.
    let mut memory = holding();
    let arrival = beside(&memory);
    assert!(memory.arrived(Ok(arrival)).is_some());
    memory.unstage();
    memory.fence();
    memory.expose(Generation(2));
    assert_eq!(noted(&memory, 2).as_deref(), Some(OLD));
}

#[tokio::test]
async fn an_old_version_that_a_call_left_as_it_was_keeps_its_note() {
    let mut memory = holding();
    let arrival = beside(&memory);
    assert!(memory.arrived(Ok(arrival)).is_some());
    memory.unstage();
    // Well, but as unchanged: the new version is left to a seed.
    drop(memory.take_arrived(true));
    memory.fence();
    memory.expose(Generation(2));
    assert_eq!(noted(&memory, 2).as_deref(), Some(OLD));
}

#[tokio::test]
async fn what_was_put_in_place_has_the_new_note() {
    let mut memory = holding();
    let arrival = beside(&memory);
    assert!(memory.arrived(Ok(arrival)).is_some());
    memory.fence();
    memory.installed(Installed { bytes: 8, seconds: 0.0 });
    memory.expose(Generation(2));
    assert_eq!(noted(&memory, 2).as_deref(), Some(NEW));
    drop(memory.take_arrived(true));
    memory.fence();
    memory.expose(Generation(3));
    assert_eq!(noted(&memory, 3).as_deref(), Some(NEW));
}

#[tokio::test]
async fn what_is_published_anew_has_no_note_of_what_was_there_before() {
    let mut memory = holding();
    memory.fence();
    memory.forget();
    memory.expose(Generation(2));
    assert_eq!(noted(&memory, 2), None, "it is not digested yet");
}

/// From the beginning of a read to the end of its call; not what came in an earlier call, and not after wrong bytes.
#[tokio::test]
async fn siblings_take_what_comes_in_this_call() {
    let sibling = |shard| Sibling {
        shard,
        host: 0,
        data_address: "127.0.0.1:1".to_owned(),
        export: weightcast_protocol::ExportId(EXPORT.0),
    };
    let (mut memory, _events) = of(&[sibling(0), sibling(1)]);
    let soon = Instant::now() + Duration::from_secs(20);
    let read = |memory: &mut RegisteredMemory, seq, attempt, keep| {
        let since = if attempt < 3 { 1 } else { 3 };
        memory.start_read(order(seq, attempt, since, keep), soon);
        memory.entering.as_ref().map(|(id, _)| *id)
    };
    let open = |seq| {
        let (seq, since) = (OpSeq(seq), Attempt(1));
        Some(taken_from(EXPORT, Opening { seq, since, version: staged().version }))
    };
    assert_eq!(read(&mut memory, 3, 1, false), open(3));
    let served = memory.shared.exports.exports().len();
    assert_eq!(read(&mut memory, 3, 2, true), open(3), "it goes on");
    assert_eq!(read(&mut memory, 3, 3, false), None, "its bytes were wrong");
    assert_eq!(memory.shared.exports.exports().len(), served - 1);
    assert_eq!(read(&mut memory, 4, 4, true), None, "a part came in another call");
    let ends: [fn(&mut RegisteredMemory); 4] = [
        |memory| drop(memory.take_arrived(true)),
        |memory| memory.fence(),
        |memory| memory.unstage(),
        |memory| memory.install(OpSeq(5), Attempt(1)),
    ];
    for (seq, end) in (5..).zip(ends) {
        assert_eq!(read(&mut memory, seq, 1, false), open(seq));
        end(&mut memory);
        assert!(memory.entering.is_none());
        assert_eq!(read(&mut memory, seq, 2, true), None, "it is not opened twice");
    }
    // Of a shard that is alone on its host.
    let (mut memory, _events) = told();
    assert_eq!(read(&mut memory, 3, 1, false), None);
}

/// A read without `keep` has fresh memory and no progress: nothing of a bad source remains.
#[tokio::test]
async fn a_read_that_begins_anew_keeps_nothing() {
    let mut memory = holding();
    let soon = Instant::now() + Duration::from_secs(20);
    let mut reading = |attempt, keep| {
        memory.start_read(order(1, attempt, 1, keep), soon);
        memory.staged.clone().expect("memory beside")
    };
    let (first, on) = (reading(1, false), reading(2, true));
    assert!(Arc::ptr_eq(&first.registration, &on.registration));
    let anew = reading(3, false);
    assert!(!Arc::ptr_eq(&first.registration, &anew.registration));
    assert_ne!(first.registration.regions[0].address(), anew.registration.regions[0].address());
    let (had, has) = (first.filling.unwrap(), anew.filling.unwrap());
    assert!(!Arc::ptr_eq(&had, &has));
}

/// What is copied into place is stopped like a read.
#[tokio::test]
async fn what_is_put_in_place_may_be_stopped() {
    let (mut memory, mut queue) = told();
    let (registration, _) = memory.shared.current().unwrap();
    memory.staged = Some(staging::allocate(&registration, None).unwrap());
    let shared = Arc::clone(&memory.shared);
    let writing = shared.memory.lock().unwrap();
    memory.install(OpSeq(1), Attempt(1));
    let running = memory.read.clone().expect("it is under way");
    running.cancel.store(true, Ordering::Release);
    drop(writing);
    memory.stop_read();
    assert!(queue.try_recv().is_err() && memory.read.is_none());
    assert_eq!(registration.regions[0].to_vec(), [1; 8]);
}

#[tokio::test]
async fn what_a_stopped_read_has_brought_is_forgotten() {
    let mut memory = holding();
    let arrival = beside(&memory);
    assert!(memory.arrived(Ok(arrival)).is_some());
    memory.stop_read();
    assert!(memory.take_arrived(true).is_none());
}

/// The sum is of the sample that was drawn.
#[tokio::test]
async fn a_challenge_is_answered_with_its_own_sum() {
    let (memory, mut queue) = told();
    let (registration, _) = memory.shared.current().unwrap();
    memory.prove(Generation(4), Nonce(9));
    match queue.recv().await {
        Some(Event::Proved { generation: Generation(4), nonce: Nonce(9), sum }) => {
            assert_eq!(sum, registration.prove(Nonce(9)));
        }
        _ => panic!("it is proved"),
    }
}

/// In the same memory, after what a lost source has left there.
#[tokio::test]
async fn a_read_goes_on_where_the_one_before_was() {
    let mut memory = holding();
    memory.fence();
    let target = memory.target(false, true, false).unwrap();
    assert!(target.filling.is_none() && target.serving.is_none() && target.live.is_none());
    memory.expose_filling(Generation(2));
    let begun = memory.filling.clone().unwrap();
    let goes_on = |target: &Target| match &target.filling {
        Some(filling) => Arc::ptr_eq(filling, &begun),
        None => false,
    };
    let target = memory.target(false, false, false).unwrap();
    assert_eq!((goes_on(&target), target.serving), (true, Some(EXPORT.at(2))));
    memory.fence();
    for keep in [false, true] {
        let target = memory.target(false, keep, false).unwrap();
        assert_eq!((goes_on(&target), target.serving), (keep, None));
    }
    let (registration, _) = memory.shared.current().unwrap();
    memory.shared.register((*registration).clone(), EXPORT);
    assert!(!goes_on(&memory.target(false, true, false).unwrap()), "other memory");
    // The next relay begins anew.
    memory.shared.registration.lock().unwrap().replace((registration, EXPORT));
    memory.expose_filling(Generation(3));
    let next = memory.filling.take().unwrap();
    assert!(!Arc::ptr_eq(&next, &begun) && !goes_on(&memory.target(false, true, false).unwrap()));
}

#[tokio::test]
async fn a_read_that_begins_anew_in_its_call_moves_all() {
    let mut memory = holding();
    for staged in [false, true] {
        for (keep, again) in [(false, false), (true, false), (true, true), (false, true)] {
            let target = memory.target(staged, keep, again).unwrap();
            assert_eq!(target.moves_all, again && !keep, "{keep} {again}");
            assert_eq!(target.live.is_some(), staged);
        }
    }
}

/// The next read is compared with what the memory holds by the server's word, and with nothing else.
#[tokio::test]
async fn what_is_remembered_is_what_was_committed_in_place() {
    let mut memory = holding();
    let known = |memory: &RegisteredMemory| memory.shared.routes.knows_content();
    for (installs, well, expected) in
        [(false, true, false), (true, true, true), (false, true, true), (true, false, false)]
    {
        let arrival = beside(&memory);
        assert!(memory.arrived(Ok(arrival)).is_some());
        if installs {
            memory.installed(Installed { bytes: 8, seconds: 0.0 });
        }
        drop(memory.take_arrived(well));
        assert_eq!(known(&memory), expected, "{installs} {well}");
    }
}

/// A read whose bytes others write is theirs to end, unless it was stopped.
#[tokio::test]
async fn a_read_is_left_to_those_who_write_the_memory() {
    let (mut memory, mut queue) = told();
    memory.fence();
    let shared = Arc::clone(&memory.shared);
    let room = &shared.push.target;
    let events = room.open().unwrap();
    room.begin_fill();
    memory.expose_filling(Generation(2));
    assert!(memory.exposed.is_empty() && memory.filling.is_none());
    assert!(shared.exports.exports().is_empty(), "it is served to nobody");
    let soon = Instant::now() + Duration::from_secs(20);
    let assignment = || Assignment { staged: false, ..staged() };
    let left = |memory: &mut RegisteredMemory, attempt, keep| {
        memory
            .start_read(ReadOrder { assignment: assignment(), ..order(3, attempt, 1, keep) }, soon);
        match events.try_recv() {
            Ok(TargetEvent::Read(read)) => read,
            _ => panic!("it is read here"),
        }
    };
    let first = left(&mut memory, 1, false);
    assert_eq!((&first.assignment, first.keep), (&assignment(), false));
    let second = left(&mut memory, 2, true);
    assert!(first.cancelled.load(Ordering::Acquire) && !second.cancelled.load(Ordering::Acquire));
    assert!(second.keep);
    let failed = |reason: &str| Err(ReadFailure::Source { shard: 0, reason: reason.to_owned() });
    (first.report)(failed("first"));
    (second.report)(failed("second"));
    let Ok(Event::ReadDone { seq, attempt, result: Err(failure) }) = queue.try_recv() else {
        panic!("it has ended")
    };
    let ReadFailure::Source { reason, .. } = failure else { panic!("{failure:?}") };
    assert_eq!((seq, attempt, reason.as_str()), (OpSeq(3), Attempt(2), "second"));
    let third = left(&mut memory, 3, true);
    memory.stop_read();
    assert!(third.cancelled.load(Ordering::Acquire) && memory.read.is_none());
    (third.report)(failed("third"));
    assert!(queue.try_recv().is_err(), "what was stopped says nothing");
    memory.end_push();
    assert!(!room.fills());
    memory.expose_filling(Generation(3));
    assert_eq!(memory.exposed, [EXPORT.at(3)]);
}
