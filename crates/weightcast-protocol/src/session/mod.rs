//! The client session as a state machine: one per shard, one per process life.
//!
//! The runtime calls, in any order:
//! - inputs of the user: [`Session::call`], [`Session::close`];
//! - inputs from the servers: [`Session::handle_connected`], [`Session::handle_disconnected`],
//!   [`Session::handle_message`], [`Session::handle_probed`], [`Session::handle_refused`];
//! - reports on duties: [`Session::handle_read`], [`Session::handle_progress`],
//!   [`Session::handle_installed`], [`Session::handle_sealed`], [`Session::handle_seal_failed`],
//!   [`Session::handle_proved`], [`Session::handle_offload_failed`], [`Session::handle_offload_over`],
//!   [`Session::handle_seed_failed`];
//! - time: [`Session::handle_timeout`]; all inputs as values: [`SessionInput`];
//! - then [`drive`], which has its [`SessionHost`] do what the session asks for, one method for each
//!   duty;
//! - and [`Session::next_timeout`] for when to call `handle_timeout`.
//!
//! Getters: [`Session::state`], [`Session::version`], [`Session::generation`], [`Session::verdict`],
//! [`Session::error`].
//!
//! This file holds the state and passes inputs to the dispatcher. A store has the state of one
//! duty, changes nothing else, and returns messages for the server. From below to above:
//! - `host` names the duties of the runtime, `config` is the configuration;
//! - stores of the way to the servers: `link`, the stream and the search for a server; `lease`, how long the session may
//!   act (T1); `rivals`, servers that may act in another term;
//! - stores of the memory: `memory`, when the memory is served and when it may change (S3);
//!   `offload`, the memory copied aside; `seed`, a version brought to the datacentre in the
//!   background;
//! - stores of the call: `assigned`, what is to be read; `pace`, how fast the read is; `transfer`,
//!   the progress and report of the read; `calls`, one at a time;
//! - `work`, with `reading`: what a call does to the memory. It borrows the calls and the memory alone;
//! - `sharing`: what the runtime's read takes from shards of its host, and gives them (D8). It stands apart: the runtime has
//!   one for each registration;
//! - `dispatch`: what each input leads to. Only the dispatcher joins the way to the servers with the work.

mod assigned;
mod calls;
mod config;
mod dispatch;
mod host;
mod input;
mod lease;
mod link;
mod memory;
mod offload;
mod pace;
mod reading;
mod rivals;
mod seed;
mod sharing;
mod transfer;
mod work;

pub use config::SessionConfig;
pub use host::{Output, ReadOrder, SessionHost, drive};
pub use input::SessionInput;
pub use lease::Lease;
pub use pace::ReadProgress;
pub use sharing::{Division, Opening, SiblingSharing};

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::message::{ClientMessage, ServerMessage};
use crate::{CallError, Generation, OpSeq, Term, Ticket, Time, TraceId, Version};
use calls::Calls;
use host::Outputs;
use link::Link;
use memory::ShardMemory;
use pace::BestPace;
use rivals::Rivals;
use seed::Seed;
use work::ShardWork;

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Not open yet.
    Opening,
    /// Open; holds nothing.
    Empty,
    /// Fills its memory.
    Reading,
    /// Holds a version and serves it.
    Holding,
    /// Holds what it published; the server refused its content.
    Refused,
    /// Has lost its server; keeps what it holds, serves nothing, looks for another.
    Suspended,
    /// Was told to close; its readers finish.
    Closing,
    /// Over: closed, or failed.
    Ended,
}

/// One shard's client session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    config: SessionConfig,
    link: Link,
    /// Set from the first `Opened` on.
    lease: Option<Lease>,
    /// The newest term that the session was open in (T3).
    term: Term,
    /// The last ticket from a server, to be shown to the next server.
    ticket: Option<Ticket>,
    /// Why the server has not opened the session yet.
    refused: Option<CallError>,
    rivals: Rivals,
    memory: ShardMemory,
    calls: Calls,
    best_pace: BestPace,
    seed: Seed,
    /// When the session gives up; set while it is suspended.
    suspended: Option<Time>,
    /// Deadline of the session's readers; set once the session is told to close.
    closing: Option<Time>,
    /// Set once the session is over: with an error, unless the user closed it.
    ended: Option<Result<(), CallError>>,
    #[serde(skip)]
    outputs: Outputs,
}

impl Session {
    /// A session that wants a stream: its first output is `Connect`.
    pub fn new(config: SessionConfig, now: Time) -> Self {
        let mut session = Self {
            link: Link::new(now),
            lease: None,
            term: Term(0),
            ticket: None,
            refused: None,
            rivals: Rivals::default(),
            memory: ShardMemory::new(config.safeguards),
            calls: Calls::default(),
            best_pace: BestPace::default(),
            seed: Seed::default(),
            suspended: None,
            closing: None,
            ended: None,
            outputs: Outputs::new(),
            config,
        };
        session.tick(now);
        session
    }

