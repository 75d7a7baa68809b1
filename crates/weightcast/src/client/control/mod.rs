//! The thread that drives one session machine: events in, outputs carried out, in order.

mod answers;
mod host;
mod memory;
#[cfg(test)]
mod rig;
mod stream;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc as reply};

use tokio::sync::mpsc;
use tracing::Span;
use tracing::field::display;
use weightcast_protocol::message::ServerMessage;
use weightcast_protocol::recording::RecordingCause;
use weightcast_protocol::session::{Session, SessionState};
use weightcast_protocol::{CallError, OpSeq, Time};

use self::memory::RegisteredMemory;
use super::connection::ServerConnection;
use super::event::{AwaitedCall, Event, FailedCall};
use crate::client::aside::offload::Offloader;
use crate::client::aside::seed::Seeder;
use crate::client::handle_state::{HandleState, SessionView};
use crate::client::push::sender;
use crate::clock::Clock;
use crate::recordings::FlightRecorder;

/// The control thread's state.
pub(crate) struct Control {
    pub(crate) session: FlightRecorder<Session>,
    pub(crate) clock: Clock,
    pub(crate) connection: ServerConnection,
    pub(crate) shared: Arc<HandleState>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    stream: Option<(u64, mpsc::Sender<crate::wire::ClientFrame>)>,
    streams: u64,
    pending: BTreeMap<OpSeq, AwaitedCall>,
    awaiting_open: Vec<reply::Sender<Result<(), CallError>>>,
    awaiting_seal: Vec<reply::Sender<Result<(), FailedCall>>>,
    awaiting_close: Vec<reply::Sender<()>>,
    awaiting_end: Vec<reply::Sender<Option<CallError>>>,
    memory: RegisteredMemory,
    offloader: Offloader,
    seeder: Seeder,
    over: bool,
}

impl Control {
    pub(crate) fn new(
        session: FlightRecorder<Session>,
        clock: Clock,
        connection: ServerConnection,
        shared: Arc<HandleState>,
        events: mpsc::UnboundedSender<Event>,
        offloader: Offloader,
        seeder: Seeder,
    ) -> Self {
        let memory = RegisteredMemory::new(Arc::clone(&shared), connection.clone(), events.clone());
        Self {
            session,
            clock,
            connection,
            shared,
            events,
            stream: None,
            streams: 0,
            pending: BTreeMap::new(),
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
        self.carry_out(self.clock.now());
        while self.step(&mut queue).await {}
        self.leave();
    }

    /// Waits for one event or timeout and handles it. False if it was the last.
    async fn step(&mut self, queue: &mut mpsc::UnboundedReceiver<Event>) -> bool {
        let wake = self.session.next_timeout().map(|time| self.clock.instant(time));
        tokio::select! {
            event = queue.recv() => match event {
                Some(event) => self.take(self.clock.now(), event),
                None => return false,
            },
            () = sleep_until(wake) => self.wake(self.clock.now()),
        }
        // An ended session is kept until its handle is closed: calls learn why it ended.
        !self.over || self.awaiting_close.is_empty()
    }

    fn leave(&mut self) {
        sender::withdraw(&self.shared);
        self.memory.end_push();
        self.memory.stop_read();
        self.memory.fence();
        for reply in self.awaiting_close.drain(..) {
            let _ = reply.send(());
        }
    }

    /// Handles an event, then carries out the session's outputs.
    fn take(&mut self, now: Time, event: Event) {
        self.handle(now, event);
        self.carry_out(now);
    }

    /// Handles a timeout, then carries out the session's outputs.
    fn wake(&mut self, now: Time) {
        self.session.handle_timeout(now);
        self.carry_out(now);
    }

    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Call { call, deadline, filling, span, reply } => {
                let pending = AwaitedCall { filling, reply };
                match self.session.call(now, call, deadline) {
                    Ok(seq) => {
                        self.trace(seq, span);
                        self.pending.insert(seq, pending);
                    }
                    Err(error) => pending.end(Err(self.explain(error).into())),
                }
            }
            Event::AwaitOpen { reply } if self.over => drop(reply.send(Err(self.gone()))),
            Event::AwaitSeal { reply } if self.over => drop(reply.send(Err(self.gone().into()))),
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
            Event::Proved { generation, nonce, sum } => {
                self.session.handle_proved(now, generation, nonce, sum);
            }
            Event::SealFailed { generation, reason } => {
                self.session.handle_seal_failed(now, generation, &reason);
            }
            Event::Probed { server, told, acts } => {
                self.session.handle_probed(now, server, told, acts);
            }
            Event::OffloadFailed { version, generation, reason } => {
                tracing::warn!(%version, reason, "a retained version was not offloaded");
                self.session.handle_offload_failed(now, version, generation, reason);
            }
            Event::OffloadOver { version, generation } => {
                self.session.handle_offload_over(now, version, generation);
            }
            Event::SeedFailed { ask, reason } => {
                tracing::warn!(ask, reason, "a version was not brought near in the background");
                self.session.handle_seed_failed(now, ask);
            }
            Event::AwaitEnd { reply } if self.over => {
                let _ = reply.send(self.session.error().cloned());
            }
            Event::AwaitEnd { reply } => self.awaiting_end.push(reply),
            Event::AskFleet { reply, .. } if self.over => {
                let _ = reply.send(Err(self.gone().into()));
            }
            Event::AskFleet { model, question, deadline, reply } => {
                let connection = self.connection.clone();
                tokio::spawn(async move {
                    let _ = reply.send(connection.ask_fleet(&model, question, deadline).await);
                });
            }
            Event::AskRouting { reply, .. } if self.over => {
                let _ = reply.send(Err(self.gone().into()));
            }
            Event::AskRouting { model, question, deadline, reply } => {
                let connection = self.connection.clone();
                tokio::spawn(async move {
                    let _ = reply.send(connection.ask_routing(&model, question, deadline).await);
                });
            }
            Event::Record { reply } => {
                let _ = reply.send(self.session.write(RecordingCause::Asked));
            }
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

    /// Names the call in its span, as the server and the group's other shards name it.
    fn trace(&mut self, seq: OpSeq, span: Span) {
        if !span.is_disabled()
            && let Some(trace) = self.session.trace_id(seq)
        {
            span.record("trace", display(trace));
        }
        self.memory.call_span = span;
    }

    /// Carries out the machine's outputs, then answers the calls that wait for a state.
    fn carry_out(&mut self, now: Time) {
        // First: getters must not name a version whose memory is about to change, nor lag behind an
        // answer.
        self.update_view();
        self.obey_session(now);
        if self.session.version().is_none() {
            self.memory.forget();
        }
        if is_open(self.session.state()) {
            self.shared.set_trouble(None);
            for reply in self.awaiting_open.drain(..) {
                let _ = reply.send(Ok(()));
            }
        }
        self.tell_verdict();
    }

    fn update_view(&self) {
        let view =
            SessionView { held: self.session.version(), generation: self.session.generation() };
        let before = {
            let mut known = self.shared.view.lock().expect("no panic while held");
            std::mem::replace(&mut *known, view)
        };
        if before.held != view.held {
            self.shared.figures.holds(view.held);
        }
        if before != view {
            sender::withdraw(&self.shared);
        }
        if let Some(version) = view.held.filter(|_| before.held != view.held) {
            sender::hold(&self.shared, version);
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
