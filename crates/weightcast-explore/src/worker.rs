//! A worker: the real session, memory, wires to the server, and a program.

use std::collections::VecDeque;

use weightcast_protocol::message::{
    Answer, Assignment, Call, ClientMessage, EpochPolicy, Open, Role, ServerMessage,
};
use weightcast_protocol::session::{Output, ReadOrder, Session, SessionConfig};
use weightcast_protocol::{
    Attempt, CallError, ConnectionId, ContentDigest, ExportId, Generation, Nonce, OpSeq, PROTOCOL,
    Selector, SessionId, Span, Term, TermProof, Time, Version,
};
use weightcast_testkit::{TaggedMemory, VirtualHost, VirtualRuntime, chunks_of, drive};

use crate::bounds::{Bounds, CHUNKS, ShardPlace};

/// Longer than anything takes.
const FOR_EVER: Span = Span::from_secs(1_000_000);

/// One shard's process.
#[derive(Clone, Debug)]
pub(crate) struct WorkerState {
    pub(crate) place: ShardPlace,
    pub(crate) index: usize,
    pub(crate) life: u64,
    pub(crate) session: Session,
    /// On the session's clock: it stands still but for leases that run out when a server is lost, so
    /// a lease that the server takes for expired is always one that its worker still acts on.
    pub(crate) clock: Time,
    /// On their way to the server.
    pub(crate) up: VecDeque<ClientMessage>,
    /// On their way from it.
    pub(crate) down: VecDeque<ServerMessage>,
    /// Ties to servers.
    pub(crate) tie: Tie,
    pub(crate) host: VirtualHost<SteppedRead>,
    pub(crate) memory: TaggedMemory,
    /// The call that was made and not answered.
    pub(crate) calling: Option<(OpSeq, Call)>,
    /// What its program has done: see `next_call`.
    pub(crate) done: u64,
    /// Whether the memory was registered in this life.
    pub(crate) registered: bool,
}

/// Which server a worker hears, and which it wants to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tie {
    /// The server that the stream goes to, or went to last.
    pub(crate) server: usize,
    /// Streams opened so far.
    pub(crate) streams: u64,
    /// The server died under the stream, and the worker has not noticed.
    pub(crate) cut: bool,
    /// The server to open a stream to.
    pub(crate) wanted: Option<usize>,
    /// Nothing is heard of the worker for a recovery window.
    pub(crate) strays: bool,
    /// The server has said to come again later.
    pub(crate) refused: bool,
    /// The other server, which is to be told of a term.
    pub(crate) probe: Option<(usize, TermProof)>,
    /// The latest term that the session was open in.
    pub(crate) known: Term,
}

/// A read that runs.
#[derive(Clone, Debug)]
pub(crate) struct SteppedRead {
    pub(crate) seq: OpSeq,
    pub(crate) attempt: Attempt,
    pub(crate) assignment: Assignment,
    pub(crate) next: u32,
}

/// What a worker's step showed.
#[derive(Clone, Debug)]
pub(crate) enum WorkerEvent {
    /// A call ended.
    Done(OpSeq, Result<Answer, CallError>),
    /// The memory was written while it was served (S3).
    WrittenWhileServed,
}

impl WorkerState {
    pub(crate) fn new(index: usize, place: ShardPlace, life: u64, bounds: &Bounds) -> Self {
        let id = 1 + index as u64 + (life << 8);
        let open = Open {
            protocol: PROTOCOL,
            // The front half is what `{:?}` shows of it.
            session: SessionId(u128::from(id) << 96),
            ticket: None,
            rejoins: false,
            model: "policy".into(),
            replica: place.replica.clone(),
            shard: place.shard,
            num_shards: place.num_shards,
            role: place.role,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: Default::default(),
            data_address: index.to_string(),
            activate: false,
        };
        let servers = vec!["server"; bounds.servers()].join(",");
        let mut config = SessionConfig::new(open, servers);
        config.relays = true;
        config.reconnect = if bounds.fails_over() { FOR_EVER } else { Span(0) };
        (config.backoff, config.backoff_max) = (Span(0), Span(0));
        config.patience = Span(u64::MAX);
        config.safeguards = bounds.safeguards;
        let mut session = Session::new(config, Time(0));
        // It wants the first server.
        session.poll_output();
        Self {
            memory: TaggedMemory::new(chunks_of(place.shard, place.num_shards, CHUNKS)),
            place,
            index,
            life,
            session,
            clock: Time(0),
            tie: Tie { wanted: Some(0), ..Tie::default() },
            up: VecDeque::new(),
            down: VecDeque::new(),
            host: VirtualHost::default(),
            calling: None,
            done: 0,
            registered: false,
        }
    }

