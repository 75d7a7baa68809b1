//! Well-formed frames without sense, at paranoid servers that fail over and start anew: no death, and
//! nothing left in the end. Half of the sessions keep to the protocol, so that there is something to
//! break; the tickets that they are given go into a pool from which anybody may show any.
//!
//! `WEIGHTCAST_RANDOM_ROUNDS` plays more rounds than the tests do.

use crate::cluster::version;
use crate::pinned::Course;
use std::collections::BTreeMap;

use weightcast_protocol::message::{
    Announcement, Answer, Call, ClientMessage, EpochPolicy, Holding, Open, ReadFailure,
    Registration, Role, ServerMessage,
};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::{
    Attempt, Condition, ConnectionId, ContentDigest, Epoch, ExportId, Generation, Incarnation,
    OpSeq, PROTOCOL, Revision, Selector, SessionId, ShardSums, Span, Sum, Term, TermProof, Ticket,
    Time, Version,
};

const ROUNDS: u64 = 300;
const FRAMES: usize = 2_000;
const SERVERS: usize = 2;
const STREAMS: u64 = 8;
/// Tickets that are remembered: new ones take the place of any.
const TICKETS: usize = 32;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A small number mostly, sometimes one at the end of the range.
    fn number(&mut self) -> u64 {
        match self.below(20) {
            0 => u64::MAX,
            1 => u64::MAX - 1,
            2 => 1 << 62,
            3 => self.next(),
            _ => self.below(4),
        }
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize].clone())
    }
}

/// What a stream has opened, and what it was told.
#[derive(Clone, Debug, Default)]
struct Talk {
    open: Option<Open>,
    server: usize,
    seq: u64,
    pending: bool,
    attempt: Attempt,
    held: Option<Version>,
}

struct Round {
    rng: Rng,
    now: Time,
    servers: Vec<Server>,
    lives: u64,
    talks: BTreeMap<u64, Talk>,
    tickets: Vec<(Open, Ticket)>,
    course: Course,
}

impl Round {
    fn new(seed: u64) -> Self {
        let mut round = Self {
            rng: Rng(seed),
            now: Time(0),
            servers: Vec::new(),
            lives: 0,
            talks: BTreeMap::new(),
            tickets: Vec::new(),
            course: Course::default(),
        };
        round.servers = (0..SERVERS).map(|index| round.start(index)).collect();
        round
    }

    fn start(&mut self, index: usize) -> Server {
        self.lives += 1;
        let config = ServerConfig {
            index: index as u32,
            life: self.rng.next(),
            paranoid: true,
            stripes: 2,
            ..ServerConfig::default()
        };
        Server::new(config)
    }

    fn play(&mut self) {
        for frame in 0..FRAMES {
            match self.rng.below(100) {
                0 if self.rng.chance(25) => {
                    let server = self.rng.below(SERVERS as u64) as usize;
                    self.servers[server] = self.start(server);
                }
                1..4 => self.pass(),
                4 => self.probe(),
                5 => {
                    let stream = self.rng.below(STREAMS);
                    let server = self.talk(stream).server;
                    self.servers[server].handle_disconnect(self.now, ConnectionId(stream));
                }
                _ => self.say(),
            }
            (0..SERVERS).for_each(|server| self.hear(server));
            if frame % 100 == 0 {
                let now = self.now;
                self.servers.iter().for_each(|server| self.course.note(&server.snapshot(now)));
            }
        }
        self.fall_quiet();
        self.course.end();
    }

    fn talk(&mut self, stream: u64) -> &mut Talk {
        self.talks.entry(stream).or_default()
    }

    fn pass(&mut self) {
        // Mostly everybody renews the lease before.
        if self.rng.chance(85) {
            for (stream, talk) in &self.talks {
                let beat = ClientMessage::Heartbeat { sent_at: 0 };
                self.servers[talk.server].handle(self.now, ConnectionId(*stream), beat);
            }
        }
        let millis = self.rng.below(3_000);
        self.now = self.now + Span::from_millis(millis);
        for server in &mut self.servers {
            server.handle_timeout(self.now);
        }
    }

