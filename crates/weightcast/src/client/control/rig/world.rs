//! The driver: time, and everything that is on its way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::{ConnectionId, Span, Time};

use super::Draw;
use super::gate::Gate;
use super::net::{Net, SharedNet, lock};
use super::seconds::Seconds;
use super::worker::{ClientKind, RigClient};
use crate::client::event::{CallReply, Event};
use crate::convert::client_message;

/// Often enough for what one event sets off among tasks.
const YIELDS: usize = 12;

/// Something that is on its way.
enum Due {
    Event(usize, Event),
    Message(ConnectionId, ClientMessage),
}

/// Streams are in order; everything else overtakes as it likes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StreamSide {
    Up(ConnectionId),
    Down(usize, u64),
}

/// Servers and their clients.
pub(super) struct RigWorld {
    pub(super) now: Time,
    pub(super) net: SharedNet,
    pub(super) workers: Vec<RigClient>,
    pub(super) gate: Gate,
    agenda: BTreeMap<(Time, u64), Due>,
    scheduled: u64,
    latest: BTreeMap<StreamSide, Time>,
    lives: u64,
    pub(super) draw: Draw,
    /// How long things are on their way at most; nothing is where this is zero.
    pub(super) delay: Span,
    /// Everything that happened, as a number.
    pub(super) trace: u64,
    /// Events of the control threads.
    pub(super) happened: u64,
    /// Events that do not happen by themselves: the test has them.
    pub(super) keep: Option<fn(&Event) -> bool>,
    pub(super) kept: Vec<(usize, Event)>,
    pub(super) seconds: Seconds,
    /// A client to which nothing comes any more but what it does itself.
    pub(super) deaf: Option<usize>,
}

impl RigWorld {
    pub(super) fn new(seed: u64) -> Self {
        Self::with_servers(seed, 1)
    }

    /// All clients have the same list of so many servers.
    pub(super) fn with_servers(seed: u64, servers: usize) -> Self {
        Self {
            now: Time(0),
            net: Arc::new(Mutex::new(Net::new(seed, servers))),
            workers: Vec::new(),
            gate: Gate::default(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            latest: BTreeMap::new(),
            lives: 0,
            draw: Draw(seed),
            delay: Span(0),
            trace: 0,
            happened: 0,
            kept: Vec::new(),
            keep: None,
            seconds: Seconds::default(),
            deaf: None,
        }
    }

    /// One more client.
    pub(super) fn join(&mut self, kind: ClientKind) -> usize {
        let index = self.workers.len();
        let worker = self.worker(index, kind);
        self.workers.push(worker);
        index
    }

    fn worker(&mut self, index: usize, kind: ClientKind) -> RigClient {
        self.lives += 1;
        let mut worker = RigClient::new(index, self.lives, kind, self.ways());
        worker.control.carry_out(self.now);
        worker
    }

    /// A client whose session is over ends; another one takes its place.
    pub(super) fn replace(&mut self, index: usize, kind: ClientKind) {
        let mut worker = self.worker(index, kind);
        std::mem::swap(&mut worker, &mut self.workers[index]);
        self.agenda.retain(|_, due| !matches!(due, Due::Event(of, _) if *of == index));
        self.gate.busy(true);
        worker.control.leave();
        self.gate.busy(false);
        self.gate.running(index, None);
        worker.let_go(0);
        self.workers[index].released = worker.released;
    }

    /// A client's process ends, and another one has its place and its address.
    pub(super) fn restart(&mut self, index: usize, kind: ClientKind) {
        self.cut(index);
        let mut old = self.workers.remove(index);
        let port = Some(old.control.shared.exports.addr());
        self.agenda.retain(|_, due| !matches!(due, Due::Event(of, _) if *of == index));
        self.gate.busy(true);
        old.control.leave();
        self.gate.busy(false);
        self.gate.running(index, None);
        // Its port is free again.
        drop(old);
        let worker = self.worker(index, ClientKind { port, ..kind });
        self.workers.insert(index, worker);
    }

    fn delay(&mut self) -> Span {
        match self.delay {
            Span(0) => Span(0),
            // Some are very late.
            Span(most) if self.draw.once_in(12) => Span(self.draw.below(40 * most)),
            Span(most) => Span(self.draw.below(most)),
        }
    }

    fn schedule(&mut self, order: Option<StreamSide>, due: Due) {
        let mut time = self.now + self.delay();
        if let Some(order) = order {
            let latest = self.latest.entry(order).or_default();
            time = time.max(*latest);
            *latest = time;
        }
        self.scheduled += 1;
        self.agenda.insert((time, self.scheduled), due);
    }

    /// Takes what clients and tasks have sent. Whether there was anything.
    fn collect(&mut self) -> bool {
        let before = self.scheduled + self.lives;
        self.open_seconds();
        for index in 0..self.workers.len() {
            while let Ok(event) = self.workers[index].queue.try_recv() {
                if self.keep.is_some_and(|keep| keep(&event)) {
                    self.kept.push((index, event));
                    continue;
                }
                if self.deaf == Some(index) && !matches!(event, Event::ReadDone { .. }) {
                    continue;
                }
                let order = match &event {
                    Event::Frame { stream, .. } | Event::StreamEnded { stream, .. } => {
                        Some(StreamSide::Down(index, *stream))
                    }
                    _ => None,
                };
                self.schedule(order, Due::Event(index, event));
            }
        }
        let net = Arc::clone(&self.net);
        let mut sent = Vec::new();
        for (id, line) in &mut lock(&net).lines {
            while let Ok(frame) = line.up.try_recv() {
                sent.push((*id, client_message(frame).expect("what was encoded")));
            }
        }
        for (id, message) in sent {
            self.schedule(Some(StreamSide::Up(id)), Due::Message(id, message));
        }
        self.scheduled + self.lives != before
    }

    /// Lets the first thing happen that is due. Whether there was one.
    fn run_first(&mut self) -> bool {
        let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.now)
        else {
            return false;
        };
        match entry.remove() {
            Due::Event(worker, event) => self.happen(worker, event),
            Due::Message(from, message) => self.hear(from, message),
        }
        true
    }

