//! A server and sessions under a virtual clock, joined by streams that keep their order.
//!
//! Shards hold one number for content; a read fetches the source group's numbers and shares the
//! total out again, so any two group sizes can read from each other and sums add up.

// Every test file uses another part of it.
#![allow(dead_code, unreachable_pub)]

mod hosting;
mod published;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::pinned::Course;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use weightcast_protocol::message::{
    Answer, Assignment, Call, ClientMessage, EpochPolicy, Listing, Location, Open, ReadFailure,
    Role, ServerMessage,
};
use weightcast_protocol::server::{
    ReplicaState, Server, ServerConfig, ServerOutput, offload_name, seed_name,
};
pub use weightcast_protocol::session::ReadOrder;
use weightcast_protocol::session::{Output, Session, SessionConfig};
use weightcast_protocol::{
    CallError, Condition, ConnectionId, ContentDigest, Epoch, ExportId, Generation, OpSeq,
    PROTOCOL, Revision, Selector, SessionId, ShardSums, Span, Sum, Time, Version,
};
use weightcast_testkit::VirtualHost;

pub const DEADLINE: Span = Span::from_secs(30);
pub const CATALOG: ContentDigest = ContentDigest([7; 16]);

/// The same cases in every run.
pub fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(1);
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

/// How a call ended.
pub type Outcome = Result<Answer, CallError>;

/// One shard's process: its session, and a runtime that does what the session says.
pub struct Client {
    pub session: Session,
    pub replica: String,
    pub shard: u32,
    pub num_shards: u32,
    /// This shard's part of the content.
    pub memory: u64,
    /// What the session has asked for; a staged update reads a part of the content beside the memory.
    pub host: VirtualHost<ReadOrder, u64>,
    pub done: Vec<(OpSeq, Outcome)>,
    pub closed: Option<Option<CallError>>,
    /// Whether the last read goes on where the one before it was.
    pub keep: bool,
    /// What it says of that read: bytes that have arrived, that are left, and by whom.
    pub progress: Option<(u64, u64, u32)>,
    /// Whose memory it is a copy of, if it is an offload replica's shard.
    pub offload_of: Option<(usize, Version, Generation)>,
    /// Who was asked, what and by which name, if it is a seed replica's shard.
    pub seed_of: Option<(usize, Version, u64)>,
    /// Every output, in order.
    pub log: Vec<Output>,
    alive: bool,
}

impl Client {
    /// The last thing that it was asked to bring near, and by which name, if it has not begun.
    pub fn wanted_seed(&self) -> Option<(Version, u64)> {
        self.host.seeding.last_key_value().map(|(ask, version)| (*version, *ask))
    }
}

pub struct Cluster {
    pub now: Time,
    pub server: Server,
    /// The servers after the first.
    pub backups: Vec<Server>,
    /// Servers that nobody reaches, by their place in the list.
    pub down: BTreeSet<usize>,
    /// Of the sessions that start from now on.
    pub reconnect: Span,
    pub clients: Vec<Client>,
    /// Reads end by themselves; else by `finish_read`.
    pub auto_read: bool,
    /// What was read beside the memory is put in place by itself; else by `finish_install`.
    pub auto_install: bool,
    /// Seals end by themselves; else by `finish_seal`.
    pub auto_seal: bool,
    /// Shards show their bytes by themselves; else by `finish_proofs`.
    pub auto_prove: bool,
    /// Offloads end by themselves; else by `finish_offload`.
    pub auto_offload: bool,
    /// Seeds are opened by themselves; else by `open_seed`.
    pub auto_seed: bool,
    /// Sessions of processes started from now on serve what they are being filled with.
    pub relays: bool,
    /// How often sessions of processes started from now on tell how far their reads are.
    pub progress_every: Option<Span>,
    /// Whether streams can be opened.
    pub reachable: bool,
    to_server: VecDeque<(ConnectionId, ClientMessage)>,
    to_client: VecDeque<(ConnectionId, ServerMessage)>,
    connections: u64,
    /// Which server each stream leads to.
    leads_to: BTreeMap<ConnectionId, usize>,
    /// Where the processes run that said so.
    places: BTreeMap<usize, Location>,
    course: Course,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let now = self.now;
        for server in 0..=self.backups.len() {
            let snapshot = self.machine(server).snapshot(now);
            self.course.note(&snapshot);
        }
        self.course.end();
    }
}

