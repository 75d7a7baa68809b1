//! The reference server as a state machine. It sees names, numbers and digests, never a tensor.
//!
//! The runtime calls, in any order:
//! - inputs: [`Server::handle`], [`Server::handle_disconnect`], [`Server::handle_timeout`],
//!   [`Server::put_manifest`], [`Server::ask_fleet`], [`Server::ask_routing`]; all of them as values: [`ServerInput`];
//! - then [`Server::poll_output`] until it is empty, doing what each output says;
//! - and [`Server::next_timeout`] for when to call `handle_timeout`.
//!
//! This file holds the state and passes inputs to the rooms; it has no logic. `rooms` says which
//! room may change which stores. Read-only rules are written over `contexts`. The rooms, from the
//! lowest to the highest:
//! - `stores`: what the rooms change: groups, models, sessions, streams, edges, blobs, timers, the agenda;
//! - `copies`: copies that groups hold, listed or not;
//! - `calls`: a group's call has its place in the queue and gets one answer (G1 to G5), with a
//!   ticket to prove the answer; `register`;
//! - `durability`: copies that must not be given up yet (`retention`), copies that can be relied on
//!   (`claims`, `unshown`), copies aside (`offload`), copies in other datacentres (`seeding`,
//!   `seed_replicas`);
//! - `transfers`: `replicate` and `update`: `choose` finds a source, `striping` several at once, `filling` and `kept` let
//!   partial copies be read, `pace` and `accusation` and `source_loss` take readers off a source, `staging` and `commit`
//!   end a transfer, `drain` waits for readers;
//! - `versions`: `publish`, `seal` (what content a version has) and `verdict` (whether bytes are that content),
//!   `listing`, `waiting`, `unpublish`;
//! - `membership`: which session belongs to which group (`open`, `lease`, `close`), which `tickets`
//!   are believed, when this server acts (`term`), groups brought over from an earlier term
//!   (`recovery`), models without groups (`freed`);
//! - `waits`: what a call waits for, who holds the call up, and what ends the wait;
//! - `dispatch`: what each input and each thing on the agenda leads to;
//! - `views`: read-only snapshots and invariants.
//!
//! `pub(in crate::server)` marks the interface of a room to the others; everything else is private
//! to the room.

mod calls;
mod config;
mod contexts;
mod copies;
mod dispatch;
mod durability;
mod input;
mod membership;
mod output;
#[cfg(test)]
mod props;
mod rooms;
mod stores;
mod transfers;
mod versions;
mod views;
mod waits;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

pub use crate::violation::Violation;
pub use config::{HOST_FANOUT, ServerConfig};
pub use dispatch::fleet::FleetError;
pub use durability::offload::offload_name;
pub use input::ServerInput;
pub use output::ServerOutput;
pub use stores::counters::Counters;
pub use stores::retention::RetentionLoss;
pub use stores::seeding::seed_name;
pub use stores::stages::{CallStage, StageChange, StagedCall};
pub use stores::trust::Trust;
pub use transfers::choose::Drawbacks;
pub use views::inspect::Inspection;
pub use views::preview::{Preview, PreviewedChoice};
pub use views::reading::ReadingSnapshot;
pub use views::snapshot::{
    ModelSnapshot, PendingCall, ReadEdge, ReplicaSnapshot, ReplicaState, ShardSnapshot, Snapshot,
};
pub use views::staleness::Staleness;
pub use waits::Why;

use crate::message::ClientMessage;
use crate::{CallDurations, ConnectionId, Time};
use stores::agenda::Agenda;
use stores::blobs::Blobs;
use stores::challenges::Challenges;
use stores::connections::Connections;
use stores::edges::Edges;
use stores::group::Groups;
use stores::models::Models;
use stores::numbers::Numbers;
use stores::observed::Observed;
use stores::sessions::{MemberId, Sessions};
use stores::stages::Stages;
use stores::terms::Terms;
use stores::timers::{Timer, Timers};

/// The reference server of any number of models.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    config: ServerConfig,
    terms: Terms,
    models: Models,
    groups: Groups,
    sessions: Sessions,
    connections: Connections,
    edges: Edges,
    blobs: Blobs,
    timers: Timers,
    counters: Counters,
    durations: Observed<CallDurations>,
    stages: Observed<Stages>,
    /// The last retained versions that were lost.
    losses: VecDeque<RetentionLoss>,
    challenges: Challenges,
    numbers: Numbers,
    agenda: Agenda,
    /// The last event reached its bound of steps, and left work to the next one (T5).
    unsettled: bool,
}

