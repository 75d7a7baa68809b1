//! Which clients are cut off, which are heard, and when a server stops.

use tokio_stream::StreamExt;
use weightcast_protocol::limits::SERVER_REEL;
use weightcast_protocol::message::{EpochPolicy, Location, Open, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{PROTOCOL, SessionId};

use super::super::admission::{Admission, AdmittedPlace};
use super::super::outbox::{Frames, outbox};
use super::super::queue::ClientOrigin;
use super::*;
use crate::recordings::RecordingFiles;
use crate::wire::server_frame::Body;

/// A client's stream: the server's end, and what is seen from outside.
fn line(admission: &Admission) -> (StreamEnd, (AdmittedPlace, oneshot::Receiver<()>, Frames)) {
    let (place, cut_off) = admission.enter(ClientOrigin::Process(1), Instant::now());
    place.pass().show().unwrap();
    let (outbox, frames) = outbox();
    let line = StreamEnd { outbox, pass: place.pass(), _alive: oneshot::channel().0 };
    (line, (place, cut_off, frames))
}

fn message() -> ServerMessage {
    ServerMessage::HeartbeatAck { sent_at: 1 }
}

#[test]
fn whoever_has_the_most_waiting_is_cut_off_when_all_together_have_too_much() {
    let admission = Admission::new();
    let mut streams = Streams::new(100_000);
    let (greedy, modest) = (ConnectionId(1), ConnectionId(2));
    let mut seen = BTreeMap::new();
    for client in [greedy, modest] {
        let (line, outside) = line(&admission);
        streams.open.insert(client, line);
        seen.insert(client, outside);
    }
    assert!(streams.send(modest, message()).is_empty());
    let cut = (0..10_000).find_map(|_| streams.send(greedy, message()).pop());
    assert_eq!(cut, Some(greedy));
    assert_eq!(seen.get_mut(&greedy).unwrap().1.try_recv(), Ok(()), "its connection closes");
    assert!(seen.get_mut(&modest).unwrap().1.try_recv().is_err());
    assert!(streams.waiting.alive() < 1_000, "and what waited for it is gone");
    assert!(streams.send(greedy, message()).is_empty());
}

fn open() -> ClientMessage {
    ClientMessage::Open(Open {
        protocol: PROTOCOL,
        session: SessionId(1),
        ticket: None,
        rejoins: false,
        model: "policy".into(),
        replica: "trainer".into(),
        shard: 0,
        num_shards: 1,
        role: Role::Trainer,
        epoch: EpochPolicy::Current,
        retain: 0,
        offload_seeding: false,
        location: Location::default(),
        data_address: String::new(),
        activate: true,
    })
}

fn machine(config: ServerConfig) -> FlightRecorder<Server> {
    FlightRecorder::new(Server::new(config), SERVER_REEL, RecordingFiles::default())
}

#[tokio::test]
async fn a_server_that_stood_still_hears_its_clients_before_it_ends_their_leases() {
    let lease = Duration::from_secs(1);
    let config = ServerConfig { lease: crate::clock::span(lease), ..ServerConfig::default() };
    let (inputs, queue) = mpsc::channel(QUEUE);
    tokio::spawn(run(machine(config), queue, None, None));
    let admission = Admission::new();
    let (line, (_place, _cut_off, mut frames)) = line(&admission);
    let client = ConnectionId(1);
    inputs.send(ActorInput::Connected(client, line)).await.unwrap();
    inputs.send(ActorInput::Message(client, Box::new(open()))).await.unwrap();
    assert!(matches!(told(&mut frames).await, Body::Opened(_)));
    // Its thread, as if it had been suspended; the client's heartbeats reach it after that.
    std::thread::sleep(2 * lease);
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let heartbeat = ClientMessage::Heartbeat { sent_at: 7 };
    inputs.send(ActorInput::Message(client, Box::new(heartbeat))).await.unwrap();
    let answer = told(&mut frames).await;
    assert!(matches!(answer, Body::HeartbeatAck(_)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_ends_when_nobody_was_connected_for_so_long() {
    let (second, idle) = (Duration::from_secs(1), Duration::from_secs(10));
    let (inputs, queue) = mpsc::channel(QUEUE);
    let config = ServerConfig::default();
    let server = tokio::spawn(run(machine(config), queue, Some(idle), None));
    let admission = Admission::new();
    let client = ConnectionId(1);
    for connected in [idle - second, 5 * idle] {
        // Nobody has come yet, or all have left.
        tokio::time::sleep(idle - second).await;
        let (line, _outside) = line(&admission);
        inputs.send(ActorInput::Connected(client, line)).await.unwrap();
        tokio::time::sleep(connected).await;
        inputs.send(ActorInput::Disconnected(client)).await.unwrap();
    }
    tokio::time::sleep(idle - second).await;
    assert!(!server.is_finished(), "somebody may come");
    tokio::time::sleep(2 * second).await;
    assert!(server.is_finished());
}

async fn told(frames: &mut Frames) -> Body {
    frames.next().await.expect("the stream goes on").unwrap().body.unwrap()
}

#[test]
fn what_waits_in_a_stream_that_is_over_counts_as_well() {
    let admission = Admission::new();
    let mut streams = Streams::new(100_000);
    let (over, modest) = (ConnectionId(1), ConnectionId(2));
    let ((first, mut greedy), (second, mut other)) = (line(&admission), line(&admission));
    streams.open.insert(over, first);
    streams.open.insert(modest, second);
    while streams.waiting.alive() < 90_000 {
        assert!(streams.send(over, message()).is_empty());
    }
    streams.end(over);
    while greedy.1.try_recv().is_err() {
        // The machine has forgotten it: there is nobody to tell.
        assert!(streams.send(modest, message()).is_empty());
    }
    assert!(other.1.try_recv().is_err());
}

/// A machine with one session, whose stream is open, and the machine's messages to it.
fn with_session()
-> (FlightRecorder<Server>, Streams, ConnectionId, (AdmittedPlace, oneshot::Receiver<()>, Frames)) {
    let (admission, clock) = (Admission::new(), Clock::start());
    let mut machine = machine(ServerConfig::default());
    let mut streams = Streams::new(usize::MAX);
    let client = ConnectionId(1);
    let (line, outside) = line(&admission);
    handle(&mut machine, &mut streams, &clock, ActorInput::Connected(client, line));
    handle(&mut machine, &mut streams, &clock, ActorInput::Message(client, Box::new(open())));
    (machine, streams, client, outside)
}

fn connected(machine: &Server) -> Vec<bool> {
    let models = machine.snapshot(Clock::start().now()).models;
    let replicas = models.into_values().flat_map(|model| model.replicas);
    replicas.flat_map(|replica| replica.shards).map(|shard| shard.connected).collect()
}

/// A client is cut off for what waits for all clients, or for what waits for itself alone.
#[test]
fn the_machine_hears_of_whoever_is_cut_off() {
    for alone in [false, true] {
        let (mut machine, mut streams, client, _outside) = with_session();
        assert_eq!(connected(&machine), [true]);
        if alone {
            let page = crate::wire::ServerFrame {
                body: Some(Body::Page(vec![0; crate::limits::OUTBOX_BYTES].into())),
            };
            assert!(streams.open[&client].outbox.push(vec![page], &streams.waiting));
        } else {
            streams.most = 0;
        }
        dispatch(&mut machine, &mut streams, &Clock::start());
        assert!(streams.open.is_empty());
        assert_eq!(connected(&machine), [false], "{alone}");
    }
}

/// Messages of a stream that is over may still be in the queue.
#[test]
fn nothing_is_heard_of_a_stream_that_is_over() {
    let (mut machine, mut streams) = (machine(ServerConfig::default()), Streams::new(usize::MAX));
    let client = ConnectionId(1);
    let said = ActorInput::Message(client, Box::new(open()));
    handle(&mut machine, &mut streams, &Clock::start(), said);
    assert_eq!(machine.snapshot(Clock::start().now()).sessions, 0);
}

#[test]
fn a_stream_that_is_over_is_kept_until_all_is_taken() {
    let admission = Admission::new();
    let mut streams = Streams::new(usize::MAX);
    let mut outside = Vec::new();
    for (number, waits) in [(1, true), (2, false), (3, true), (4, false)] {
        let (line, seen) = line(&admission);
        outside.push(seen);
        streams.open.insert(ConnectionId(number), line);
        if waits {
            assert!(streams.send(ConnectionId(number), message()).is_empty());
        }
        streams.end(ConnectionId(number));
    }
    // The last one is looked at when another ends.
    let kept: Vec<_> = streams.ending.keys().map(|id| id.0).collect();
    assert_eq!(kept, [1, 3, 4]);
}

/// Whatever made it give up: here a file that says so, as a broken invariant would.
#[tokio::test]
async fn a_server_that_gives_up_leaves_what_led_to_that() {
    let directory = std::env::temp_dir()
        .join(format!("wc-gives-up-{}", crate::auth::new_token().unwrap().expose().escape_ascii()));
    std::fs::create_dir(&directory).unwrap();
    let files = RecordingFiles::within(Some(&directory)).unwrap();
    let server = Server::new(ServerConfig::default());
    let recorder = FlightRecorder::new(server, SERVER_REEL, files);
    let (inputs, queue) = mpsc::channel(QUEUE);
    let gives_up_at = directory.join("now");
    let server = tokio::spawn(run(recorder, queue, None, Some(gives_up_at.clone())));
    let admission = Admission::new();
    let (line, (_place, _cut_off, mut frames)) = line(&admission);
    let client = ConnectionId(1);
    inputs.send(ActorInput::Connected(client, line)).await.unwrap();
    inputs.send(ActorInput::Message(client, Box::new(open()))).await.unwrap();
    told(&mut frames).await;
    std::fs::write(&gives_up_at, "").unwrap();
    inputs.send(ActorInput::Disconnected(client)).await.unwrap();
    assert!(server.await.unwrap_err().is_panic());
    let left = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<_> = left.filter(|path| *path != gives_up_at).collect();
    let [path] = &left[..] else { panic!("{left:?}") };
    let recording = Recording::decode(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((recording.head.cause, recording.head.events), (RecordingCause::Panic, 1));
    std::fs::remove_dir_all(directory).unwrap();
}
