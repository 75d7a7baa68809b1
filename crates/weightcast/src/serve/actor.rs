//! The task that owns the server machine: one event at a time, then its outputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weightcast_protocol::Sum;
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{Inspection, Server, ServerOutput, Snapshot};
use weightcast_protocol::{CallError, ConnectionId, ContentDigest, Term, TermProof};

use super::admission::Pass;
use super::outbox::Outbox;
use crate::clock::Clock;
use crate::convert::{ByteMeter, Encoder};
use crate::limits::OUTBOXES_BYTES;

/// Events waiting for the machine, over all streams: with the largest messages 100 MB.
pub(super) const QUEUE: usize = 4_096;

/// What happens to the server.
pub(super) enum Input {
    Connected(ConnectionId, StreamEnd),
    Message(ConnectionId, Box<ClientMessage>),
    Disconnected(ConnectionId),
    PutManifest(ContentDigest, Vec<u8>, oneshot::Sender<Result<(), CallError>>),
    /// Whether it is stored; it is kept as if it had just been.
    HasManifest(ContentDigest, oneshot::Sender<bool>),
    GetManifest(ContentDigest, oneshot::Sender<Option<Arc<[u8]>>>),
    /// The term that a session of another server proves; which one this server acts in.
    Probe(TermProof, oneshot::Sender<Option<TermProof>>),
    Snapshot(oneshot::Sender<Snapshot>),
    /// Model and replica.
    Inspect(String, String, Option<Sum>, oneshot::Sender<(Term, Inspection)>),
}

/// The actor's end of one stream. Dropping it ends the stream.
pub(super) struct StreamEnd {
    pub(super) outbox: Outbox,
    /// The connection that the stream is on.
    pub(super) pass: Pass,
    /// Never sent on: its drop tells the other half.
    pub(super) _alive: oneshot::Sender<()>,
}

/// The streams that are open, and what waits in them.
struct Streams {
    open: BTreeMap<ConnectionId, StreamEnd>,
    /// Over for the machine; what waits in them is still to be taken.
    ending: BTreeMap<ConnectionId, (Outbox, Pass)>,
    encoder: Encoder,
    waiting: ByteMeter,
    /// Of all streams together.
    most: usize,
}

impl Streams {
    fn new(most: usize) -> Self {
        let waiting = ByteMeter::default();
        let encoder = Encoder::new(waiting.clone());
        Self { open: BTreeMap::new(), ending: BTreeMap::new(), encoder, waiting, most }
    }

    /// Lets a message wait for its client; the clients that are cut off for it.
    fn send(&mut self, to: ConnectionId, message: ServerMessage) -> Vec<ConnectionId> {
        let mut cut = Vec::new();
        let Some(line) = self.open.get(&to) else { return cut };
        let frames = self.encoder.frames(message);
        if !line.outbox.push(frames, &self.waiting) {
            cut.extend(self.cut(to, "it does not take what it is sent"));
        }
        while self.waiting.alive() > self.most {
            let open = self.open.iter().map(|(to, line)| (line.outbox.waiting(), *to));
            let ending = self.ending.iter().map(|(to, (outbox, _))| (outbox.waiting(), *to));
            let most = open.chain(ending).max().filter(|(bytes, _)| *bytes > 0);
            let Some((_, slowest)) = most else { break };
            cut.extend(self.cut(slowest, "too much waits for all, and the most for it"));
        }
        cut
    }

    /// Closes a client's connection, with all that waits in it. The session can come back.
    fn cut(&mut self, client: ConnectionId, why: &str) -> Option<ConnectionId> {
        let open = self.open.remove(&client).map(|line| (line.outbox, line.pass));
        let known = open.is_some();
        let (outbox, pass) = open.or_else(|| self.ending.remove(&client))?;
        let bytes = outbox.waiting();
        tracing::warn!(connection = client.0, bytes, "client cut off: {why}");
        outbox.cut();
        pass.close();
        known.then_some(client)
    }

    /// Nothing more is sent on a stream.
    fn end(&mut self, connection: ConnectionId) {
        let Some(StreamEnd { outbox, pass, .. }) = self.open.remove(&connection) else { return };
        outbox.end();
        self.ending.retain(|_, (outbox, _)| outbox.waiting() > 0);
        self.ending.insert(connection, (outbox, pass));
    }
}