/// What shard `shard` of `num_shards` holds of a content.
pub fn share(total: u64, shard: u32, num_shards: u32) -> u64 {
    let part = |shard: u32| total.wrapping_mul(u64::from(shard) + 3) >> 2;
    if shard + 1 < num_shards {
        return part(shard);
    }
    (0..shard).fold(total, |rest, other| rest.wrapping_sub(part(other)))
}

pub fn sums(part: u64) -> ShardSums {
    let sum = Sum([part, 0]);
    ShardSums { counted: sum, held: sum, expected: sum }
}

pub fn open(replica: &str, shard: u32, num_shards: u32, role: Role) -> Open {
    Open {
        protocol: PROTOCOL,
        session: SessionId(0),
        ticket: None,
        rejoins: false,
        model: "policy".into(),
        replica: replica.into(),
        shard,
        num_shards,
        role,
        epoch: EpochPolicy::Current,
        retain: 0,
        offload_seeding: false,
        location: Location::default(),
        data_address: String::new(),
        activate: true,
    }
}

impl Cluster {
    pub fn new() -> Self {
        Self::with(ServerConfig::default())
    }

    pub fn with(config: ServerConfig) -> Self {
        Self {
            now: Time(1_000_000),
            server: Server::new(ServerConfig { paranoid: true, ..config }),
            backups: Vec::new(),
            down: BTreeSet::new(),
            reconnect: Span(0),
            leads_to: BTreeMap::new(),
            places: BTreeMap::new(),
            clients: Vec::new(),
            auto_read: true,
            auto_install: true,
            auto_seal: true,
            auto_prove: true,
            auto_offload: true,
            auto_seed: true,
            relays: false,
            progress_every: None,
            reachable: true,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            connections: 0,
            course: Course::default(),
        }
    }

    /// Starts a shard's process; its index.
    pub fn start(&mut self, open: Open) -> usize {
        let index = self.spawn(open);
        self.run();
        if !self.backups.is_empty() {
            self.advance(Span::from_millis(500)); // it looks through the list
        }
        index
    }

    fn spawn(&mut self, mut open: Open) -> usize {
        let index = self.clients.len();
        open.session = SessionId(index as u128 + 1);
        open.data_address = index.to_string();
        let servers = vec!["server:1"; 1 + self.backups.len()].join(",");
        let (replica, shard) = (open.replica.clone(), open.shard);
        let num_shards = open.num_shards;
        self.places.insert(index, open.location.clone());
        let mut config = SessionConfig::new(open, servers);
        config.relays = self.relays;
        config.progress_every = self.progress_every;
        config.reconnect = self.reconnect;
        self.clients.push(Client {
            session: Session::new(config, self.now),
            replica,
            shard,
            num_shards,
            memory: 0,
            host: VirtualHost::default(),
            done: Vec::new(),
            closed: None,
            keep: false,
            progress: None,
            offload_of: None,
            seed_of: None,
            log: Vec::new(),
            alive: true,
        });
        index
    }

    /// A group of `num_shards` that has opened and registered.
    pub fn group(&mut self, replica: &str, num_shards: u32, role: Role) -> Vec<usize> {
        let group: Vec<usize> =
            (0..num_shards).map(|s| self.start(open(replica, s, num_shards, role))).collect();
        for outcome in self.call_all(&group, register) {
            assert!(matches!(outcome, Ok(Answer::Registered { .. })), "{outcome:?}");
        }
        group
    }

    pub fn trainer(&mut self, replica: &str, num_shards: u32) -> Vec<usize> {
        self.group(replica, num_shards, Role::Trainer)
    }

    pub fn rollout(&mut self, replica: &str, num_shards: u32) -> Vec<usize> {
        self.group(replica, num_shards, Role::Rollout)
    }

