//! The task that owns the server machine: one event at a time, then its outputs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::server::{Inspection, Server, ServerOutput, Snapshot};
use weightcast_protocol::{CallError, ConnectionId, ContentDigest, Term, TermProof};

use crate::clock::Clock;
use crate::convert::{ListingBytes, server_frame};
use crate::wire::ServerFrame;

/// Events waiting for the machine, over all streams.
pub(super) const QUEUE: usize = 4_096;
/// Messages waiting for one stream; a client that does not take them is cut off.
pub(super) const STREAM_QUEUE: usize = 1_024;

/// What happens to the server.
pub(super) enum Input {
    Connected(ConnectionId, Outbox),
    Message(ConnectionId, ClientMessage),
    Disconnected(ConnectionId),
    PutManifest(ContentDigest, Vec<u8>, oneshot::Sender<Result<(), CallError>>),
    GetManifest(ContentDigest, oneshot::Sender<Option<Vec<u8>>>),
    /// The term that a session of another server proves; which one this server acts in.
    Probe(TermProof, oneshot::Sender<Option<TermProof>>),
    Snapshot(oneshot::Sender<Snapshot>),
    /// Model and replica.
    Inspect(String, String, oneshot::Sender<(Term, Inspection)>),
}

/// The actor's end of one stream. Dropping it ends the stream.
pub(super) struct Outbox {
    pub(super) frames: mpsc::Sender<Result<ServerFrame, tonic::Status>>,
    /// Never sent on: its drop tells the other half.
    pub(super) _alive: oneshot::Sender<()>,
}

/// The streams that are open, and how what they are sent is encoded.
#[derive(Default)]
struct Streams {
    open: BTreeMap<ConnectionId, Outbox>,
    listings: ListingBytes,
}

/// Runs until the queue closes, or nobody was connected for `idle_exit`.
pub(super) async fn run(
    mut machine: Server,
    mut queue: mpsc::Receiver<Input>,
    idle_exit: Option<Duration>,
    gives_up_at: Option<PathBuf>,
) {
    let clock = Clock::start();
    let mut streams = Streams::default();
    let mut idle_since = Instant::now();
    loop {
        let wake = machine.next_timeout().map(|time| clock.instant(time));
        let leave = idle_exit.filter(|_| streams.open.is_empty()).map(|after| idle_since + after);
        tokio::select! {
            input = queue.recv() => match input {
                Some(input) => handle(&mut machine, &mut streams, &clock, input),
                None => return,
            },
            () = sleep_until(wake) => machine.handle_timeout(clock.now()),
            () = sleep_until(leave) => return,
        }
        if gives_up_at.as_deref().is_some_and(Path::exists) {
            panic!("it was told to, by a test");
        }
        dispatch(&mut machine, &mut streams);
        if !streams.open.is_empty() {
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
        Input::Connected(connection, outbox) => {
            streams.open.insert(connection, outbox);
        }
        Input::Message(connection, message) => {
            // A stream that was cut off may still have messages in the queue.
            if streams.open.contains_key(&connection) {
                machine.handle(now, connection, message);
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
        Input::GetManifest(digest, reply) => {
            let _ = reply.send(machine.manifest(&digest).map(|bytes| bytes.to_vec()));
        }
        Input::Probe(told, reply) => {
            let _ = reply.send(machine.handle_probe(now, told));
        }
        Input::Snapshot(reply) => {
            let _ = reply.send(machine.snapshot(now));
        }
        Input::Inspect(model, replica, reply) => {
            let _ = reply.send((machine.term(), machine.inspect(&model, &replica)));
        }
    }
}

fn dispatch(machine: &mut Server, streams: &mut Streams) {
    while let Some(output) = machine.poll_output() {
        match output {
            ServerOutput::Send { to, message } => {
                let Some(stream) = streams.open.get(&to) else { continue };
                let frame = server_frame(message, &mut streams.listings);
                match stream.frames.try_send(Ok(frame)) {
                    Ok(()) => continue,
                    // The machine learns it from the stream's other half.
                    Err(TrySendError::Closed(_)) => continue,
                    Err(TrySendError::Full(_)) => {
                        tracing::warn!(
                            connection = to.0,
                            "client has not taken its last {STREAM_QUEUE} messages; cut off"
                        );
                        streams.open.remove(&to);
                    }
                }
            }
            ServerOutput::Disconnect { connection } => {
                streams.open.remove(&connection);
            }
        }
    }
}
