//! The thread that drives one session machine: events in, outputs carried out, in order.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc as reply};

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::{Code, Status};
use weightcast_protocol::message::{Answer, Call, ReadFailure, ServerMessage};
use weightcast_protocol::session::{Output, Session, SessionState};
use weightcast_protocol::{
    Attempt, CallError, Generation, OpSeq, ShardSums, Span, Term, Time, Version,
};

use super::Transfer;
use super::connection::{self, Connection};
use super::locate::Evidence;
use super::memory::Memory;
use super::offload::Offloader;
use super::route::Arrival;
use super::seed::Seeder;
use super::shared::{Shared, View};
use super::staging::Installed;
use crate::clock::Clock;
use crate::convert::{client_frame, server_message};
use crate::{Error, manifest};

/// What a call came to, with what it moved.
pub(crate) type Reply = Result<(Answer, Transfer), Failed>;

/// How a call failed, with what may tell why.
pub(crate) struct Failed {
    pub(crate) error: CallError,
    /// Of the read that the error is about, if it is about one.
    pub(crate) evidence: Option<Box<Evidence>>,
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self { error, evidence: None }
    }
}

/// Everything that happens to the session.
pub(crate) enum Event {
    Call {
        call: Call,
        deadline: Span,
        reply: reply::Sender<Reply>,
    },
    /// Answered once the session is open, or will never be.
    AwaitOpen {
        reply: reply::Sender<Result<(), CallError>>,
    },
    /// Answered once what is published is sealed.
    AwaitSeal {
        reply: reply::Sender<Result<(), CallError>>,
    },
    Close {
        deadline: Span,
        reply: reply::Sender<()>,
    },
    Connected {
        stream: u64,
        result: Result<connection::Session, Status>,
    },
    Frame {
        stream: u64,
        message: ServerMessage,
    },
    StreamEnded {
        stream: u64,
        reason: String,
    },
    Sealed {
        generation: Generation,
        sums: ShardSums,
        note: Vec<u8>,
    },
    Probed {
        server: usize,
        told: Term,
        term: Term,
    },
    /// An offload came to nothing.
    OffloadFailed {
        version: Version,
        generation: Generation,
        reason: String,
    },
    /// A seed came to nothing.
    SeedFailed {
        ask: u64,
        reason: String,
    },
    /// Answered once the session is over.
    AwaitEnd {
        reply: reply::Sender<Option<CallError>>,
    },
    ReadDone {
        seq: OpSeq,
        attempt: Attempt,
        result: Result<Box<Arrival>, ReadFailure>,
    },
    /// What was read beside the registered memory is in it.
    Installed {
        seq: OpSeq,
        attempt: Attempt,
        installed: Installed,
    },
}

/// The control thread's state.
pub(crate) struct Control {
    pub(crate) session: Session,
    pub(crate) clock: Clock,
    pub(crate) connection: Connection,
    pub(crate) shared: Arc<Shared>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    stream: Option<(u64, mpsc::Sender<crate::wire::ClientFrame>)>,
    streams: u64,
    replies: BTreeMap<OpSeq, reply::Sender<Reply>>,
    awaiting_open: Vec<reply::Sender<Result<(), CallError>>>,
    awaiting_seal: Vec<reply::Sender<Result<(), CallError>>>,
    awaiting_close: Vec<reply::Sender<()>>,
    awaiting_end: Vec<reply::Sender<Option<CallError>>>,
    memory: Memory,
    offloader: Offloader,
    seeder: Seeder,
    over: bool,
}

impl Control {
    pub(crate) fn new(
        session: Session,
        clock: Clock,
        connection: Connection,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<Event>,
        offloader: Offloader,
        seeder: Seeder,
    ) -> Self {
        let memory = Memory::new(Arc::clone(&shared), connection.clone(), events.clone());
        Self {
            session,
            clock,
            connection,
            shared,
            events,
            stream: None,
            streams: 0,
            replies: BTreeMap::new(),
            awaiting_open: Vec::new(),
            awaiting_seal: Vec::new(),
            awaiting_close: Vec::new(),
            awaiting_end: Vec::new(),
            memory,
            offloader,
            seeder,
            over: false,
        }
    }

