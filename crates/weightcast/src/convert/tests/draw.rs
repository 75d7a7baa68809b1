//! Messages with every field drawn at random: numbers of all sizes, and often none.

use weightcast_protocol::message::{
    Announcement, Answer, Assignment, Call, ClientMessage, EpochPolicy, Holding, Listing, Location,
    Open, ReadFailure, Registration, Role, ServerMessage, Sibling, SourceShard, Witnesses,
};
use weightcast_protocol::{
    Attempt, CallError, Condition, ContentDigest, Epoch, ExportId, Freshness, Generation,
    Incarnation, Mac, Nonce, Oldest, OpSeq, Proved, Quorum, Revision, Selector, SessionId,
    ShardSums, Span, Sum, Term, TermProof, Ticket, Version,
};

/// Numbers from a seed (splitmix64).
pub(super) struct MessageDraw(pub(super) u64);

impl MessageDraw {
    pub(super) const CLIENT_MESSAGES: u64 = 15;
    pub(super) const SERVER_MESSAGES: u64 = 17;

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One in four is none.
    pub(super) fn number(&mut self) -> u64 {
        let (of, shift) = (self.next() % 4, self.next() % 64);
        if of == 0 { 0 } else { self.next() >> shift }
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    pub(super) fn is(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }

    pub(super) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.is().then(|| make(self))
    }

