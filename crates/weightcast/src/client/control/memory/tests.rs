//! The memory's note describes what the memory holds, not what was read beside it.

use weightcast_plan::{DType, LayoutBuilder, Part, Plan};
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
    let mut layout = LayoutBuilder::new();
    layout.add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0);
    let (layout, region) = (Arc::new(layout.build().unwrap()), Region::from_bytes(&[1; 8]));
    let registration = RegisteredShard::new(&[layout], 0, vec![region.unwrap()]).unwrap();
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

/// A read without `keep` has fresh memory and no progress: nothing of a bad source remains.
#[tokio::test]
async fn a_read_that_begins_anew_keeps_nothing() {
    let mut memory = holding();
    let soon = Instant::now() + Duration::from_secs(20);
    let mut reading = |attempt, keep| {
        memory.start_read(OpSeq(1), Attempt(attempt), staged(), keep, soon);
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
        memory.start_read(OpSeq(3), Attempt(attempt), assignment(), keep, soon);
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