impl Server {
    /// A server that knows nothing yet.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            terms: Terms::default(),
            models: Models::default(),
            groups: Groups::default(),
            sessions: Sessions::default(),
            connections: Connections::default(),
            edges: Edges::default(),
            blobs: Blobs::default(),
            timers: Timers::default(),
            counters: Counters::default(),
            durations: Observed::default(),
            stages: Observed::default(),
            losses: VecDeque::new(),
            challenges: Challenges::default(),
            numbers: Numbers::default(),
            agenda: Agenda::default(),
            unsettled: false,
        }
    }

    /// A message came in on a stream. Bad ones are answered or end the stream.
    pub fn handle(&mut self, now: Time, from: ConnectionId, message: ClientMessage) {
        if let ClientMessage::Open(open) = message {
            self.membership().open(now, from, open);
        } else if let Some(session) = self.connections.session(from) {
            self.handle_opened(now, self.sessions.member(session), message);
        } else {
            self.connections.disconnect(from);
        }
        self.settle(now);
    }

    fn handle_opened(&mut self, now: Time, from: MemberId, message: ClientMessage) {
        let recovering = self.groups.of(&from.group).recovering;
        match message {
            ClientMessage::Open(_) => unreachable!("handled by the caller"),
            ClientMessage::Announce(announcement) => {
                self.membership().announce(now, from, announcement)
            }
            ClientMessage::Heartbeat { sent_at } => {
                self.membership().heartbeat(now, from.session, sent_at)
            }
            ClientMessage::Progress { sent_at, seq, attempt, arrived, total } => {
                self.membership().heartbeat(now, from.session, sent_at);
                self.transfers().progress(now, from, (seq, attempt), arrived, total);
            }
            ClientMessage::Close { deadline } => self.membership().close(now, from, deadline),
            _ if recovering => {} // a group does nothing before it is whole (T3)
            ClientMessage::Call { seq, deadline, call } => {
                self.call(now, from, seq, deadline, call);
            }
            ClientMessage::Sealed { generation, sums } => {
                self.versions().sealed(from, generation, sums)
            }
            ClientMessage::Filling { seq, since, generation } => {
                self.transfers().filling(from, seq, since, generation);
            }
            ClientMessage::Installed { seq, attempt, generation } => {
                self.transfers().installed(from, seq, attempt, generation);
            }
            ClientMessage::Prepared { seq, attempt, generation, sums } => {
                self.transfers().prepared(from, seq, attempt, generation, sums);
            }
            ClientMessage::ReadFailed { seq, attempt, failure } => {
                self.transfers().read_failed(from, seq, attempt, failure);
            }
            ClientMessage::Slow { seq, attempt, shard, bytes_per_s } => {
                self.transfers().slow(from, (seq, attempt), shard, bytes_per_s);
            }
            ClientMessage::OffloadFailed { version, generation, reason } => {
                self.durability().offload_failed(from, version, generation, reason);
            }
            ClientMessage::SeedFailed { ask } => self.durability().seed_failed(from, ask),
            ClientMessage::Proof { generation, nonce, sum } => {
                self.durability().proof(now, from, generation, nonce, sum);
            }
        }
    }

    /// A stream broke. The session lives on until its lease runs out.
    pub fn handle_disconnect(&mut self, now: Time, connection: ConnectionId) {
        self.membership().lose_stream(now, connection);
        self.settle(now);
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<ServerOutput> {
        self.connections.pop()
    }

    /// When to call [`Server::handle_timeout`]. Changes with every input.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Lease(session) => self.membership().lease_timer(now, session),
                Timer::Unheard(session) => self.membership().unheard_timer(session),
                Timer::Drain(group) => self.transfers().drain_timer(now, group),
                Timer::Recovery(group) => self.membership().recovery_timer(group),
                Timer::Proof(nonce) => self.durability().decide(now, nonce),
                Timer::Retry(group) => self.durability().retry_timer(group),
                Timer::Window => self.membership().window_timer(),
                Timer::Hold(group) => self.durability().hold_timer(now, group),
                Timer::Call(group, seq) => self.call_timer(now, group, seq),
                Timer::Blob(digest) => self.blobs.grace_over(now, digest),
            }
            self.settle(now);
        }
    }
}
