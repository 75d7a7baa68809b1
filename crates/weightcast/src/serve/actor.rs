//! The task that owns the server machine: one event at a time, then its outputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weightcast_protocol::Sum;
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, RoutingAnswer, RoutingQuestion,
};
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::recording::{Recording, RecordingCause, RecordingError};
use weightcast_protocol::server::{
    FleetError, Inspection, Preview, Server, ServerOutput, Snapshot, Why,
};
use weightcast_protocol::{CallError, ConnectionId, ContentDigest, Term, TermProof};

use super::admission::Pass;
use super::outbox::Outbox;
use super::spans::CallSpans;
use crate::clock::Clock;
use crate::convert::{ByteMeter, Encoder};
use crate::limits::OUTBOXES_BYTES;
use crate::recordings::FlightRecorder;

/// Events waiting for the machine, over all streams: with the largest messages 100 MB.
pub(super) const QUEUE: usize = 4_096;

/// What happens to the server, as an input of its task.
pub(super) enum ActorInput {
    Connected(ConnectionId, StreamEnd),
    Message(ConnectionId, Box<ClientMessage>),
    Disconnected(ConnectionId),
    PutManifest(ContentDigest, Vec<u8>, oneshot::Sender<Result<(), CallError>>),
    /// Whether the manifest is stored; a stored one is kept as if it had just been stored.
    HasManifest(ContentDigest, oneshot::Sender<bool>),
    GetManifest(ContentDigest, oneshot::Sender<Option<Arc<[u8]>>>),
    /// The term that another server's session proves; the reply is the term in which this server
    /// acts.
    Probe(TermProof, oneshot::Sender<Option<TermProof>>),
    Snapshot(oneshot::Sender<Snapshot>),
    /// Model, if it is named, and replica.
    Why(Option<String>, String, oneshot::Sender<Result<Why, CallError>>),
    Record(oneshot::Sender<Result<Recording, RecordingError>>),
    /// Model and replica.
    Inspect(String, String, Option<Sum>, oneshot::Sender<(Term, Inspection)>),
    /// Model, reader and source.
    Preview([String; 3], oneshot::Sender<Option<Preview>>),
    /// Model, and what the register of its fleet is asked.
    AskFleet(String, FleetQuestion, oneshot::Sender<Result<FleetAnswer, FleetError>>),
    AskRouting(String, RoutingQuestion, oneshot::Sender<Result<RoutingAnswer, FleetError>>),
}

/// The actor's end of one stream. Dropping it ends the stream.
pub(super) struct StreamEnd {
    pub(super) outbox: Outbox,
    /// The connection that the stream is on.
    pub(super) pass: Pass,
    /// Never sent on: its drop ends the task that forwards the client's frames.
    pub(super) _alive: oneshot::Sender<()>,
}

/// The streams that are open, and what waits in them.
struct Streams {
    open: BTreeMap<ConnectionId, StreamEnd>,
    /// Streams that the machine has ended, but whose clients have not taken everything yet.
    ending: BTreeMap<ConnectionId, (Outbox, Pass)>,
    encoder: Encoder,
    waiting: ByteMeter,
    /// Most bytes that may wait in all streams together.
    most: usize,
}

impl Streams {
    fn new(most: usize) -> Self {
        let waiting = ByteMeter::default();
        let encoder = Encoder::new(waiting.clone());
        Self { open: BTreeMap::new(), ending: BTreeMap::new(), encoder, waiting, most }
    }

    /// Lets a message wait for its client. Returns the clients that were cut off for it.
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

    /// Closes a client's connection, with all that waits in it; the session can come back. Returns
    /// the client if the machine still knows the stream.
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

    /// Ends a stream after what waits in it.
    fn end(&mut self, connection: ConnectionId) {
        let Some(StreamEnd { outbox, pass, .. }) = self.open.remove(&connection) else { return };
        outbox.end();
        self.ending.retain(|_, (outbox, _)| outbox.waiting() > 0);
        self.ending.insert(connection, (outbox, pass));
    }
}

/// Runs until the queue closes, or nobody was connected for `idle_exit`.
pub(super) async fn run(
    mut machine: FlightRecorder<Server>,
    mut queue: mpsc::Receiver<ActorInput>,
    idle_exit: Option<Duration>,
    gives_up_at: Option<PathBuf>,
) {
    let clock = Clock::start();
    let mut streams = Streams::new(OUTBOXES_BYTES);
    let mut calls = CallSpans::default();
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
                // This process may have been held up: the delay is excused first.
                machine.handle_timeout(clock.now());
            }
            () = sleep_until(leave) => return,
        }
        dispatch(&mut machine, &mut streams, &clock);
        while let Some(change) = machine.poll_stage() {
            calls.follow(change);
        }
        // `nobody` was read before the event: a client that has just left counts as connected till
        // now.
        if !(nobody && streams.open.is_empty()) {
            idle_since = Instant::now();
        }
    }
}

/// Sleeps until then; for ever, if there is no time.
pub(super) async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

fn handle(
    machine: &mut FlightRecorder<Server>,
    streams: &mut Streams,
    clock: &Clock,
    input: ActorInput,
) {
    let now = clock.now();
    match input {
        ActorInput::Connected(connection, line) => {
            streams.open.insert(connection, line);
        }
        ActorInput::Message(connection, message) => {
            // A stream that was cut off may still have messages in the queue.
            if streams.open.contains_key(&connection) {
                machine.handle(now, connection, message);
            }
        }
        ActorInput::Disconnected(connection) => {
            if streams.open.remove(&connection).is_some() {
                machine.handle_disconnect(now, connection);
            }
        }
        ActorInput::PutManifest(digest, bytes, reply) => {
            let _ = reply.send(machine.put_manifest(now, digest, bytes));
        }
        ActorInput::HasManifest(digest, reply) => {
            let _ = reply.send(machine.has_manifest(now, digest));
        }
        ActorInput::GetManifest(digest, reply) => {
            let _ = reply.send(machine.manifest(&digest));
        }
        ActorInput::Probe(told, reply) => {
            let _ = reply.send(machine.handle_probe(now, told));
        }
        ActorInput::Snapshot(reply) => {
            let _ = reply.send(machine.snapshot(now));
        }
        ActorInput::Record(reply) => {
            let _ = reply.send(machine.recording(RecordingCause::Asked));
        }
        ActorInput::Why(model, replica, reply) => {
            let _ = reply.send(machine.why(now, model.as_deref(), &replica));
        }
        ActorInput::Inspect(model, replica, found, reply) => {
            let _ = reply.send((machine.term(), machine.inspect(&model, &replica, found)));
        }
        ActorInput::Preview([model, reader, source], reply) => {
            let _ = reply.send(machine.preview(&model, &reader, &source));
        }
        ActorInput::AskFleet(model, question, reply) => {
            let _ = reply.send(machine.ask_fleet(now, &model, question));
        }
        ActorInput::AskRouting(model, question, reply) => {
            let _ = reply.send(machine.ask_routing(now, &model, question));
        }
    }
}

fn dispatch(machine: &mut FlightRecorder<Server>, streams: &mut Streams, clock: &Clock) {
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
mod tests;
