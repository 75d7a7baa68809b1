//! The client session as a state machine: one per shard, one per process life.
//!
//! The runtime calls, in any order:
//! - inputs: [`Session::call`], [`Session::close`], [`Session::handle_connected`],
//!   [`Session::handle_disconnected`], [`Session::handle_message`], [`Session::handle_sealed`],
//!   [`Session::handle_seal_failed`], [`Session::handle_proved`],
//!   [`Session::handle_read`], [`Session::handle_progress`], [`Session::handle_installed`],
//!   [`Session::handle_timeout`];
//! - then [`drive`], which has its [`SessionHost`] do what the session asks for, one method for each
//!   duty;
//! - and [`Session::next_timeout`] for when to call `handle_timeout`.
//!
//! Getters: [`Session::state`], [`Session::version`], [`Session::generation`], [`Session::verdict`],
//! [`Session::error`].
//!
//! This file holds the state and the dispatcher. `host` names the duties of the runtime, `link` keeps
//! a stream to the server, `lease` knows how long the session may act (T1), `calls` runs one call at a
//! time, `memory` decides when the memory is served and when it may change (S3), `transfer` reads,
//! `left` is what a call that ran out of time had read, `pace` looks how fast it is, `staging` puts in
//! place what was read beside the memory, `suspension` bridges the time between two servers, `offload`
//! has the memory copied aside, `proof` shows that it holds what it is said to, `seed` has a version
//! brought near in the background, `ending` is every way out.

mod calls;
mod config;
mod ending;
mod host;
mod lease;
mod left;
mod link;
mod memory;
mod offload;
mod pace;
mod proof;
mod seed;
mod staging;
mod suspension;
mod transfer;

use std::collections::VecDeque;

pub use config::SessionConfig;
pub use host::{Output, ReadOrder, SessionHost, drive};
pub use lease::Lease;
pub use pace::ReadProgress;

use crate::message::{Registration, ServerMessage};
use crate::{CallError, ContentDigest, Generation, OpSeq, Term, Ticket, Time, Version};
use calls::Pending;
use ending::{Closing, Ended};
use left::Left;
use link::Link;
use memory::ShardMemory;
use offload::Offload;
use seed::Seed;
use suspension::{Rivals, Suspended};

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
#[derive(Clone, Debug)]
pub struct Session {
    config: SessionConfig,
    link: Link,
    /// Set from the first `Opened` on.
    lease: Option<Lease>,
    /// The newest term that the session was open in (T3).
    term: Term,
    /// What its server has given it for the next one.
    ticket: Option<Ticket>,
    suspended: Option<Suspended>,
    rivals: Rivals,
    memory: ShardMemory,
    pending: Option<Pending>,
    left: Option<Left>,
    /// The most bytes a second that a read has had, over a window.
    best_pace: u64,
    offload: Option<Offload>,
    seed: Option<Seed>,
    last_seq: OpSeq,
    /// The last call that the server has answered.
    answered: OpSeq,
    registration: Option<Registration>,
    /// Logical tensors of what was published or assigned last.
    catalog: ContentDigest,
    /// `unpublish` was called.
    withdrawn: bool,
    closing: Option<Closing>,
    ended: Option<Ended>,
    /// Why the server has not opened the session yet.
    refused: Option<CallError>,
    outputs: VecDeque<Output>,
}

impl Session {
    /// A session that wants a stream: its first output is `Connect`.
    pub fn new(config: SessionConfig, now: Time) -> Self {
        let mut session = Self {
            config,
            link: Link::new(now),
            lease: None,
            term: Term(0),
            ticket: None,
            suspended: None,
            rivals: Rivals::default(),
            memory: ShardMemory::new(),
            pending: None,
            left: None,
            best_pace: 0,
            offload: None,
            seed: None,
            last_seq: OpSeq(0),
            answered: OpSeq(0),
            registration: None,
            catalog: ContentDigest::default(),
            withdrawn: false,
            closing: None,
            ended: None,
            refused: None,
            outputs: VecDeque::new(),
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
            // Nothing else counts before the server has said which life of it this is (T2).
            _ if !self.link.is_open() => {}
            ServerMessage::HeartbeatAck { sent_at } => self.heartbeat_acked(now, Time(sent_at)),
            ServerMessage::Recovered => self.recovered(now),
            ServerMessage::Broken { error } => self.fail(error),
            ServerMessage::Closed => self.left(),
            _ if self.suspended.is_some() => {} // it is about what was given up
            ServerMessage::Assigned { seq, attempt, since, assignment } => {
                self.assigned(now, seq, attempt, since, assignment);
            }
            ServerMessage::Install { seq, attempt, deadline } => {
                self.install(now, seq, attempt, deadline);
            }
            ServerMessage::Vouched { ticket } => self.ticket = Some(ticket),
            ServerMessage::Answered { seq, result } => self.answered(seq, result),
            ServerMessage::Sealed { generation } => self.accept_content(generation),
            ServerMessage::Fenced { generation, error, witnesses } => {
                self.refuse_content(generation, error, witnesses);
            }
            ServerMessage::Offload { version, generation } => {
                self.asked_to_offload(version, generation);
            }
            ServerMessage::Seed { version, ask, deadline } => {
                self.asked_to_seed(version, ask, deadline);
            }
            ServerMessage::Challenge { generation, nonce } => self.challenged(generation, nonce),
            ServerMessage::Release { deadline } => self.released(now, deadline),
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
            self.suspended.as_ref().map(|suspended| suspended.until),
            self.tells_at(),
            self.next_heartbeat(),
            self.call_ends_at(),
            self.measures_at(),
            self.closing.as_ref().map(|closing| closing.until),
        ];
        times.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.tick(now);
    }

    /// Does what is due. Every input starts here, so that nothing is done on a lease that ran out
    /// while the process was suspended (F6, F7).
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
        } else if self.pending.as_ref().is_some_and(|pending| pending.transfer.is_some()) {
            SessionState::Reading
        } else {
            self.memory.state()
        }
    }

    /// What the memory holds, as far as this session knows. Readable; not to be changed.
    pub fn version(&self) -> Option<Version> {
        self.memory.version()
    }

    /// The present generation of the memory: what is served is served at this one.
    pub fn generation(&self) -> Generation {
        self.memory.generation()
    }

    /// What its server has given the session for the next one.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// The epoch, the term and the group that were joined, once the session is open.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Why the session is over, if it failed; calls return the same.
    pub fn error(&self) -> Option<&CallError> {
        self.ended.as_ref().and_then(|ended| ended.error.as_ref())
    }
}
