//! The pretender: a client that has the job's token and lies. The pretender makes a past up, shows tickets that other
//! clients were given, and claims, as a member of a group of its own, to have held a version that it never held.

use weightcast_protocol::message::{
    Announcement, ClientMessage, EpochPolicy, Holding, Location, Open, Registration, Role,
    ServerMessage,
};
use weightcast_protocol::{
    ConnectionId, ContentDigest, Epoch, ExportId, Generation, Incarnation, Mac, OpSeq, PROTOCOL,
    Proved, ShardSums, Term, TermProof, Ticket, Version,
};
use weightcast_testkit::mix;

use crate::parts::pretender::ADDRESS;
use crate::sights::coverage::Point;
use crate::world::World;

/// Lies that the pretender tries at each turn.
const TRIES: u64 = 6;

impl World {
    /// The pretender lies to a server.
    pub(crate) fn pretend(&mut self, host: usize) {
        for _ in 0..TRIES {
            let stream = self.new_pretence();
            match self.rng.below(4) {
                0 => self.make_up_a_term(host),
                1 => self.make_up_a_past(host, stream),
                2 => self.show_what_is_not_its_own(host, stream),
                _ => self.come_over(host, stream),
            }
        }
    }

    fn new_pretence(&mut self) -> ConnectionId {
        self.pretender.streams += 1;
        ConnectionId((1 << 60) + self.pretender.streams)
    }

    fn number(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => u64::MAX,
            1 => (1 << 62) - 1,
            2 => self.rng.below(1 << 40),
            _ => self.rng.below(100),
        }
    }

    fn say(&mut self, host: usize, stream: ConnectionId, message: ClientMessage) {
        let now = self.now;
        if self.hosts[host].paused_until > now {
            return;
        }
        let Some(server) = &mut self.hosts[host].server else { return };
        server.handle(now, stream, Box::new(message));
        self.after_server(host);
    }

    fn make_up_a_term(&mut self, host: usize) {
        let (now, proof) = (self.now, self.made_up().proof);
        if self.hosts[host].paused_until > now {
            return;
        }
        let Some(server) = &mut self.hosts[host].server else { return };
        server.handle_probe(now, proof);
        self.after_server(host);
    }

    fn made_up(&mut self) -> Ticket {
        let (term, number) = (Term(self.number()), self.number());
        let version = Version { epoch: Epoch(self.number()), number };
        let held = Proved { version, catalog: ContentDigest([1; 16]), sum: None };
        Ticket {
            proof: TermProof { term, origin: term, mac: Mac([9; 32]) },
            incarnation: Incarnation { term: Term(self.number()), number },
            epoch: version.epoch,
            held: Some(held),
            mac: Mac([9; 32]),
        }
    }

    /// Asks for the place of a process, with a past that no process had.
    fn make_up_a_past(&mut self, host: usize, stream: ConnectionId) {
        let mut ticket = self.made_up();
        let victim = self.rng.below(self.processes.len() as u64) as usize;
        let lease = self.processes[victim].session.as_ref().and_then(|session| session.lease());
        if let Some(lease) = lease.filter(|_| self.rng.chance(500)) {
            ticket.incarnation = lease.incarnation;
        }
        let open = Open { ticket: Some(ticket), ..self.place_of(victim) };
        self.say(host, stream, ClientMessage::Open(open));
    }

    /// Asks for the place of one process with the ticket of another.
    fn show_what_is_not_its_own(&mut self, host: usize, stream: ConnectionId) {
        let processes = self.processes.len() as u64;
        let victim = self.rng.below(processes) as usize;
        let other = self.rng.below(processes) as usize;
        let session = self.processes[other].session.as_ref();
        let Some(ticket) = session.and_then(|session| session.ticket()).copied() else { return };
        let open = Open { ticket: Some(ticket), ..self.place_of(victim) };
        self.say(host, stream, ClientMessage::Open(open));
    }

    fn place_of(&mut self, victim: usize) -> Open {
        let process = &self.processes[victim];
        let open = Open {
            replica: process.replica.clone(),
            shard: process.shard,
            num_shards: process.num_shards,
            role: process.role,
            ..self.pretence()
        };
        Open { activate: self.rng.chance(500), rejoins: true, ..open }
    }

    /// Opens a session of its own; or comes over from the server that opened it, and claims too much.
    fn come_over(&mut self, host: usize, stream: ConnectionId) {
        let Some((open, ticket)) = self.pretender.own.take_if(|_| self.rng.chance(700)) else {
            let role = if self.rng.chance(500) { Role::Trainer } else { Role::Rollout };
            let asks = Open { role, ..self.pretence() };
            self.pretender.asks = Some(asks.clone());
            return self.say(host, stream, ClientMessage::Open(asks));
        };
        let asks = Open { ticket: Some(ticket), rejoins: true, ..open };
        self.pretender.asks = Some(asks.clone());
        self.say(host, stream, ClientMessage::Open(asks));
        let version = Version { epoch: Epoch(self.number()), number: self.number() };
        let held = Holding {
            version,
            catalog: ContentDigest([1; 16]),
            sums: Some(ShardSums::default()),
            refused: false,
            withdrawn: false,
        };
        let layout = ContentDigest([9; 16]);
        let registration = Registration { layout, export: ExportId(9), bytes: 9 };
        let claims = Announcement {
            answered: OpSeq(self.number()),
            generation: Generation(self.number()),
            registration: Some(registration).filter(|_| self.rng.chance(800)),
            held: Some(held),
            retains: [held.version].into(),
        };
        self.say(host, stream, ClientMessage::Announce(claims));
    }

    fn pretence(&self) -> Open {
        let streams = self.pretender.streams;
        Open {
            protocol: PROTOCOL,
            session: self.options.session_id(mix(&[self.seed, streams, 13])),
            ticket: None,
            rejoins: false,
            model: "policy".into(),
            replica: format!("{ADDRESS}-{streams}"),
            shard: 0,
            num_shards: 1,
            role: Role::Rollout,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: Location::default(),
            data_address: ADDRESS.into(),
            activate: false,
        }
    }

    /// A server's answer reaches the pretender.
    pub(crate) fn pretender_hears(&mut self, message: &ServerMessage) {
        match message {
            ServerMessage::Opened { ticket, .. } => {
                self.pretender.own = self.pretender.asks.take().map(|asks| (asks, *ticket));
            }
            ServerMessage::Refused { retry: false, .. } => {
                self.report.points.insert(Point::PastRefused);
            }
            ServerMessage::Broken { .. } => {
                self.report.points.insert(Point::ClaimRefused);
            }
            _ => {}
        }
    }
}