    /// Runs until the session is closed and its handle gone.
    pub(crate) async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Event>) {
        self.carry_out();
        loop {
            let wake = self.session.next_timeout().map(|time| self.clock.instant(time));
            tokio::select! {
                event = queue.recv() => match event {
                    Some(event) => self.handle(event),
                    None => break,
                },
                () = sleep_until(wake) => self.session.handle_timeout(self.clock.now()),
            }
            self.carry_out();
            // An ended session is kept until its handle is closed: calls learn why it ended.
            if self.over && !self.awaiting_close.is_empty() {
                break;
            }
        }
        self.memory.stop_read();
        self.memory.fence();
        for reply in self.awaiting_close {
            let _ = reply.send(());
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Call { call, deadline, reply } => match self.session.call(now, call, deadline) {
                Ok(seq) => drop(self.replies.insert(seq, reply)),
                Err(error) => drop(reply.send(Err(self.explain(error).into()))),
            },
            Event::AwaitOpen { reply } | Event::AwaitSeal { reply } if self.over => {
                let _ = reply.send(Err(self.gone()));
            }
            Event::AwaitOpen { reply } => self.awaiting_open.push(reply),
            Event::AwaitSeal { reply } => self.awaiting_seal.push(reply),
            Event::Close { deadline, reply } => {
                self.awaiting_close.push(reply);
                self.session.close(now, deadline);
            }
            Event::Connected { stream, result } => self.connected(now, stream, result),
            Event::Frame { stream, message } => {
                if self.stream.as_ref().is_some_and(|(current, _)| *current == stream) {
                    if let ServerMessage::Refused { error, .. } = &message {
                        self.shared.set_trouble(Some(error.clone()));
                    }
                    self.session.handle_message(now, message);
                }
            }
            Event::StreamEnded { stream, reason } => {
                if self.stream.as_ref().is_some_and(|(current, _)| *current == stream) {
                    self.stream = None;
                    tracing::debug!(reason, "session stream ended");
                    self.session.handle_disconnected(now);
                }
            }
            Event::Sealed { generation, sums, note } => {
                self.memory.sealed(generation, note);
                self.session.handle_sealed(now, generation, sums);
            }
            Event::Probed { server, told, term } => {
                self.session.handle_probed(now, server, told, term);
            }
            Event::OffloadFailed { version, generation, reason } => {
                tracing::warn!(%version, reason, "a retained version was not offloaded");
                self.session.handle_offload_failed(now, version, generation, reason);
            }
            Event::SeedFailed { ask, reason } => {
                tracing::warn!(ask, reason, "a version was not brought near in the background");
                self.session.handle_seed_failed(now, ask);
            }
            Event::AwaitEnd { reply } if self.over => {
                let _ = reply.send(self.session.error().cloned());
            }
            Event::AwaitEnd { reply } => self.awaiting_end.push(reply),
            Event::Installed { seq, attempt, installed } => {
                self.memory.installed(installed);
                self.session.handle_installed(now, seq, attempt);
            }
            Event::ReadDone { seq, attempt, result } => {
                if let Some(result) = self.memory.arrived(result) {
                    self.session.handle_read(now, seq, attempt, result);
                }
            }
        }
    }

    fn connected(&mut self, now: Time, stream: u64, result: Result<connection::Session, Status>) {
        if stream != self.streams {
            return; // another one was asked for meanwhile, perhaps to another server
        }
        match result {
            Ok(session) => {
                self.stream = Some((stream, session.sender));
                tokio::spawn(forward(stream, session.frames, self.events.clone()));
                self.session.handle_connected(now);
            }
            Err(status) => {
                let unreachable = match self.connection.unreachable(&status) {
                    Error::Call(error) => error,
                    other => CallError::Misuse { detail: other.to_string() },
                };
                self.shared.set_trouble(Some(unreachable.clone()));
                if status.code() == Code::Unauthenticated {
                    // Trying again cannot help.
                    self.session.handle_refused(unreachable);
                } else {
                    self.session.handle_disconnected(now);
                }
            }
        }
    }

    /// The machine only knows that it had no answer; the last failed stream knows why.
    fn explain(&self, error: CallError) -> CallError {
        match error {
            CallError::ServerUnreachable { .. } => self.shared.trouble().unwrap_or(error),
            error => error,
        }
    }

    /// Does what the machine asks for, in order.
    fn carry_out(&mut self) {
        // Before the memory changes, and before a caller has its answer.
        self.update_view();
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Connect { server } => self.connect(server),
                Output::Probe { server, term } => self.probe(server, term),
                Output::Send(message) => self.send(message),
                Output::Expose(generation) => self.memory.expose(generation),
                Output::ExposeFilling(generation) => self.memory.expose_filling(generation),
                Output::Fence(_) => self.memory.fence(),
                Output::Seal(generation) => self.memory.seal(generation),
                Output::Read { seq, attempt, assignment, deadline, keep } => {
                    let deadline = self.clock.instant(deadline).into_std();
                    self.memory.start_read(seq, attempt, assignment, keep, deadline);
                }
                Output::Offload { version, generation } => {
                    self.offloader.start(version, generation)
                }
                Output::StopOffload => self.offloader.stop(),
                Output::Seed { version, ask, deadline } => {
                    self.seeder.start(version, ask, deadline);
                }
                Output::StopRead => self.memory.stop_read(),
                Output::Install { seq, attempt } => self.memory.install(seq, attempt),
                Output::Unstage => self.memory.unstage(),
                Output::Done { seq, result } => self.done(seq, result),
                Output::Closed { .. } => self.closed(),
            }
        }
        if self.session.version().is_none() {
            self.memory.forget();
        }
        if is_open(self.session.state()) {
            self.shared.set_trouble(None);
            for reply in self.awaiting_open.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
        if !self.memory.is_sealing() {
            for reply in self.awaiting_seal.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn update_view(&self) {
        let view = View { held: self.session.version(), generation: self.session.generation() };
        *self.shared.view.lock().expect("no panic while held") = view;
    }

    fn connect(&mut self, server: usize) {
        self.streams += 1;
        self.stream = None;
        self.connection.turn_to(server);
        // A server that this shard comes over to does not know its layout.
        let layout =
            self.shared.current().map(|(registration, _)| Arc::clone(&registration.layout));
        let (stream, events) = (self.streams, self.events.clone());
        let connection = self.connection.clone();
        tokio::spawn(async move {
            let result = connection.session(server).await;
            if let Some(layout) = layout.filter(|_| result.is_ok())
                && let Err(error) =
                    connection.put_manifest_at(server, manifest::encode(&layout)).await
            {
                tracing::warn!(%error, "the layout was not stored again");
            }
            let _ = events.send(Event::Connected { stream, result });
        });
    }

    fn probe(&self, server: usize, term: Term) {
        let (connection, events) = (self.connection.clone(), self.events.clone());
        tokio::spawn(async move {
            if let Some(answer) = connection.probe(server, term).await {
                let _ = events.send(Event::Probed { server, told: term, term: answer });
            }
        });
    }

    fn send(&mut self, message: weightcast_protocol::message::ClientMessage) {
        let Some((stream, sender)) = &self.stream else { return };
        if sender.try_send(client_frame(message)).is_err() {
            let reason = "the server does not take messages".to_owned();
            let _ = self.events.send(Event::StreamEnded { stream: *stream, reason });
        }
    }

    fn done(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        let arrived = self.memory.take_arrived(result.is_ok());
        let Some(reply) = self.replies.remove(&seq) else { return };
        let result = match result {
            Ok(answer) => Ok((answer, arrived.map(|a| a.transfer).unwrap_or_default())),
            Err(error @ CallError::DigestMismatch { .. }) => {
                Err(Failed { error, evidence: arrived.map(|a| Box::new(a.evidence)) })
            }
            Err(error) => Err(self.explain(error).into()),
        };
        let _ = reply.send(result);
    }

    fn closed(&mut self) {
        self.memory.stop_read();
        let gone = self.gone();
        for reply in self.awaiting_open.drain(..).chain(self.awaiting_seal.drain(..)) {
            let _ = reply.send(Err(gone.clone()));
        }
        for (_, reply) in std::mem::take(&mut self.replies) {
            let _ = reply.send(Err(gone.clone().into()));
        }
        for reply in self.awaiting_end.drain(..) {
            let _ = reply.send(self.session.error().cloned());
        }
        self.over = true;
    }

    /// Why nothing more will come of an ended session.
    fn gone(&self) -> CallError {
        match self.session.error() {
            Some(error) => self.explain(error.clone()),
            None => CallError::Misuse { detail: "the handle is closed; open it again".to_owned() },
        }
    }
}

fn is_open(state: SessionState) -> bool {
    !matches!(state, SessionState::Opening | SessionState::Ended)
}

async fn sleep_until(when: Option<tokio::time::Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Hands the stream's frames to the control thread.
async fn forward(
    stream: u64,
    mut frames: tonic::Streaming<crate::wire::ServerFrame>,
    events: mpsc::UnboundedSender<Event>,
) {
    let reason = loop {
        match frames.next().await {
            Some(Ok(frame)) => match server_message(frame) {
                Ok(message) => {
                    if events.send(Event::Frame { stream, message }).is_err() {
                        return;
                    }
                }
                Err(malformed) => break malformed.to_string(),
            },
            Some(Err(status)) => break status.to_string(),
            None => break "the server ended it".to_owned(),
        }
    };
    let _ = events.send(Event::StreamEnded { stream, reason });
}