    fn probe(&mut self) {
        let server = self.rng.below(SERVERS as u64) as usize;
        let before = self.servers[server].term();
        let shown = self.rng.pick(&self.tickets).filter(|_| self.rng.chance(50));
        let made_up = TermProof { term: Term(self.rng.number()), ..TermProof::default() };
        let proof = shown.map_or(made_up, |(_, ticket)| ticket.proof);
        self.servers[server].handle_probe(self.now, proof);
        if shown_nothing(&proof) {
            assert_eq!(self.servers[server].term(), before, "a term that nobody proved");
        }
    }

    fn say(&mut self) {
        let stream = self.rng.below(STREAMS);
        let message = if self.talk(stream).open.is_none() || self.rng.chance(2) {
            ClientMessage::Open(self.opening(stream))
        } else {
            self.message(stream)
        };
        if let ClientMessage::Open(open) = &message {
            let any = self.rng.below(SERVERS as u64) as usize;
            let acts = |server: &usize| self.servers[*server].term() > Term(0);
            let acting = (0..SERVERS).find(acts).filter(|_| self.now.0 % 10 > 1);
            let server = acting.unwrap_or(any);
            let talk = self.talk(stream);
            let left = std::mem::replace(&mut talk.server, server);
            (talk.open, talk.pending) = (Some(open.clone()), false);
            if !open.rejoins {
                (talk.seq, talk.held) = (0, None);
            }
            if left != server {
                self.servers[left].handle_disconnect(self.now, ConnectionId(stream));
            }
        }
        let server = self.talk(stream).server;
        self.servers[server].handle(self.now, ConnectionId(stream), message);
    }

    fn opening(&mut self, stream: u64) -> Open {
        let rng = &mut self.rng;
        let shown = rng.pick(&self.tickets).filter(|_| rng.chance(50));
        let version = version(rng.below(2), rng.below(3));
        let role = match rng.below(10) {
            0 => Role::Offload(version),
            1 => Role::Seed(version),
            _ if stream < 3 => Role::Trainer,
            _ => Role::Rollout,
        };
        let num_shards = 1 + u32::from(rng.chance(10));
        let epoch = if rng.chance(30) { EpochPolicy::New } else { EpochPolicy::Current };
        let fresh = Open {
            protocol: PROTOCOL,
            session: SessionId(u128::from(rng.below(1 << 20) * STREAMS + stream) << 64),
            ticket: None,
            rejoins: rng.chance(10),
            model: "policy".into(),
            replica: format!(
                "replica-{}",
                if rng.chance(90) { stream } else { rng.below(STREAMS) }
            ),
            shard: rng.below(num_shards.into()) as u32,
            num_shards,
            role,
            epoch,
            retain: rng.below(3) as u32,
            offload_seeding: rng.chance(20),
            location: Default::default(),
            data_address: "host:1".into(),
            activate: rng.chance(80),
        };
        match shown {
            None => fresh,
            // Mostly whose it is.
            Some((open, ticket)) if rng.chance(80) => {
                let rejoins = rng.chance(90);
                Open { ticket: Some(ticket), rejoins, activate: true, ..open }
            }
            Some((_, ticket)) if rng.chance(50) => {
                Open { ticket: Some(ticket), rejoins: true, ..fresh }
            }
            Some((open, ticket)) => {
                let ticket = Some(spoiled(rng, ticket));
                Open { ticket, rejoins: true, ..open }
            }
        }
    }

