//! A state of the world: the real servers, the workers, what is on the wires, faults left.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weightcast_protocol::message::{Answer, ClientMessage};
use weightcast_protocol::server::ServerOutput;
use weightcast_protocol::{CallError, ConnectionId, Incarnation, OpSeq, Span};

use crate::bounds::Bounds;
use crate::hashed::Hashed;
use crate::host::{DRAIN, ExploredServer, LEASE};
use crate::invariants::{Broken, Shows};
use crate::worker::{WorkerEvent, WorkerState};

/// One state.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// In the order of the workers' list.
    pub(crate) hosts: Vec<ExploredServer>,
    pub(crate) workers: Vec<Hashed<WorkerState>>,
    /// False expiries that may still happen.
    pub(crate) expiries: u32,
    /// Drain deadlines that may still pass.
    pub(crate) cuts: u32,
    /// Times that the one server may still start anew.
    pub(crate) restarts: u32,
    /// Whether the first server may still die.
    pub(crate) death: bool,
    /// Workers that may still lose a server that lives.
    pub(crate) partings: u32,
    /// What shards of groups were told, until all have the answer (G1).
    pub(crate) answers: BTreeMap<(Incarnation, OpSeq), Result<Answer, CallError>>,
    /// What the servers' books show; follows from the servers.
    pub(crate) shows: Shows,
    /// The first invariant that broke.
    pub(crate) broken: Option<Broken>,
}

impl PartialEq for ClusterState {
    fn eq(&self, other: &Self) -> bool {
        hash(self) == hash(other)
    }
}

fn hash(cluster: &ClusterState) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    hasher.finish()
}

impl Hash for ClusterState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.hosts, &self.workers, self.expiries, self.cuts).hash(state);
        (self.restarts, self.death, self.partings).hash(state);
        for (place, answer) in &self.answers {
            place.hash(state);
            format!("{answer:?}").hash(state);
        }
        self.broken.as_ref().map(|broken| broken.invariant).hash(state);
    }
}

impl ClusterState {
    /// Every worker is open and registered, nothing is published.
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let places = bounds.places().into_iter().enumerate();
        let worker = |(index, place)| WorkerState::new(index, place, 0, bounds);
        let mut cluster = Self {
            hosts: (0..bounds.servers())
                .map(|index| ExploredServer::new(index, 0, bounds))
                .collect(),
            workers: places.map(worker).map(Hashed::new).collect(),
            expiries: bounds.expiries,
            cuts: bounds.cuts,
            restarts: bounds.restarts,
            death: bounds.death,
            partings: bounds.partings,
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

    /// Opens the session of a new worker, at once: nothing depends on how long that takes.
    pub(crate) fn connect(&mut self, worker: usize) {
        self.come(worker);
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
        let events = self.workers[worker].change(|worker| worker.act(bounds));
        self.note(worker, events);
    }

    /// The worker does what its session says.
    pub(crate) fn obey(&mut self, worker: usize) {
        let events = self.workers[worker].change(WorkerState::obey);
        self.note(worker, events);
        // What a server that does not act is told changes nothing now: it need not take its time.
        if self.workers[worker].tie.probe.is_some_and(|(server, _)| !self.hosts[server].acts()) {
            self.probe(worker);
        }
    }

    /// The server takes the next message of a worker.
    pub(crate) fn hear(&mut self, worker: usize) {
        let (stream, message) = self.workers[worker].change(|w| (w.host.stream, w.up.pop_front()));
        let (Some(stream), Some(message)) = (stream, message) else { return };
        let server = self.workers[worker].tie.server;
        let host = &mut self.hosts[server];
        let now = host.now;
        host.server.change(|server| server.handle(now, stream, message));
        self.spread(server);
    }

    /// The server takes all that a worker has sent.
    pub(crate) fn hear_all(&mut self, worker: usize) {
        while !self.workers[worker].up.is_empty() {
            self.hear(worker);
        }
    }

    /// A worker takes the next message of the server.
    pub(crate) fn tell(&mut self, worker: usize) {
        let events = self.workers[worker].change(WorkerState::take);
        self.note(worker, events);
    }

    /// The server evicts a worker that still believes in its lease.
    pub(crate) fn expire(&mut self, victim: usize) {
        self.expiries -= 1;
        let server = self.workers[victim].tie.server;
        self.pass(server, Span(LEASE.0 * 11 / 10), Some(victim));
    }

    /// The drain deadlines pass.
    pub(crate) fn cut(&mut self) {
        self.cuts -= 1;
        self.pass(0, DRAIN, None);
    }

    /// Time passes at a server; everybody there but the victim has renewed the lease just before.
    pub(crate) fn pass(&mut self, server: usize, span: Span, victim: Option<usize>) {
        let here = |worker: &&Hashed<WorkerState>| {
            let open = worker.tie.server == server && !worker.tie.refused;
            open && Some(worker.index) != victim
        };
        let streams: Vec<ConnectionId> =
            self.workers.iter().filter(here).filter_map(|worker| worker.host.stream).collect();
        let host = &mut self.hosts[server];
        host.now = host.now + span;
        let now = host.now;
        host.server.change(|server| {
            for stream in streams {
                server.handle(now, stream, ClientMessage::Heartbeat { sent_at: 0 });
            }
            server.handle_timeout(now);
        });
        self.spread(server);
    }

    /// What a server has said leaves; its books are checked.
    pub(crate) fn spread(&mut self, server: usize) {
        let outputs = self.hosts[server]
            .server
            .change(|server| std::iter::from_fn(|| server.poll_output()).collect::<Vec<_>>());
        for output in outputs {
            match output {
                ServerOutput::Send { to, message } => {
                    use weightcast_protocol::message::ServerMessage::{HeartbeatAck, Sealed};
                    // Nothing of what it does hangs on these.
                    let idle = matches!(message, HeartbeatAck { .. } | Sealed { .. });
                    if let Some(worker) = self.worker_on(server, to).filter(|_| !idle) {
                        self.check_given_up(worker, server, &message);
                        self.workers[worker].change(|worker| worker.down.push_back(message));
                    }
                }
                // The worker learns it from the message before: nothing more comes, nothing is heard.
                ServerOutput::Disconnect { connection } => {
                    if let Some(worker) = self.worker_on(server, connection) {
                        self.workers[worker].change(|worker| {
                            worker.host.stream = None;
                            worker.up.clear();
                        });
                    }
                }
            }
        }
        self.check_books();
    }

    fn worker_on(&self, server: usize, stream: ConnectionId) -> Option<usize> {
        self.workers.iter().position(|w| w.tie.server == server && w.host.stream == Some(stream))
    }

    /// Checks what a worker's step showed.
    pub(crate) fn note(&mut self, worker: usize, events: Vec<WorkerEvent>) {
        for event in events {
            self.check_event(worker, event);
        }
        self.check_memory(worker);
    }
}