/// Runs until the queue closes, or nobody was connected for `idle_exit`.
pub(super) async fn run(
    mut machine: Server,
    mut queue: mpsc::Receiver<Input>,
    idle_exit: Option<Duration>,
    gives_up_at: Option<PathBuf>,
) {
    let clock = Clock::start();
    let mut streams = Streams::new(OUTBOXES_BYTES);
    let mut idle_since = Instant::now();
    loop {
        let wake = machine.next_timeout().map(|time| clock.instant(time));
        let nobody = streams.open.is_empty();
        let leave = idle_exit.filter(|_| nobody).map(|after| idle_since + after);
        tokio::select! {
            input = queue.recv() => match input {
                Some(_) if gives_up_at.as_deref().is_some_and(Path::exists) => {
                    panic!("it was told to, by a test")
                }
                Some(input) => handle(&mut machine, &mut streams, &clock, input),
                None => return,
            },
            () = sleep_until(wake) => {
                // As late as this process was.
                let now = clock.now();
                machine.excuse_delay(now);
                machine.handle_timeout(now);
            }
            () = sleep_until(leave) => return,
        }
        dispatch(&mut machine, &mut streams, &clock);
        // Also when the last one has just left, however long it had been silent.
        if !(nobody && streams.open.is_empty()) {
            idle_since = Instant::now();
        }
    }
}

/// Never, if there is no time.
pub(super) async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

fn handle(machine: &mut Server, streams: &mut Streams, clock: &Clock, input: Input) {
    let now = clock.now();
    match input {
        Input::Connected(connection, line) => {
            streams.open.insert(connection, line);
        }
        Input::Message(connection, message) => {
            // A stream that was cut off may still have messages in the queue.
            if streams.open.contains_key(&connection) {
                machine.handle(now, connection, *message);
            }
        }
        Input::Disconnected(connection) => {
            if streams.open.remove(&connection).is_some() {
                machine.handle_disconnect(now, connection);
            }
        }
        Input::PutManifest(digest, bytes, reply) => {
            let _ = reply.send(machine.put_manifest(now, digest, bytes));
        }
        Input::HasManifest(digest, reply) => {
            let _ = reply.send(machine.has_manifest(now, digest));
        }
        Input::GetManifest(digest, reply) => {
            let _ = reply.send(machine.manifest(&digest));
        }
        Input::Probe(told, reply) => {
            let _ = reply.send(machine.handle_probe(now, told));
        }
        Input::Snapshot(reply) => {
            let _ = reply.send(machine.snapshot(now));
        }
        Input::Inspect(model, replica, found, reply) => {
            let _ = reply.send((machine.term(), machine.inspect(&model, &replica, found)));
        }
    }
}

fn dispatch(machine: &mut Server, streams: &mut Streams, clock: &Clock) {
    while let Some(output) = machine.poll_output() {
        match output {
            ServerOutput::Send { to, message } => {
                for client in streams.send(to, message) {
                    machine.handle_disconnect(clock.now(), client);
                }
            }
            ServerOutput::Disconnect { connection } => {
                streams.end(connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;
    use weightcast_protocol::message::{EpochPolicy, Location, Open, Role};
    use weightcast_protocol::server::ServerConfig;
    use weightcast_protocol::{PROTOCOL, SessionId};

    use super::super::admission::{Admission, Place};
    use super::super::outbox::{Frames, outbox};
    use super::super::queue::ClientOrigin;
    use super::*;
    use crate::wire::server_frame::Body;

    /// A client's stream, as the server has it and as it is seen from outside.
    fn line(admission: &Admission) -> (StreamEnd, (Place, oneshot::Receiver<()>, Frames)) {
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

    #[tokio::test]
    async fn a_server_that_stood_still_hears_its_clients_before_it_ends_their_leases() {
        let lease = Duration::from_secs(1);
        let config = ServerConfig { lease: crate::clock::span(lease), ..ServerConfig::default() };
        let (inputs, queue) = mpsc::channel(QUEUE);
        tokio::spawn(run(Server::new(config), queue, None, None));
        let admission = Admission::new();
        let (line, (_place, _cut_off, mut frames)) = line(&admission);
        let client = ConnectionId(1);
        inputs.send(Input::Connected(client, line)).await.unwrap();
        inputs.send(Input::Message(client, Box::new(open()))).await.unwrap();
        assert!(matches!(told(&mut frames).await, Body::Opened(_)));
        // Its thread, as if it had been suspended; the client's heartbeats reach it after that.
        std::thread::sleep(2 * lease);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let heartbeat = ClientMessage::Heartbeat { sent_at: 7 };
        inputs.send(Input::Message(client, Box::new(heartbeat))).await.unwrap();
        let answer = told(&mut frames).await;
        assert!(matches!(answer, Body::HeartbeatAck(_)), "{answer:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_ends_when_nobody_was_connected_for_so_long() {
        let (second, idle) = (Duration::from_secs(1), Duration::from_secs(10));
        let (inputs, queue) = mpsc::channel(QUEUE);
        let config = ServerConfig::default();
        let server = tokio::spawn(run(Server::new(config), queue, Some(idle), None));
        let admission = Admission::new();
        let client = ConnectionId(1);
        for connected in [idle - second, 5 * idle] {
            // Nobody has come yet, or all have left.
            tokio::time::sleep(idle - second).await;
            let (line, _outside) = line(&admission);
            inputs.send(Input::Connected(client, line)).await.unwrap();
            tokio::time::sleep(connected).await;
            inputs.send(Input::Disconnected(client)).await.unwrap();
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
}