    fn message(&mut self, stream: u64) -> ClientMessage {
        let talk = self.talk(stream).clone();
        let rng = &mut self.rng;
        let wrong = rng.chance(1);
        let next = if talk.pending { talk.seq } else { talk.seq.saturating_add(1) };
        let seq = OpSeq(if wrong { rng.number() } else { next });
        let current = OpSeq(if wrong { rng.number() } else { talk.seq });
        let attempt = if wrong { Attempt(rng.number()) } else { talk.attempt };
        let generation = Generation(if wrong { rng.number() } else { 1 });
        let deadline = Span(if wrong { rng.number() } else { 2_000_000_000 });
        match rng.below(100) {
            _ if talk.seq == 0 && !wrong => {
                let Registration { layout, export, bytes } = registration(rng);
                let call = Call::Register { layout, export, bytes };
                let talk = self.talk(stream);
                (talk.seq, talk.pending) = (1, true);
                ClientMessage::Call { seq: OpSeq(1), deadline, call }
            }
            0..45 if !talk.pending || wrong => {
                let call = call(rng);
                let talk = self.talk(stream);
                (talk.seq, talk.pending) = (seq.0, true);
                ClientMessage::Call { seq, deadline, call }
            }
            0..60 => ClientMessage::Prepared { seq: current, attempt, generation, sums: sums(rng) },
            60..65 => ClientMessage::Filling { seq: current, since: attempt, generation },
            65..70 => ClientMessage::Installed { seq: current, attempt, generation },
            70..75 => ClientMessage::Sealed { generation, sums: sums(rng) },
            75..77 => {
                let reason = String::new();
                let shard = rng.number() as u32;
                let failure = ReadFailure::Source { shard, reason };
                ClientMessage::ReadFailed { seq: current, attempt, failure }
            }
            77 => {
                let failure = ReadFailure::Layout { detail: String::new() };
                ClientMessage::ReadFailed { seq: current, attempt, failure }
            }
            78..84 => ClientMessage::Announce(announcement(rng, &talk)),
            84..86 => {
                let version = version(rng.below(2), rng.below(3));
                ClientMessage::OffloadFailed { version, generation, reason: String::new() }
            }
            86 => ClientMessage::SeedFailed { ask: rng.number() },
            87 if rng.chance(20) => ClientMessage::Close { deadline },
            _ => {
                let sent_at = rng.next();
                let (arrived, total) = (sent_at, sent_at.rotate_left(32));
                match sent_at % 2 {
                    0 => ClientMessage::Heartbeat { sent_at },
                    _ => ClientMessage::Progress { sent_at, seq: current, attempt, arrived, total },
                }
            }
        }
    }

    fn hear(&mut self, server: usize) {
        while let Some(output) = self.servers[server].poll_output() {
            self.course.note(&(server, &output));
            let ServerOutput::Send { to, message } = output else { continue };
            let Some(talk) = self.talks.get_mut(&to.0) else { continue };
            match message {
                ServerMessage::Opened { ticket, .. } | ServerMessage::Vouched { ticket } => {
                    let Some(open) = talk.open.clone() else { continue };
                    if self.tickets.len() < TICKETS {
                        self.tickets.push((open, ticket));
                    } else {
                        let place = self.rng.below(TICKETS as u64) as usize;
                        self.tickets[place] = (open, ticket);
                    }
                }
                ServerMessage::Assigned { attempt, .. } => talk.attempt = attempt,
                ServerMessage::Answered { seq, result } if seq.0 == talk.seq => {
                    talk.pending = false;
                    match result {
                        Ok(Answer::Published { version } | Answer::Committed { version, .. }) => {
                            talk.held = Some(version);
                        }
                        Ok(Answer::Unpublished) => talk.held = None,
                        _ => {}
                    }
                }
                ServerMessage::Refused { .. } | ServerMessage::Broken { .. } => talk.open = None,
                _ => {}
            }
        }
    }

    /// With nobody there any more, all of it ends with the leases.
    fn fall_quiet(&mut self) {
        for server in &mut self.servers {
            for _ in 0..2_000 {
                let Some(due) = server.next_timeout() else { break };
                server.handle_timeout(due);
                while server.poll_output().is_some() {}
            }
            assert_eq!(server.next_timeout(), None, "timers without end");
            assert_eq!(server.snapshot(Time(u64::MAX)).sessions, 0);
            let steps = server.term().step();
            assert!(steps <= FRAMES as u64, "{steps} steps: a term from nowhere");
        }
    }
}

fn shown_nothing(proof: &TermProof) -> bool {
    *proof == TermProof { term: proof.term, ..TermProof::default() }
}