    fn hear(&mut self, from: ConnectionId, message: ClientMessage) {
        lock(&self.net).hear(from, message);
    }

    /// Lets an event happen to a client, and looks.
    pub(super) fn happen(&mut self, worker: usize, event: Event) {
        if self.workers[worker].gone {
            return;
        }
        let said = kind(&event);
        let now = self.now;
        self.acting(worker, said, |worker| worker.control.take(now, event));
    }

    pub(super) fn acting(
        &mut self,
        worker: usize,
        said: &'static str,
        act: impl FnOnce(&mut RigClient),
    ) {
        let gate = self.gate.clone();
        let index = worker;
        let worker = &mut self.workers[index];
        gate.busy(true);
        act(worker);
        gate.busy(false);
        gate.running(
            index,
            worker.control.memory.read.as_ref().map(|read| Arc::clone(&read.cancel)),
        );
        self.happened += 1;
        for id in &worker.control.memory.exposed {
            worker.control.shared.exports.exports().hold(*id, gate.holds());
        }
        worker.leave_if_over();
        worker.check(said);
        let state = worker.state();
        for byte in format!("{} {index} {said} {state}", self.now.0).bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Lets all happen that happens now.
    pub(super) async fn settle(&mut self) {
        loop {
            self.finish().await;
            let moved = self.collect();
            let mut happened = false;
            while self.run_first() {
                happened = true;
            }
            if !moved && !happened {
                return;
            }
        }
    }

    /// Lets one thing happen; if none is due, time goes on until one is.
    pub(super) async fn one(&mut self) {
        self.finish().await;
        self.collect();
        if !self.run_first() {
            self.turn(self.now + Span::from_secs(1));
        }
    }

    /// Lets tasks and threads do what they have begun.
    async fn finish(&self) {
        self.pause().await;
        if self.gate.is_held() {
            return;
        }
        // There is one thread for such work, so all that was begun is done when this is.
        let work = tokio::task::spawn_blocking(|| ());
        tokio::select! {
            _ = work => {}
            () = self.gate.held() => {}
        }
        self.pause().await;
    }

    async fn pause(&self) {
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
    }

    /// Goes on to the next moment at which anything is due, but not beyond `until`.
    pub(super) async fn next(&mut self, until: Time) {
        self.settle().await;
        self.turn(until);
        self.settle().await;
    }

    fn turn(&mut self, until: Time) {
        let awake = self.workers.iter().enumerate().filter(|(index, _)| self.deaf != Some(*index));
        let timers = awake.filter_map(|(_, worker)| worker.next_timeout());
        let timer = timers.chain(lock(&self.net).next_timeout()).min();
        let due = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let next = timer.into_iter().chain(due).min().unwrap_or(until);
        self.now = next.max(Time(self.now.0 + 1)).min(until.max(self.now));
        lock(&self.net).now = self.now;
        self.wake();
    }

    fn wake(&mut self) {
        let now = self.now;
        let due = |timeout: Option<Time>| timeout.is_some_and(|at| at <= now);
        for index in 0..self.workers.len() {
            // Who hears nothing does not notice either how long that has been.
            if self.deaf != Some(index) && due(self.workers[index].next_timeout()) {
                self.acting(index, "time", |worker| worker.control.wake(now));
            }
        }
        lock(&self.net).wake();
    }

    /// Lets so much time pass.
    pub(super) async fn pass(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.next(until).await;
        }
    }

    /// Until a client's call is answered.
    pub(super) async fn answer(&mut self, worker: usize) -> CallReply {
        let limit = self.now + Span::from_secs(300);
        loop {
            self.settle().await;
            if let Some(reply) = self.workers[worker].answered() {
                return reply;
            }
            assert!(self.now < limit, "worker {worker} has no answer");
            self.next(limit).await;
        }
    }

    /// A stream breaks for both ends.
    pub(super) fn cut(&mut self, worker: usize) {
        let mut net = lock(&self.net);
        if let Some(line) = net.line_of(worker) {
            net.cut(line);
        }
    }
}

pub(super) fn kind(event: &Event) -> &'static str {
    match event {
        Event::Call { .. } => "call",
        Event::AwaitOpen { .. } => "await open",
        Event::AwaitSeal { .. } => "await seal",
        Event::Close { .. } => "close",
        Event::Connected { .. } => "connected",
        Event::Frame { .. } => "frame",
        Event::StreamEnded { .. } => "stream ended",
        Event::Sealed { .. } => "sealed",
        Event::Proved { .. } => "proved",
        Event::SealFailed { .. } => "seal failed",
        Event::Probed { .. } => "probed",
        Event::OffloadFailed { .. } => "offload failed",
        Event::OffloadOver { .. } => "offload over",
        Event::SeedFailed { .. } => "seed failed",
        Event::AwaitEnd { .. } => "await end",
        Event::Record { .. } => "record",
        Event::AskFleet { .. } => "ask fleet",
        Event::AskRouting { .. } => "ask routing",
        Event::ReadDone { .. } => "read done",
        Event::Installed { .. } => "installed",
    }
}