    /// Makes a call and lets everything settle.
    pub fn call(&mut self, client: usize, call: Call) -> OpSeq {
        self.call_within(client, call, DEADLINE)
    }

    pub fn call_within(&mut self, client: usize, call: Call, deadline: Span) -> OpSeq {
        let seq = self.clients[client].session.call(self.now, call, deadline).expect("callable");
        self.run();
        seq
    }

    /// The same call on every shard, in order, and how it ended on each.
    pub fn call_all(&mut self, group: &[usize], call: impl Fn(u32) -> Call) -> Vec<Outcome> {
        self.begin_all(group, call);
        group.iter().map(|client| self.outcome(*client).expect("no answer")).collect()
    }

    pub fn begin_all(&mut self, group: &[usize], call: impl Fn(u32) -> Call) {
        for client in group {
            self.call(*client, call(self.clients[*client].shard));
        }
    }

    /// How the client's newest call ended, if it has.
    pub fn outcome(&self, client: usize) -> Option<Outcome> {
        self.clients[client].done.last().map(|(_, outcome)| outcome.clone())
    }

    /// How many calls of a client have ended.
    pub fn ended(&self, client: usize) -> usize {
        self.clients[client].done.len()
    }

    /// Fills a group's memory with a content and publishes it.
    pub fn publish(&mut self, group: &[usize], version: u64, content: u64) -> Vec<Outcome> {
        self.fill(group, content);
        self.call_all(group, |_| publish(version))
    }

    pub fn fill(&mut self, group: &[usize], content: u64) {
        for client in group {
            let client = &mut self.clients[*client];
            client.memory = share(content, client.shard, client.num_shards);
        }
    }

    pub fn content(&self, group: &[usize]) -> u64 {
        group.iter().fold(0, |sum, client| sum.wrapping_add(self.clients[*client].memory))
    }

    pub fn list(&mut self, client: &[usize]) -> Listing {
        match self.call_all(client, |_| Call::List).pop() {
            Some(Ok(Answer::Listed(listing))) => Arc::unwrap_or_clone(listing),
            other => panic!("{other:?}"),
        }
    }

    pub fn state(&self, replica: &str) -> ReplicaState {
        let snapshot = self.server.snapshot(self.now);
        let replicas = &snapshot.models["policy"].replicas;
        replicas.iter().rev().find(|r| r.name == replica).expect("known").state
    }

    /// Who reads from whom.
    pub fn edges(&self) -> Vec<(String, String)> {
        let snapshot = self.server.snapshot(self.now);
        snapshot.models["policy"]
            .edges
            .iter()
            .map(|e| (e.reader.clone(), e.source.clone()))
            .collect()
    }

    /// The process stops; its stream breaks.
    pub fn kill(&mut self, client: usize) {
        self.clients[client].alive = false;
        self.clients[client].host.exposed = None;
        self.break_stream(client);
    }

    /// The client's machine stands still: nothing is heard of it until it goes on. Its stream is to
    /// break meanwhile.
    pub fn stand_still(&mut self, client: usize) {
        self.clients[client].alive = false;
    }

    /// It goes on, and finds its stream broken.
    pub fn go_on(&mut self, client: usize) {
        self.clients[client].alive = true;
        self.clients[client].session.handle_disconnected(self.now);
        self.run();
    }

    /// The stream breaks, with all that is on it; the session may open another.
    pub fn break_stream(&mut self, client: usize) {
        if let Some(connection) = self.clients[client].host.stream.take() {
            self.to_server.retain(|(other, _)| *other != connection);
            self.to_client.retain(|(other, _)| *other != connection);
            let now = self.now;
            self.machine(self.leads_to[&connection]).handle_disconnect(now, connection);
            if self.clients[client].alive {
                self.clients[client].session.handle_disconnected(self.now);
            }
        }
        self.run();
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let sessions = self.clients.iter().filter(|c| c.alive);
            let next = sessions
                .filter_map(|client| client.session.next_timeout())
                .chain(self.machines().filter_map(|(_, server)| server.next_timeout()))
                .min();
            match next.filter(|next| *next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
            self.tick();
            self.run();
        }
        self.now = end;
        self.tick();
        self.run();
    }

