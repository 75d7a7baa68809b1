//! A state of the world: the real server, the workers, what is on the wires, faults left.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weightcast_protocol::message::{Answer, ClientMessage};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::{CallError, ConnectionId, Incarnation, OpSeq, Span, Time};

use crate::bounds::Bounds;
use crate::hashed::Hashed;
use crate::invariants::{Broken, Shows};
use crate::worker::{Event, SESSION_TIME, Worker};

const LEASE: Span = Span::from_secs(10);
/// Longer than all leases that can expire take together.
const DRAIN: Span = Span::from_secs(1_000);

/// One state.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) server: Hashed<Server>,
    /// On the server's clock: it moves only when a lease or a drain deadline passes.
    pub(crate) now: Time,
    pub(crate) workers: Vec<Hashed<Worker>>,
    /// False expiries that may still happen.
    pub(crate) expiries: u32,
    /// Drain deadlines that may still pass.
    pub(crate) cuts: u32,
    /// What shards of groups were told, until all have the answer (G1).
    pub(crate) answers: BTreeMap<(Incarnation, OpSeq), Result<Answer, CallError>>,
    /// What the server's books show; follows from the server.
    pub(crate) shows: Shows,
    /// The first invariant that broke.
    pub(crate) broken: Option<Broken>,
}

impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        hash(self) == hash(other)
    }
}

fn hash(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    hasher.finish()
}

impl Hash for Cluster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.server, self.now, &self.workers, self.expiries, self.cuts).hash(state);
        for (place, answer) in &self.answers {
            place.hash(state);
            format!("{answer:?}").hash(state);
        }
        self.broken.as_ref().map(|broken| broken.invariant).hash(state);
    }
}

impl Cluster {
    /// Every worker is open and registered, nothing is published.
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let config = ServerConfig {
            lease: LEASE,
            drain_deadline: DRAIN,
            mutants: bounds.mutants,
            ..ServerConfig::default()
        };
        let places = bounds.places().into_iter().enumerate();
        let worker = |(index, place)| Worker::new(index, place, 0, bounds.mutants);
        let mut cluster = Self {
            server: Hashed::new(Server::new(config)),
            now: Time(0),
            workers: places.map(worker).map(Hashed::new).collect(),
            expiries: bounds.expiries,
            cuts: bounds.cuts,
            answers: BTreeMap::new(),
            shows: Shows::default(),
            broken: None,
        };
        let all = 0..cluster.workers.len();
        all.clone().for_each(|worker| cluster.connect(worker));
        all.clone().for_each(|worker| cluster.act(worker, bounds));
        all.for_each(|worker| cluster.pump(worker));
        cluster
    }

    /// Opens a stream and the session on it, at once: nothing depends on how long that takes.
    pub(crate) fn connect(&mut self, worker: usize) {
        let life = self.workers[worker].life;
        let stream = ConnectionId(1 + worker as u64 + (life << 8));
        self.workers[worker].change(|worker| {
            worker.stream = Some(stream);
            worker.session.handle_connected(SESSION_TIME);
        });
        self.obey(worker);
        self.pump(worker);
    }

    /// Carries a worker's messages both ways until there are none.
    pub(crate) fn pump(&mut self, worker: usize) {
        loop {
            if !self.workers[worker].up.is_empty() {
                self.hear(worker);
            } else if !self.workers[worker].down.is_empty() {
                self.tell(worker);
            } else {
                return;
            }
        }
    }

    /// The worker's program goes on.
    pub(crate) fn act(&mut self, worker: usize, bounds: &Bounds) {
        let events = self.workers[worker].change(|worker| worker.act(bounds.versions));
        self.note(worker, events);
    }

    /// The worker does what its session says.
    pub(crate) fn obey(&mut self, worker: usize) {
        let events = self.workers[worker].change(Worker::obey);
        self.note(worker, events);
    }

    /// The server takes the next message of a worker.
    pub(crate) fn hear(&mut self, worker: usize) {
        let (stream, message) = self.workers[worker].change(|w| (w.stream, w.up.pop_front()));
        let (Some(stream), Some(message)) = (stream, message) else { return };
        let now = self.now;
        self.server.change(|server| server.handle(now, stream, message));
        self.spread();
    }

    /// A worker takes the next message of the server.
    pub(crate) fn tell(&mut self, worker: usize) {
        let events = self.workers[worker].change(Worker::take);
        self.note(worker, events);
    }

    /// The server evicts a worker that still believes in its lease.
    pub(crate) fn expire(&mut self, victim: usize) {
        self.expiries -= 1;
        self.pass(Span(LEASE.0 * 11 / 10), Some(victim));
    }

    /// The drain deadlines pass.
    pub(crate) fn cut(&mut self) {
        self.cuts -= 1;
        self.pass(DRAIN, None);
    }

    /// Time passes at the server; everybody but the victim has renewed the lease just before.
    fn pass(&mut self, span: Span, victim: Option<usize>) {
        self.now = self.now + span;
        let now = self.now;
        let renewing =
            |worker: &Hashed<Worker>| worker.stream.filter(|_| Some(worker.index) != victim);
        let streams: Vec<ConnectionId> = self.workers.iter().filter_map(renewing).collect();
        self.server.change(|server| {
            for stream in streams {
                server.handle(now, stream, ClientMessage::Heartbeat { sent_at: 0 });
            }
            server.handle_timeout(now);
        });
        self.spread();
    }

    /// What the server has said leaves; its books are checked.
    fn spread(&mut self) {
        let outputs = self
            .server
            .change(|server| std::iter::from_fn(|| server.poll_output()).collect::<Vec<_>>());
        for output in outputs {
            match output {
                ServerOutput::Send { to, message } => {
                    use weightcast_protocol::message::ServerMessage::HeartbeatAck;
                    let worker = self.workers.iter_mut().find(|w| w.stream == Some(to));
                    if let Some(worker) = worker.filter(|_| !matches!(message, HeartbeatAck { .. }))
                    {
                        worker.change(|worker| worker.down.push_back(message));
                    }
                }
                // The worker learns it from the message before: nothing more comes, nothing is heard.
                ServerOutput::Disconnect { connection } => {
                    if let Some(worker) =
                        self.workers.iter_mut().find(|w| w.stream == Some(connection))
                    {
                        worker.change(|worker| {
                            worker.stream = None;
                            worker.up.clear();
                        });
                    }
                }
            }
        }
        self.check_books();
    }

    /// Checks what a worker's step showed.
    pub(crate) fn note(&mut self, worker: usize, events: Vec<Event>) {
        for event in events {
            self.check_event(worker, event);
        }
        self.check_memory(worker);
    }
}