    /// The process starts again. Its memory is kept, and a trainer knows what it has published; a
    /// rollout starts from the beginning, as all shards of its group do.
    pub(crate) fn restart(&mut self, bounds: &Bounds) {
        let mut fresh = Self::new(self.index, self.place.clone(), self.life + 1, bounds);
        fresh.tie.streams = self.tie.streams;
        let memory = self.memory.clone();
        let done = if self.place.role == Role::Trainer { self.done } else { 0 };
        *self = Self { memory, done, ..fresh };
    }

    /// Name under which its data port serves in this life.
    pub(crate) fn export(&self) -> ExportId {
        ExportId(1 + self.index as u64 + (self.life << 8))
    }

    pub(crate) fn ended(&self) -> bool {
        self.session.error().is_some()
    }

    /// The call that the program makes next, if it has not come to its end.
    ///
    /// A trainer publishes each version and revokes all but the last one. A rollout replicates the
    /// newest version, then updates.
    pub(crate) fn next_call(&self, bounds: &Bounds) -> Option<Call> {
        if !self.registered {
            let layout = [self.place.num_shards as u8, self.place.shard as u8];
            let mut digest = [0; 16];
            digest[..2].copy_from_slice(&layout);
            return Some(Call::Register {
                layout: ContentDigest(digest),
                export: self.export(),
                bytes: 2,
            });
        }
        let latest = Selector::Latest;
        match self.place.role {
            Role::Trainer if self.session.version().is_some() => {
                (self.done < bounds.versions).then_some(Call::Unpublish)
            }
            Role::Trainer => (self.done < bounds.versions).then(|| Call::Publish {
                version: self.done + 1,
                catalog: ContentDigest([1; 16]),
                generation: Generation(0),
            }),
            Role::Offload(_) | Role::Seed(_) => None,
            Role::Rollout if self.done == 0 && bounds.reads > 0 => {
                Some(Call::Replicate { selector: latest })
            }
            Role::Rollout => (self.done < bounds.reads).then_some(Call::Update {
                selector: latest,
                allow_rollback: false,
                staged: false,
            }),
        }
    }

    /// Makes the next call; a trainer writes the version first.
    pub(crate) fn act(&mut self, bounds: &Bounds) -> Vec<WorkerEvent> {
        let Some(call) = self.next_call(bounds) else { return Vec::new() };
        let mut events = Vec::new();
        if let (Call::Publish { version, .. }, Some(lease)) = (&call, self.session.lease()) {
            let version = Version { epoch: lease.epoch, number: *version };
            events.extend(self.write(|memory| memory.fill(version)));
        }
        if let Ok(seq) = self.session.call(self.clock, call.clone(), FOR_EVER) {
            self.calling = Some((seq, call));
        }
        events.extend(self.obey());
        events
    }

    /// Takes a message from the server.
    pub(crate) fn take(&mut self) -> Vec<WorkerEvent> {
        let Some(message) = self.down.pop_front() else { return Vec::new() };
        let refused = matches!(message, ServerMessage::Refused { retry: true, .. });
        let superseded = matches!(message, ServerMessage::Superseded);
        self.session.handle_message(self.clock, message);
        if superseded {
            self.session.handle_timeout(self.clock); // it asks for another server at once
        }
        self.tie.refused = refused && !self.ended();
        self.obey()
    }