    /// A moment passes without anybody's timers running, as when the machine was suspended.
    pub fn tick(&mut self) {
        let now = self.now;
        for server in 0..=self.backups.len() {
            self.machine(server).handle_timeout(now);
        }
        for client in self.clients.iter_mut().filter(|client| client.alive) {
            client.session.handle_timeout(self.now);
        }
    }

    /// A client's stream carries what its session would not say.
    pub fn tell(&mut self, client: usize, message: ClientMessage) {
        let connection = self.clients[client].host.stream.expect("it has a stream");
        self.to_server.push_back((connection, message));
        self.run();
    }

    /// Delivers messages and does outputs until nothing is left to do at this moment.
    pub fn run(&mut self) {
        loop {
            let mut quiet = true;
            for client in 0..self.clients.len() {
                quiet &= !self.obey(client);
            }
            while let Some((from, message)) = self.to_server.pop_front() {
                quiet = false;
                let (now, server) = (self.now, self.leads_to[&from]);
                if !self.down.contains(&server) {
                    self.machine(server).handle(now, from, message);
                }
            }
            for server in 0..=self.backups.len() {
                while let Some(output) = self.machine(server).poll_output() {
                    quiet = false;
                    if !self.down.contains(&server) {
                        self.obey_server(output);
                    }
                }
            }
            while let Some((to, message)) = self.to_client.pop_front() {
                quiet = false;
                if let Some(client) = self.connected(to) {
                    self.clients[client].session.handle_message(self.now, message);
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// A server, by its place in the list.
    pub fn machine(&mut self, server: usize) -> &mut Server {
        match server.checked_sub(1) {
            None => &mut self.server,
            Some(backup) => &mut self.backups[backup],
        }
    }

    fn machines(&self) -> impl Iterator<Item = (usize, &Server)> {
        std::iter::once(&self.server).chain(&self.backups).enumerate()
    }

    /// A cluster whose clients know several servers.
    pub fn with_servers(servers: u32) -> Self {
        let mut cluster = Self::new();
        let config = |index| ServerConfig { paranoid: true, index, ..ServerConfig::default() };
        cluster.backups = (1..servers).map(|index| Server::new(config(index))).collect();
        cluster.reconnect = Span::from_secs(60);
        cluster
    }

    /// The server dies, with all streams to it.
    pub fn crash(&mut self, server: usize) {
        self.down.insert(server);
        for client in 0..self.clients.len() {
            if self.clients[client].host.stream.is_some_and(|c| self.leads_to[&c] == server) {
                self.break_stream(client);
            }
        }
    }

    fn connected(&self, connection: ConnectionId) -> Option<usize> {
        self.clients.iter().position(|client| client.host.stream == Some(connection))
    }

    pub fn obey_server(&mut self, output: ServerOutput) {
        self.course.note(&output);
        match output {
            ServerOutput::Send { to, message } => self.to_client.push_back((to, message)),
            ServerOutput::Disconnect { connection } => {
                let waiting: Vec<ServerMessage> = self
                    .to_client
                    .iter()
                    .filter(|(to, _)| *to == connection)
                    .map(|(_, message)| message.clone())
                    .collect();
                self.to_client.retain(|(to, _)| *to != connection);
                if let Some(client) = self.connected(connection) {
                    for message in waiting {
                        self.clients[client].session.handle_message(self.now, message);
                    }
                    self.clients[client].host.stream = None;
                    self.clients[client].session.handle_disconnected(self.now);
                }
            }
        }
    }

    /// The copy that runs ends, and its offload replica is opened; call `run` after it.
    pub fn finish_offload(&mut self, index: usize) {
        let Some((version, generation)) = self.clients[index].host.offloading.take() else {
            return;
        };
        let (shard, num_shards) = (self.clients[index].shard, self.clients[index].num_shards);
        let replica = offload_name(&self.clients[index].replica, version);
        let copy = self.spawn(open(&replica, shard, num_shards, Role::Offload(version)));
        let memory = self.clients[index].memory;
        let copy = &mut self.clients[copy];
        copy.memory = memory;
        copy.offload_of = Some((index, version, generation));
        copy.session.call(self.now, register(shard), DEADLINE).expect("new sessions are callable");
    }

    /// The shard has no memory to copy to.
    pub fn fail_offload(&mut self, index: usize) {
        let Some((version, generation)) = self.clients[index].host.offloading.take() else {
            return;
        };
        let reason = "out of memory".to_owned();
        self.clients[index].session.handle_offload_failed(self.now, version, generation, reason);
        self.run();
    }

    pub fn finish_offloads(&mut self, group: &[usize]) {
        group.iter().for_each(|client| self.finish_offload(*client));
        self.run();
    }

    /// An offload replica's shard has registered, and publishes now.
    fn go_on_offloading(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let (Some((_, version, _)), Some((_, Ok(Answer::Registered { .. })))) =
            (client.offload_of, client.done.last())
        {
            let call = publish(version.number);
            client.session.call(self.now, call, DEADLINE).expect("its last call has ended");
        }
    }

    /// The shard finds memory for the seed that it was asked for; call `run` after it.
    pub fn open_seed(&mut self, index: usize) {
        let Some((ask, version)) = self.clients[index].host.seeding.pop_last() else { return };
        let (shard, num_shards) = (self.clients[index].shard, self.clients[index].num_shards);
        let replica = seed_name(&self.clients[index].replica, version);
        let mut open = open(&replica, shard, num_shards, Role::Seed(version));
        open.location = self.places.get(&index).cloned().unwrap_or_default();
        let seed = self.spawn(open);
        let seed = &mut self.clients[seed];
        seed.seed_of = Some((index, version, ask));
        seed.session.call(self.now, register(shard), DEADLINE).expect("new sessions are callable");
    }

    /// It finds none.
    pub fn refuse_seed(&mut self, index: usize) {
        let Some((ask, _)) = self.clients[index].host.seeding.pop_last() else { return };
        self.clients[index].session.handle_seed_failed(self.now, ask);
        self.run();
    }

    /// A seed replica's shard has registered, and replicates now; or it has failed.
    fn go_on_seeding(&mut self, index: usize) {
        let client = &mut self.clients[index];
        match (client.seed_of, client.done.last()) {
            (Some((_, version, _)), Some((_, Ok(Answer::Registered { .. })))) => {
                let call = replicate(Selector::Exact(version.number));
                client.session.call(self.now, call, DEADLINE).expect("its last call has ended");
            }
            (Some(_), Some((_, Err(_)))) => {
                client.session.close(self.now, DEADLINE);
                self.report_seed(index);
            }
            _ => {}
        }
    }

    fn report_seed(&mut self, index: usize) {
        if let Some((owner, _, ask)) = self.clients[index].seed_of {
            self.clients[owner].session.handle_seed_failed(self.now, ask);
        }
    }

    /// Shards of seed replicas whose sessions are not over.
    pub fn seed_shards(&self) -> Vec<usize> {
        let lives = |c: &Client| c.seed_of.is_some() && c.closed.is_none() && c.alive;
        (0..self.clients.len()).filter(|index| lives(&self.clients[*index])).collect()
    }

    /// Shards of offload replicas whose sessions are not over.
    pub fn offload_shards(&self) -> usize {
        self.clients.iter().filter(|c| c.offload_of.is_some() && c.closed.is_none()).count()
    }

    /// The seal that runs ends; call `run` after it.
    pub fn finish_seal(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if let Some(generation) = client.host.sealing.take() {
            client.session.handle_sealed(self.now, generation, sums(client.memory));
        }
    }

    /// Shows what the memory holds, as the real sums do: additive, and of another value with every
    /// number; call `run` after it.
    pub fn finish_proofs(&mut self, index: usize) {
        let client = &mut self.clients[index];
        for (generation, nonce) in std::mem::take(&mut client.host.proving) {
            let sum = client.memory.wrapping_mul(nonce.0 | 1);
            client.session.handle_proved(self.now, generation, nonce, sum);
        }
    }

    /// The read that runs is said to have ended, with the version's digests, and nothing was read.
    pub fn claim(&mut self, index: usize, content: u64) {
        let order = self.clients[index].host.reading.take().expect("it was told to read");
        let client = &mut self.clients[index];
        let part = share(content, client.shard, client.num_shards);
        client.session.handle_read(self.now, order.seq, order.attempt, Ok(sums(part)));
        self.run();
    }

    pub fn finish_seals(&mut self, group: &[usize]) {
        group.iter().for_each(|client| self.finish_seal(*client));
        self.run();
    }

    pub fn finish_reads(&mut self, group: &[usize]) {
        group.iter().for_each(|client| self.finish_read(*client));
        self.run();
    }

    /// The read that runs ends, as the source's shards are now; call `run` after it.
    pub fn finish_read(&mut self, index: usize) {
        let Some(order) = self.clients[index].host.reading.take() else { return };
        let ReadOrder { seq, attempt, assignment, .. } = order;
        let read = self.fetch(&assignment, self.clients[index].shard);
        let client = &mut self.clients[index];
        let result = read.map(|total| {
            let read = share(total, client.shard, client.num_shards);
            match assignment.staged {
                true => client.host.beside = Some(read),
                false => client.memory = read,
            }
            sums(read)
        });
        client.session.handle_read(self.now, seq, attempt, result);
    }

    /// The read that runs ends, since its source does not answer.
    pub fn fail_read(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let order = client.host.reading.take().expect("it was told to read");
        let failure = ReadFailure::Source { shard: 0, reason: "no answer".into() };
        client.session.handle_read(self.now, order.seq, order.attempt, Err(failure));
        self.run();
    }

    /// The copying into place that runs ends; call `run` after it.
    pub fn finish_install(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some((seq, attempt)) = client.host.installing.take() else { return };
        assert!(client.host.exposed.is_none(), "it is still served");
        client.memory = client.host.beside.take().expect("there is something beside the memory");
        client.session.handle_installed(self.now, seq, attempt);
    }

    pub fn finish_installs(&mut self, group: &[usize]) {
        group.iter().for_each(|client| self.finish_install(*client));
        self.run();
    }

    /// What the sources hold together. Each shard takes one of several for it, and looks at all.
    fn fetch(&self, assignment: &Assignment, shard: u32) -> Result<u64, ReadFailure> {
        let each = assignment.shards_each();
        let own = shard as usize % assignment.stripes();
        let parts = assignment.shards.iter().enumerate().map(|(shard, from)| {
            let source = &self.clients[from.data_address.parse::<usize>().expect("an index")];
            if source.host.serves() == Some(from.generation) {
                return Ok(source.memory);
            }
            let reason = format!("serves {:?}, not {}", source.host.serves(), from.generation);
            Err(ReadFailure::Source { shard: shard as u32, reason })
        });
        let parts = parts.collect::<Result<Vec<u64>, ReadFailure>>()?;
        Ok(parts[own * each..][..each]
            .iter()
            .fold(0, |total, part| u64::wrapping_add(total, *part)))
    }
}

pub fn register(shard: u32) -> Call {
    let layout = ContentDigest([shard as u8; 16]);
    Call::Register { layout, export: ExportId(shard.into()), bytes: 8 }
}

pub fn publish(version: u64) -> Call {
    Call::Publish { version, catalog: CATALOG, generation: Generation(0) }
}

pub fn replicate(selector: Selector) -> Call {
    Call::Replicate { selector }
}

pub fn update() -> Call {
    Call::Update { selector: Selector::Latest, allow_rollback: false, staged: false }
}

pub fn staged_update() -> Call {
    Call::Update { selector: Selector::Latest, allow_rollback: false, staged: true }
}

pub fn wait(after: Revision) -> Call {
    Call::Wait { until: Condition::Changed { after } }
}

/// The first run that the first server of a cluster counts.
pub const RUN: Epoch = Epoch(1 << 32);

/// A version of the run that began as many runs after [`RUN`].
pub fn version(later: u64, number: u64) -> Version {
    Version { epoch: Epoch(RUN.0 + later), number }
}

/// The version of a `Committed` answer.
pub fn committed(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Ok(Answer::Committed { version, .. }) => Some(version.number),
        _ => None,
    }
}