/// A ticket of which one thing is another.
fn spoiled(rng: &mut Rng, ticket: Ticket) -> Ticket {
    let number = rng.number();
    let mut spoiled = ticket;
    match rng.below(6) {
        0 => spoiled.proof.term = Term(number),
        1 => spoiled.proof.origin = Term(number),
        2 => spoiled.incarnation = Incarnation { number, ..ticket.incarnation },
        3 => spoiled.epoch = Epoch(number),
        4 => spoiled.held = None,
        _ => spoiled.mac.0[0] ^= 1,
    }
    spoiled
}

fn sums(rng: &mut Rng) -> ShardSums {
    let sum = Sum([rng.below(20) / 19, 0]);
    ShardSums { counted: sum, held: sum, expected: sum }
}

fn registration(rng: &mut Rng) -> Registration {
    let layout = ContentDigest([rng.below(2) as u8; 16]);
    Registration { layout, export: ExportId(rng.next()), bytes: rng.number() }
}

fn announcement(rng: &mut Rng, talk: &Talk) -> Announcement {
    let lies = rng.chance(20);
    let version = Version { epoch: Epoch(rng.number()), number: rng.number() };
    let version = if lies { Some(version) } else { talk.held };
    let held = version.map(|version| Holding {
        version,
        catalog: ContentDigest([1; 16]),
        sums: rng.chance(80).then(|| sums(rng)),
        refused: rng.chance(5),
        withdrawn: rng.chance(5),
    });
    let kept = |number| crate::cluster::version(0, number);
    let answered = if talk.pending { talk.seq.saturating_sub(1) } else { talk.seq };
    Announcement {
        answered: OpSeq(if lies { rng.number() } else { answered }),
        generation: Generation(2),
        registration: (!lies || rng.chance(50)).then(|| registration(rng)),
        held,
        retains: (0..rng.below(if lies { 80 } else { 2 })).map(kept).collect(),
    }
}

fn selector(rng: &mut Rng) -> Selector {
    match rng.below(5) {
        0 => Selector::Exact(rng.number()),
        1 => Selector::LatestMinus(rng.number()),
        2 => Selector::NthLatest(rng.number()),
        3 => Selector::AtLeast(rng.number()),
        _ => Selector::Latest,
    }
}

fn call(rng: &mut Rng) -> Call {
    match rng.below(20) {
        0 => {
            let Registration { layout, export, bytes } = registration(rng);
            Call::Register { layout, export, bytes }
        }
        1 => Call::Unregister,
        2..10 => {
            let version = if rng.chance(90) { rng.below(3) } else { rng.number() };
            let catalog = ContentDigest([1; 16]);
            Call::Publish { version, catalog, generation: Generation(1) }
        }
        10..12 => Call::Unpublish,
        12..14 => Call::Replicate { selector: selector(rng) },
        14..17 => {
            let (allow_rollback, staged) = (rng.chance(30), rng.chance(30));
            Call::Update { selector: selector(rng), allow_rollback, staged }
        }
        17 => Call::Describe { selector: selector(rng) },
        18 => Call::Wait {
            until: Condition::Changed {
                after: Revision { term: Term(rng.number()), number: rng.number() },
            },
        },
        _ if rng.chance(50) => Call::List,
        _ => Call::Decline { detail: "no".into() },
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a test may be asked for more; the crate may not ask"
)]
fn frames_without_sense_kill_no_server() {
    let rounds = std::env::var("WEIGHTCAST_RANDOM_ROUNDS").ok();
    let rounds = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let (mut takeovers, mut recoveries, mut commits, mut publishes) = (0, 0, 0, 0);
    for seed in 0..rounds {
        let mut round = Round::new(seed);
        let play = std::panic::AssertUnwindSafe(|| round.play());
        if let Err(panic) = std::panic::catch_unwind(play) {
            eprintln!("in round {seed}");
            std::panic::resume_unwind(panic);
        }
        for server in &round.servers {
            let counters = server.snapshot(round.now).counters;
            takeovers += counters.terms;
            recoveries += counters.recoveries;
            commits += counters.commits;
            publishes += counters.publishes;
        }
    }
    // It got somewhere.
    println!(
        "{takeovers} terms, {recoveries} recoveries, {publishes} publishes, {commits} commits"
    );
    assert!(takeovers > rounds && publishes > rounds / 4 && recoveries > rounds, "too tame");
    assert!(commits > 0, "too tame");
}