    fn write(&mut self, write: impl FnOnce(&mut TaggedMemory)) -> Option<WorkerEvent> {
        write(&mut self.memory);
        self.host.exposed.map(|_| WorkerEvent::WrittenWhileServed)
    }

    /// A chunk has come: it may be read on, if the memory is served while it is filled.
    pub(crate) fn store(&mut self, chunk: u32, tag: u64) -> Option<WorkerEvent> {
        self.memory.set(chunk, tag);
        let place = self.memory.place(chunk);
        let served = self.host.exposed.filter(|exposed| exposed.has(place));
        if let Some(filled) = self.host.exposed.as_mut().and_then(|exposed| exposed.filled.as_mut())
        {
            *filled = (*filled).max(place + 1);
        }
        served.map(|_| WorkerEvent::WrittenWhileServed)
    }

    /// Where a read begins: after what is kept, if it goes on at another source.
    fn first(&self, keep: bool) -> u32 {
        let all = self.memory.range();
        let kept = self.host.exposed.filter(|_| keep).map(|e| e.filled.unwrap_or(all.len() as u32));
        all.start + kept.unwrap_or(0)
    }

    /// Does what the session says.
    pub(crate) fn obey(&mut self) -> Vec<WorkerEvent> {
        let mut obeying = Obeying { worker: self, events: Vec::new() };
        drive(&mut obeying);
        obeying.events
    }

    fn answered(&mut self, result: &Result<Answer, CallError>) {
        let Some((_, call)) = self.calling.take() else { return };
        match (&call, result) {
            (Call::Register { .. }, Ok(_)) => self.registered = true,
            (Call::Publish { version, .. }, Ok(_)) => self.done = *version,
            // Also one that failed: a program that tried for ever would have no end.
            (Call::Replicate { .. } | Call::Update { .. }, _) => self.done += 1,
            _ => {}
        }
    }
}

/// A worker that does what its session says. Seeds, copies aside, staged updates and measurements are
/// not asked for: nothing is retained, and no time passes.
struct Obeying<'a> {
    worker: &'a mut WorkerState,
    events: Vec<WorkerEvent>,
}

impl VirtualRuntime for Obeying<'_> {
    type Reading = SteppedRead;
    type Staged = ();

    fn host(&mut self) -> &mut VirtualHost<SteppedRead> {
        &mut self.worker.host
    }

    fn next_output(&mut self) -> Option<Output> {
        self.worker.session.poll_output()
    }

    fn connect(&mut self, server: usize) {
        self.worker.tie.wanted = Some(server);
    }

    fn probe(&mut self, server: usize, proof: TermProof) {
        self.worker.tie.probe = Some((server, proof));
    }

    fn send(&mut self, _: ConnectionId, message: ClientMessage) {
        if !matches!(message, ClientMessage::Heartbeat { .. }) {
            self.worker.up.push_back(message);
        }
    }

    /// Nothing is shown: a challenge that waits would only tell states apart.
    fn prove(&mut self, _: Generation, _: Nonce) {
        self.worker.host.proving.clear();
    }

    fn read(&mut self, order: ReadOrder) {
        let ReadOrder { seq, attempt, assignment, keep, .. } = order;
        let next = self.worker.first(keep);
        self.worker.host.reading = Some(SteppedRead { seq, attempt, assignment, next });
    }

    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        self.worker.answered(&result);
        self.events.push(WorkerEvent::Done(seq, result));
    }

    /// From here on the process may do what it likes with its memory.
    fn end(&mut self, _: Option<CallError>) {
        let worker = &mut *self.worker;
        worker.host.give_up();
        worker.host.stream = None;
        worker.tie = Tie { streams: worker.tie.streams, ..Tie::default() };
        worker.up.clear();
        worker.down.clear();
        let written = worker.write(|memory| *memory = TaggedMemory::new(memory.range()));
        self.events.extend(written);
    }
}