    /// A message came in on the stream.
    pub fn handle_message(&mut self, now: Time, message: ServerMessage) {
        self.tick(now);
        if self.ended.is_some() {
            return;
        }
        match message {
            ServerMessage::Opened { ticket, lease } => self.opened(now, ticket, lease),
            ServerMessage::Refused { error, retry } => self.refused(now, error, retry),
            ServerMessage::Superseded => self.superseded(now),
            // Nothing else counts before the server has said in which term it speaks (T2).
            _ if !self.link.is_open() => {}
            ServerMessage::HeartbeatAck { sent_at } => self.heartbeat_acked(now, Time(sent_at)),
            ServerMessage::Recovered => self.recovered(now),
            ServerMessage::Broken { error } => self.fail(error),
            ServerMessage::Closed => self.left(),
            _ if self.suspended.is_some() => {} // about what was given up
            ServerMessage::Assigned { seq, attempt, since, assignment } => {
                self.assigned(now, seq, attempt, since, assignment);
            }
            ServerMessage::Install { seq, attempt, deadline } => {
                self.work().install(now, seq, attempt, deadline);
            }
            ServerMessage::Vouched { ticket } => self.ticket = Some(ticket),
            ServerMessage::Answered { seq, result } => self.answered(seq, result),
            ServerMessage::Sealed { generation } => self.memory.accepted(generation),
            ServerMessage::Fenced { generation, error, witnesses } => {
                self.memory.content_refused(generation, error, witnesses, &mut self.outputs);
            }
            ServerMessage::Offload { version, generation } => {
                self.asked_to_offload(version, generation);
            }
            ServerMessage::Seed { version, ask, deadline } => {
                self.asked_to_seed(version, ask, deadline);
            }
            ServerMessage::Challenge { generation, nonce } => {
                self.memory.challenged(generation, nonce, &mut self.outputs);
            }
            // To an offload or seed replica: it is not needed any more.
            ServerMessage::Release { deadline } => self.close(now, deadline),
        }
    }

    /// What to do next; call until it is `None`, as [`drive`] does.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Session::handle_timeout`]. Changes with every input.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.ended.is_some() {
            return None;
        }
        let times = [
            self.link.next_timeout(),
            self.lease_ends_at(),
            self.suspended,
            self.tells_at(),
            self.next_heartbeat(),
            self.call_ends_at(),
            self.measures_at(),
            self.close_ends_at(),
        ];
        times.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.tick(now);
    }

    /// Does everything that is due. Every input starts here, so that the session never acts on a
    /// lease that ran out while the process was suspended (F6, F7).
    fn tick(&mut self, now: Time) {
        self.check_lease(now);
        self.check_suspension(now);
        self.check_call_deadline(now);
        self.check_close_deadline(now);
        self.reconnect_if_due(now);
        self.heartbeat_if_due(now);
        self.tell_if_due(now);
        self.measure_if_due(now);
    }

    /// Borrows the parts that a call works on.
    fn work(&mut self) -> ShardWork<'_> {
        ShardWork {
            config: &self.config,
            memory: &mut self.memory,
            calls: &mut self.calls,
            outputs: &mut self.outputs,
        }
    }

    /// Sends on the stream, if the session is open and not suspended. Otherwise the message is
    /// dropped; messages that must not be lost are sent again later ([`Session::send_again`]).
    fn send(&mut self, message: impl Into<Option<ClientMessage>>) {
        if self.link.is_open() && self.suspended.is_none() {
            self.outputs.extend(message.into().map(Output::Send));
        }
    }

    /// What the session is doing.
    pub fn state(&self) -> SessionState {
        if self.ended.is_some() {
            SessionState::Ended
        } else if self.closing.is_some() {
            SessionState::Closing
        } else if self.suspended.is_some() {
            SessionState::Suspended
        } else if self.lease.is_none() {
            SessionState::Opening
        } else if self.calls.transfer().is_some() {
            SessionState::Reading
        } else if self.memory.version().is_none() {
            SessionState::Empty
        } else if self.memory.refused() {
            SessionState::Refused
        } else {
            SessionState::Holding
        }
    }

    /// Who this is: replica and shard.
    pub fn speaker(&self) -> (&str, u32) {
        (&self.config.open.replica, self.config.open.shard)
    }

    /// The version in the memory, as far as this session knows. The memory may be read, and must
    /// not be changed.
    pub fn version(&self) -> Option<Version> {
        self.memory.version()
    }

    /// The versions that are kept for the group by name, as far as this session knows.
    pub fn retains(&self) -> &BTreeSet<Version> {
        &self.calls.retains
    }

    /// The present generation of the memory, at which it is served.
    pub fn generation(&self) -> Generation {
        self.memory.generation()
    }

    /// Whether the content of the memory is accepted, once that is decided: all shards have
    /// digested the content, and it is the version's. Memory that holds nothing counts as accepted.
    pub fn verdict(&self) -> Option<Result<(), CallError>> {
        self.memory.verdict()
    }

    /// The name of a call in traces; none before the session is open.
    pub fn trace_id(&self, seq: OpSeq) -> Option<TraceId> {
        let ticket = self.ticket.as_ref()?;
        Some(TraceId::of(&ticket.proof, ticket.incarnation, seq))
    }

    /// The last ticket from a server, to be shown to the next server.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// The epoch, the term and the group that were joined, once the session is open.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Why the session is over, if it failed; calls return the same.
    pub fn error(&self) -> Option<&CallError> {
        self.ended.as_ref()?.as_ref().err()
    }
}