    fn list<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.next() % (most + 1)).map(|_| make(self)).collect()
    }

    fn text(&mut self) -> String {
        format!("{:x}", self.number())
    }

    fn digest(&mut self) -> ContentDigest {
        let halves = [self.next(), self.next()].map(u64::to_le_bytes);
        ContentDigest(halves.concat().try_into().expect("16 bytes"))
    }

    fn mac(&mut self) -> Mac {
        Mac([self.digest().0, self.digest().0].concat().try_into().expect("32 bytes"))
    }

    fn version(&mut self) -> Version {
        Version { epoch: Epoch(self.number()), number: self.number() }
    }

    fn revision(&mut self) -> Revision {
        Revision { term: Term(self.number()), number: self.number() }
    }

    fn sum(&mut self) -> Sum {
        Sum([self.number(), self.number()])
    }

    fn sums(&mut self) -> ShardSums {
        ShardSums { counted: self.sum(), held: self.sum(), expected: self.sum() }
    }

    fn selector(&mut self) -> Selector {
        match self.next() % 5 {
            0 => Selector::Exact(self.number()),
            1 => Selector::Latest,
            2 => Selector::LatestMinus(self.number()),
            3 => Selector::NthLatest(self.number()),
            _ => Selector::AtLeast(self.number()),
        }
    }

    fn condition(&mut self) -> Condition {
        match self.next() % 3 {
            0 => Condition::Changed { after: self.revision() },
            1 => Condition::Available(self.selector()),
            _ => {
                let number = self.number();
                let oldest =
                    if self.is() { Oldest::Number(number) } else { Oldest::Behind(number) };
                let by = if self.is() { Quorum::All } else { Quorum::AtLeast(self.small()) };
                Condition::Held(Freshness { oldest, by })
            }
        }
    }

    fn ticket(&mut self) -> Ticket {
        let (term, origin) = (Term(self.number()), Term(self.number()));
        Ticket {
            proof: TermProof { term, origin, mac: self.mac() },
            incarnation: Incarnation { term: Term(self.number()), number: self.number() },
            epoch: Epoch(self.number()),
            held: self.maybe(|draw| Proved {
                version: draw.version(),
                catalog: draw.digest(),
                sum: draw.maybe(Self::sum),
            }),
            mac: self.mac(),
        }
    }

    fn open(&mut self) -> Open {
        let role = match self.next() % 4 {
            0 => Role::Trainer,
            1 => Role::Rollout,
            2 => Role::Offload(self.version()),
            _ => Role::Seed(self.version()),
        };
        Open {
            protocol: self.small(),
            session: SessionId(u128::from(self.next()) << 64 | u128::from(self.next())),
            model: self.text(),
            replica: self.text(),
            shard: self.small(),
            num_shards: self.small(),
            role,
            epoch: if self.is() { EpochPolicy::New } else { EpochPolicy::Current },
            retain: self.small(),
            offload_seeding: self.is(),
            location: Location { datacentre: self.text(), host: self.text(), spot: self.is() },
            data_address: self.text(),
            ticket: self.maybe(Self::ticket),
            rejoins: self.is(),
            activate: self.is(),
        }
    }

    fn announcement(&mut self) -> Announcement {
        Announcement {
            answered: OpSeq(self.number()),
            generation: Generation(self.number()),
            registration: self.maybe(|draw| Registration {
                layout: draw.digest(),
                export: ExportId(draw.number()),
                bytes: draw.number(),
            }),
            held: self.maybe(|draw| Holding {
                version: draw.version(),
                catalog: draw.digest(),
                sums: draw.maybe(Self::sums),
                refused: draw.is(),
                withdrawn: draw.is(),
            }),
            retains: (0..self.number() % 4).map(|_| self.version()).collect(),
        }
    }

    fn call(&mut self) -> Call {
        match self.next() % 10 {
            0 => Call::Register {
                layout: self.digest(),
                export: ExportId(self.number()),
                bytes: self.number(),
            },
            1 => Call::Unregister,
            2 => Call::Publish {
                version: self.number(),
                catalog: self.digest(),
                generation: Generation(self.number()),
            },
            3 => Call::Unpublish,
            4 => Call::Replicate { selector: self.selector() },
            5 => Call::Update {
                selector: self.selector(),
                allow_rollback: self.is(),
                staged: self.is(),
            },
            6 => Call::Describe { selector: self.selector() },
            7 => Call::List,
            8 => Call::Wait { until: self.condition() },
            _ => Call::Decline { detail: self.text() },
        }
    }

    fn failure(&mut self) -> ReadFailure {
        match self.is() {
            true => ReadFailure::Source { shard: self.small(), reason: self.text() },
            false => ReadFailure::Layout { detail: self.text() },
        }
    }

    pub(super) fn client_message(&mut self, kind: u64) -> ClientMessage {
        let (seq, attempt) = (OpSeq(self.number()), Attempt(self.number()));
        let generation = Generation(self.number());
        let deadline = Span(self.number());
        match kind {
            0 => ClientMessage::Open(self.open()),
            1 => ClientMessage::Announce(self.announcement()),
            2 => ClientMessage::Call { seq, deadline, call: self.call() },
            3 => ClientMessage::Sealed { generation, sums: self.sums() },
            4 => ClientMessage::Filling { seq, since: attempt, generation },
            5 => ClientMessage::Prepared { seq, attempt, generation, sums: self.sums() },
            6 => ClientMessage::Installed { seq, attempt, generation },
            7 => ClientMessage::ReadFailed { seq, attempt, failure: self.failure() },
            8 => {
                let (shard, bytes_per_s) = (self.small(), self.number());
                ClientMessage::Slow { seq, attempt, shard, bytes_per_s }
            }
            9 => {
                let (version, reason) = (self.version(), self.text());
                ClientMessage::OffloadFailed { version, generation, reason }
            }
            10 => ClientMessage::SeedFailed { ask: self.number() },
            11 => {
                let (nonce, sum) = (Nonce(self.number()), self.number());
                ClientMessage::Proof { generation, nonce, sum }
            }
            12 => ClientMessage::Heartbeat { sent_at: self.number() },
            13 => {
                let (sent_at, arrived, total) = (self.number(), self.number(), self.number());
                ClientMessage::Progress { sent_at, seq, attempt, arrived, total }
            }
            _ => ClientMessage::Close { deadline },
        }
    }

    pub(super) fn assignment(&mut self) -> Assignment {
        let helpers = self.list(2, Self::text);
        let each = self.next() % 4;
        let shard = |_| SourceShard {
            data_address: self.text(),
            export: ExportId(self.number()),
            generation: Generation(self.number()),
            layout: self.digest(),
        };
        let shards = (0..each * (1 + helpers.len() as u64)).map(shard).collect();
        Assignment {
            version: self.version(),
            catalog: self.digest(),
            replica: self.text(),
            in_flight: self.is(),
            staged: self.is(),
            helpers,
            shards,
        }
    }

    fn error(&mut self) -> CallError {
        let version = self.version();
        let [a, b, c] = [self.text(), self.text(), self.text()];
        match self.next() % 12 {
            0 => CallError::VersionUnavailable {
                model: a,
                selector: self.selector(),
                latest: self.maybe(Self::version),
            },
            1 => CallError::SourceLost { version, source_replica: a, reason: b },
            2 => CallError::DigestMismatch { version, source_replica: a, detail: b },
            3 => CallError::ContentMismatch { version, replica: a, detail: b },
            4 => CallError::LayoutMismatch { replica: a, detail: b },
            5 => CallError::GroupDiverged {
                replica: a,
                seq: OpSeq(self.number()),
                shard_a: self.small(),
                call_a: b,
                shard_b: self.small(),
                call_b: c,
            },
            6 => CallError::GroupBroken { replica: a, reason: b },
            7 => CallError::Timeout { call: a.clone(), waiting_for: b, detail: a },
            8 => CallError::ServerUnreachable { server: a, reason: b },
            9 => CallError::InDoubt { version },
            10 => CallError::Limit { what: a, limit: self.number(), got: self.number() },
            _ => CallError::Misuse { detail: a },
        }
    }

    fn sibling(&mut self) -> Sibling {
        Sibling {
            shard: self.next() as u32,
            host: self.next() as u32,
            data_address: self.text(),
            export: ExportId(self.number()),
        }
    }

    fn answer(&mut self) -> Answer {
        match self.next() % 8 {
            0 => Answer::Registered {
                layouts: self.list(4, Self::digest).into(),
                siblings: self.list(4, Self::sibling).into(),
            },
            1 => Answer::Unregistered,
            2 => Answer::Published { version: self.version() },
            3 => Answer::Unpublished,
            4 => Answer::Committed { version: self.version(), source: self.text() },
            5 => Answer::Unchanged { held: self.maybe(Self::version) },
            6 => Answer::Described {
                version: self.version(),
                layouts: self.list(4, Self::digest).into(),
            },
            _ => {
                let of = |draw: &mut Self| (draw.version(), draw.list(3, Self::text));
                let versions = self.list(3, of).into_iter();
                let versions = versions.map(|(version, of)| (version, of.into_iter().collect()));
                let versions = versions.collect();
                Answer::Listed(Listing { revision: self.revision(), versions }.into())
            }
        }
    }

    pub(super) fn server_message(&mut self, kind: u64) -> ServerMessage {
        let (seq, attempt) = (OpSeq(self.number()), Attempt(self.number()));
        let (generation, version) = (Generation(self.number()), self.version());
        let deadline = Span(self.number());
        match kind {
            0 => ServerMessage::Opened { ticket: self.ticket(), lease: deadline },
            1 => ServerMessage::Vouched { ticket: self.ticket() },
            2 => ServerMessage::Refused { error: self.error(), retry: self.is() },
            3 => ServerMessage::Superseded,
            4 => ServerMessage::Recovered,
            5 => {
                let (since, assignment) = (Attempt(self.number()), self.assignment());
                ServerMessage::Assigned { seq, attempt, since, assignment }
            }
            6 => ServerMessage::Install { seq, attempt, deadline },
            7 => {
                let result = if self.is() { Ok(self.answer()) } else { Err(self.error()) };
                ServerMessage::Answered { seq, result }
            }
            8 => ServerMessage::Sealed { generation },
            9 => {
                let copy = self.maybe(Self::assignment);
                let witnesses = Witnesses { copy, holder: self.maybe(Self::assignment) };
                let error = self.error();
                ServerMessage::Fenced { generation, error, witnesses: witnesses.into() }
            }
            10 => ServerMessage::Offload { version, generation },
            11 => ServerMessage::Seed { version, ask: self.number(), deadline },
            12 => ServerMessage::Challenge { generation, nonce: Nonce(self.number()) },
            13 => ServerMessage::Release { deadline },
            14 => ServerMessage::Broken { error: self.error() },
            15 => ServerMessage::HeartbeatAck { sent_at: self.number() },
            _ => ServerMessage::Closed,
        }
    }
}
