//! The client session as a state machine: one per shard, one per process life.
//!
//! The runtime calls, in any order:
//! - inputs: [`Session::call`], [`Session::close`], [`Session::handle_connected`],
//!   [`Session::handle_disconnected`], [`Session::handle_message`], [`Session::handle_sealed`],
//!   [`Session::handle_seal_failed`], [`Session::handle_proved`],
//!   [`Session::handle_read`], [`Session::handle_progress`], [`Session::handle_installed`],
//!   [`Session::handle_timeout`];
//! - then [`Session::poll_output`] until it is empty, doing what each output says;
//! - and [`Session::next_timeout`] for when to call `handle_timeout`.
//!
//! Getters: [`Session::state`], [`Session::version`], [`Session::generation`], [`Session::verdict`],
//! [`Session::error`].
//!
//! This file holds the state and the dispatcher. `link` keeps a stream to the server, `lease`
//! knows how long the session may act (T1), `calls` runs one call at a time, `copy` decides
//! when the memory is served and when it may change (S3), `transfer` reads, `left` is what a
//! call that ran out of time had read, `pace` looks how fast it is, `staging` puts in place
//! what was read beside the memory, `suspension` bridges the time between two servers, `offload` has
//! the memory copied aside, `proof` shows that it holds what it is said to, `seed` has a version
//! brought near in the background, `ending` is every way out.

mod calls;
mod config;
mod copy;
mod ending;
mod lease;
mod left;
mod link;
mod offload;
mod pace;
mod proof;
mod seed;
mod staging;
mod suspension;
mod transfer;

use std::collections::VecDeque;

pub use config::SessionConfig;
pub use lease::Lease;
pub use pace::ReadProgress;

use crate::message::{Answer, Assignment, ClientMessage, Registration, ServerMessage, Witnesses};
use crate::{
    Attempt, CallError, ContentDigest, Generation, Nonce, OpSeq, Span, Term, TermProof, Ticket,
    Time, Version,
};
use calls::Pending;
use copy::Copy;
use ending::{Closing, Ended};
use left::Left;
use link::Link;
use offload::Offload;
use seed::Seed;
use suspension::{Rivals, Suspended};

/// What the runtime owes the session.
// One at a time is on its way to the runtime.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Open a stream to this server of the list, and forget an older one, also one that is still
    /// being opened; report `handle_connected` or `handle_disconnected`, of this one only.
    Connect {
        /// Its place in the list.
        server: usize,
    },
    /// Ask this server which term it acts in, and prove this one to it; report `handle_probed` if it
    /// answers.
    Probe {
        /// Its place in the list.
        server: usize,
        /// Of the session's term, or of a later one that it has heard of.
        proof: TermProof,
    },
    /// Send on the open stream. In order; dropped if the stream is gone.
    Send(ClientMessage),
    /// Serve the registered regions at this generation, from now on.
    Expose(Generation),
    /// Serve the registered regions at this generation as far as they have been read: set the
    /// progress word to no chunk of this generation, then let readers in. Until `Expose` of the
    /// same generation, writing chunks beyond the progress is allowed and nothing else is.
    /// Only with [`SessionConfig::relays`].
    ExposeFilling(Generation),
    /// Stop serving: before the next output is taken, no reader may be able to accept bytes served
    /// at this or an older generation (S3).
    Fence(Generation),
    /// Digest the published memory in the background, then call `handle_sealed`.
    Seal(Generation),
    /// Sum the sample of the registered memory that is drawn from this number, in the background, and
    /// call `handle_proved`. The same for all layouts; a few megabytes of a group.
    Prove {
        /// Generation at which it is held.
        generation: Generation,
        /// What sample and keys are drawn from.
        nonce: Nonce,
    },
    /// What was published is refused, and fenced. Until the memory is given up, the digests of its
    /// cells are kept where the witnesses' other shards can ask for them; this shard asks them, in
    /// the background, to tell the user in which tensor the difference is.
    Refused {
        /// Whom to compare with.
        witnesses: Box<Witnesses>,
    },
    /// Read into the registered memory, then call `handle_read`. Replaces a read of a lower
    /// attempt, which must have let go of the memory before this one starts. A staged assignment is
    /// read into memory of the same layout beside it, which nobody else sees.
    Read {
        /// The call.
        seq: OpSeq,
        /// Number of the assignment.
        attempt: Attempt,
        /// The source.
        assignment: Assignment,
        /// Go on after the chunks that the progress word counts; else read all. The memory is
        /// served meanwhile, so what is there must not be written again. If it is not served, this
        /// goes on after what a call before this one had read when it was fenced.
        keep: bool,
        /// When to give up.
        deadline: Time,
    },
    /// If this read runs and bytes have begun to move, call `handle_progress` now.
    Measure {
        /// The call.
        seq: OpSeq,
        /// Number of the assignment.
        attempt: Attempt,
    },
    /// Stop the read or the copying into place, if one runs. `handle_read` and `handle_installed`
    /// are not called for it. Before the next output is taken it must have let go of the memory.
    StopRead,
    /// Copy what was read beside the registered memory into it, free that, then call
    /// `handle_installed`.
    Install {
        /// The call.
        seq: OpSeq,
        /// Number of the assignment.
        attempt: Attempt,
    },
    /// What was read beside the registered memory is not wanted any more: free it.
    Unstage,
    /// Copy the memory aside in the background, then open an offload replica with the copy: a
    /// session with [`crate::message::Role::Offload`] that registers and publishes the version.
    /// Call `handle_offload_failed` if that can't be done.
    Offload {
        /// The version.
        version: Version,
        /// The generation at which it is held.
        generation: Generation,
    },
    /// Stop copying, if that is not through. Before the next output is taken it must have let go of
    /// the memory. An offload replica that was opened already goes on.
    StopOffload,
    /// Open a seed replica in the background: a session with [`crate::message::Role::Seed`] that
    /// registers new memory of this shard's layout and replicates the version. Call
    /// `handle_seed_failed` if that can't be done. It goes on whatever becomes of this session, until
    /// the server lets go of it.
    Seed {
        /// The version.
        version: Version,
        /// Names what was asked, for `handle_seed_failed`.
        ask: u64,
        /// How long it may take.
        deadline: Span,
    },
    /// A call has ended.
    Done {
        /// The call.
        seq: OpSeq,
        /// How.
        result: Result<Answer, CallError>,
    },
    /// The session is over; everything is fenced and nothing more will be output.
    Closed {
        /// Set if it was not closed by the user.
        error: Option<CallError>,
    },
}

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
    Fenced,
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
    copy: Copy,
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
            copy: Copy::new(),
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
            ServerMessage::Sealed { generation } => self.accept_copy(generation),
            ServerMessage::Fenced { generation, error, witnesses } => {
                self.refuse_copy(generation, error, witnesses);
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

    /// What to do next; call until it is `None`.
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
            self.copy.state()
        }
    }

    /// What the memory holds, as far as this session knows. Readable; not to be changed.
    pub fn version(&self) -> Option<Version> {
        self.copy.version()
    }

    /// The present generation of the memory: what is served is served at this one.
    pub fn generation(&self) -> Generation {
        self.copy.generation()
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
