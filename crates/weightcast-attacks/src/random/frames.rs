//! Frames at random: half of them are such as a client in the same state would send.

use std::time::Duration;

use anyhow::Result;

use crate::attacker::control::{ControlClient, RogueStream, open};
use crate::attacker::forge::{Dice, random};
use crate::attacker::wire::call::Call as C;
use crate::attacker::wire::client_frame::Body as Ask;
use crate::attacker::wire::read_failed::Failure;
use crate::attacker::wire::selector::Kind;
use crate::attacker::wire::server_frame::Body as Told;
use crate::attacker::wire::wait::Until;
use crate::attacker::wire::{
    Announce, Assigned, Call, Close, Decline, Describe, Filling, GetManifestRequest, Heartbeat,
    Held, Holding, Incarnation, Installed, LayoutFailure, LetGo, List, OffloadFailed, Open, Opened,
    Prepared, ProbeRequest, ProgressReport, Proved, Publish, ReadFailed, Register, Replicate,
    Retain, Role, Sealed, SeedFailed, Selector, ShardSums, SourceFailure, Sum, Ticket, Unpublish,
    Unregister, Update, Version, Wait,
};

/// How long an open may take to be answered.
const ANSWER: Duration = Duration::from_secs(1);
const MODELS: [&str; 3] = ["r0", "r1", "r2"];
const REPLICAS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Speaks on one stream after another.
pub(super) struct Speaker {
    dice: Dice,
    stream: Option<RogueStream>,
    /// Of the session that was opened last.
    opened: Option<(Open, Opened)>,
    mine: Option<Open>,
    assigned: Option<Assigned>,
    seq: u64,
    generation: u64,
}

impl Speaker {
    pub(super) fn new(dice: Dice) -> Self {
        Self { dice, stream: None, opened: None, mine: None, assigned: None, seq: 0, generation: 1 }
    }

    /// Sends one more frame. Whether the stream took the frame: the server may have ended the stream.
    pub(super) fn speak(&mut self, control: &ControlClient) -> Result<bool> {
        let over = self.stream.as_ref().is_none_or(RogueStream::is_over);
        if over || self.dice.one_in(200) {
            return self.begin(control);
        }
        self.listen();
        let frame = self.frame();
        Ok(self.say(frame))
    }

    /// Begins a new stream. Mostly the answer to the first message, an `Open`, is waited for.
    fn begin(&mut self, control: &ControlClient) -> Result<bool> {
        self.stream = Some(control.stream()?);
        let open = self.open();
        let taken = self.say(Ask::Open(open));
        if !self.dice.one_in(10) {
            let answered = |told| match told {
                Told::Opened(opened) => Some(Some(opened)),
                Told::Refused(_) | Told::Superseded(_) => Some(None),
                _ => None,
            };
            let answer = self.stream.as_ref().and_then(|s| s.wait(ANSWER, answered).ok());
            match answer.flatten() {
                Some(opened) => self.opened = self.mine.clone().map(|open| (open, opened)),
                // A refused session gets no further on this stream.
                None => self.stream = None,
            }
        }
        Ok(taken)
    }

    /// Sends a message. If the server has ended the stream, the next message goes out on a new one.
    fn say(&mut self, body: Ask) -> bool {
        if let Ask::Open(open) = &body {
            self.mine = Some(open.clone());
            (self.seq, self.assigned) = (0, None);
        }
        let taken = self.stream.as_ref().is_some_and(|stream| stream.say(body).is_ok());
        if !taken {
            self.stream = None;
        }
        taken
    }

    fn listen(&mut self) {
        let Some(stream) = &self.stream else { return };
        for told in stream.heard() {
            match told {
                Told::Opened(opened) => {
                    self.opened = self.mine.clone().map(|open| (open, opened));
                }
                Told::Vouched(vouched) => {
                    if let Some((_, opened)) = &mut self.opened {
                        opened.ticket = vouched.ticket;
                    }
                }
                Told::Assigned(assigned) => self.assigned = Some(assigned),
                _ => {}
            }
        }
    }

    fn open(&mut self) -> Open {
        let dice = &mut self.dice;
        // The last session on another stream, or a session that was opened before, or a new one.
        if let Some((open, opened)) = &self.opened
            && !dice.one_in(3)
        {
            let mut open = open.clone();
            if dice.one_in(2) {
                (open.ticket, open.rejoins) = (opened.ticket.clone(), !dice.one_in(4));
            }
            if dice.one_in(2) {
                open.session = random::<16>().to_vec();
            }
            if dice.one_in(4)
                && let Some(ticket) = &mut open.ticket
            {
                distort(dice, ticket);
            }
            return open;
        }
        let role = dice.pick(&[
            Role::Trainer,
            Role::Trainer,
            Role::Rollout,
            Role::Rollout,
            Role::Rollout,
            Role::Offload,
            Role::Seed,
        ]);
        let num_shards = 1 + dice.below(2) as u32;
        let mut made = open(dice.pick(&MODELS), dice.pick(&REPLICAS), role);
        made.num_shards = num_shards;
        made.shard = dice.below(u64::from(num_shards)) as u32;
        made.new_epoch = dice.one_in(4);
        made.datacentre = dice.pick(&["", "x", "y"]).to_owned();
        made.spot = dice.one_in(4);
        made.retain = dice.below(3) as u32;
        made.offload_seeding = dice.one_in(4);
        made.offload = Some(self.version());
        let dice = &mut self.dice;
        if dice.one_in(6) {
            let mut ticket = Ticket::default();
            distort(dice, &mut ticket);
            (made.ticket, made.rejoins) = (Some(ticket), dice.one_in(2));
        }
        if dice.one_in(40) {
            made.protocol = dice.number() as u32;
        }
        made
    }

    fn version(&mut self) -> Version {
        Version { epoch: self.dice.number(), number: self.dice.number() }
    }

    fn sums(&mut self) -> Option<ShardSums> {
        let sum = Some(Sum { low: self.dice.below(2), high: 0 });
        if self.dice.one_in(5) {
            return Some(ShardSums { counted: sum, held: None, expected: sum });
        }
        Some(ShardSums { counted: sum, held: sum, expected: sum })
    }

    fn selector(&mut self) -> Option<Selector> {
        let number = self.dice.number();
        let kind = match self.dice.below(5) {
            0 => Kind::Exact(number),
            1 => Kind::Latest(true),
            2 => Kind::LatestMinus(number),
            3 => Kind::NthLatest(number),
            _ => Kind::AtLeast(number),
        };
        (!self.dice.one_in(50)).then_some(Selector { kind: Some(kind) })
    }

    fn digest(&mut self) -> Vec<u8> {
        vec![self.dice.below(3) as u8; 16]
    }

    /// Number of a call, and of an assignment: mostly those of the last assignment.
    fn place(&mut self) -> (u64, u64) {
        match &self.assigned {
            Some(assigned) if !self.dice.one_in(4) => (assigned.seq, assigned.attempt),
            _ => (self.dice.below(4), self.dice.below(4)),
        }
    }

    fn generation(&mut self) -> u64 {
        match self.dice.below(4) {
            0 => self.dice.number(),
            1 => {
                self.generation += 1;
                self.generation
            }
            _ => self.generation,
        }
    }

    fn frame(&mut self) -> Ask {
        let generation = self.generation();
        match self.dice.below(20) {
            0 if self.dice.one_in(2) => {
                let (seq, attempt) = self.place();
                let (arrived, total) = (self.dice.number(), self.dice.number());
                let progress = Some(ProgressReport { seq, attempt, arrived, total });
                Ask::Heartbeat(Heartbeat { sent_at: self.dice.number(), progress })
            }
            0 => Ask::Heartbeat(Heartbeat { sent_at: self.dice.number(), progress: None }),
            1 => Ask::Announce(self.announce(generation)),
            2 | 3 => Ask::Sealed(Sealed { generation, sums: self.sums() }),
            4 | 5 => {
                let (seq, attempt) = self.place();
                Ask::Prepared(Prepared { seq, attempt, generation, sums: self.sums() })
            }
            6 => {
                let (seq, since) = self.place();
                Ask::Filling(Filling { seq, since, generation })
            }
            7 => {
                let (seq, attempt) = self.place();
                Ask::Installed(Installed { seq, attempt, generation })
            }
            8 => Ask::ReadFailed(self.read_failed()),
            9 if self.dice.one_in(2) => Ask::OffloadFailed(OffloadFailed {
                version: Some(self.version()),
                reason: "at random".to_owned(),
                generation,
            }),
            9 => Ask::SeedFailed(SeedFailed { ask: self.dice.number() }),
            10 if self.dice.one_in(5) => Ask::Close(Close { deadline_ns: self.deadline() }),
            11 if self.dice.one_in(5) => Ask::Open(self.open()),
            _ => Ask::Call(self.call(generation)),
        }
    }

    fn deadline(&mut self) -> u64 {
        match self.dice.below(6) {
            0 => self.dice.number(),
            _ => self.dice.below(2_000) * 1_000_000,
        }
    }

    fn announce(&mut self, generation: u64) -> Announce {
        let held = Holding {
            version: Some(self.version()),
            catalog: self.digest(),
            sums: self.sums(),
            refused: self.dice.one_in(6),
            withdrawn: self.dice.one_in(6),
        };
        let registration = Register { layout: self.digest(), export: 1, bytes: self.dice.number() };
        Announce {
            answered: self.dice.number(),
            generation,
            registration: (!self.dice.one_in(3)).then_some(registration),
            held: (!self.dice.one_in(3)).then_some(held),
            retains: (0..self.dice.below(80)).map(|_| self.version()).collect(),
        }
    }

    fn read_failed(&mut self) -> ReadFailed {
        let (seq, attempt) = self.place();
        let failure = match self.dice.below(3) {
            0 => Failure::Layout(LayoutFailure { detail: "at random".to_owned() }),
            _ => Failure::Source(SourceFailure {
                shard: self.dice.number() as u32,
                reason: "at random".to_owned(),
            }),
        };
        ReadFailed { seq, attempt, failure: Some(failure) }
    }

    fn call(&mut self, generation: u64) -> Call {
        let seq = match self.dice.below(12) {
            0 => self.dice.number(),
            1 => self.seq,
            _ => {
                self.seq += 1;
                self.seq
            }
        };
        let call = match self.dice.below(16) {
            0..=2 => C::Register(Register {
                layout: self.digest(),
                export: self.dice.next(),
                bytes: self.dice.number(),
            }),
            3 if self.dice.one_in(3) => C::Unregister(Unregister {}),
            3..=5 => C::Publish(Publish {
                version: self.dice.number(),
                catalog: self.digest(),
                generation,
            }),
            6 => C::Unpublish(Unpublish {}),
            7 => C::Replicate(Replicate { selector: self.selector() }),
            8 | 9 => C::Update(Update {
                selector: self.selector(),
                allow_rollback: self.dice.one_in(2),
                staged: self.dice.one_in(3),
            }),
            10 => C::Describe(Describe { selector: self.selector() }),
            11 => C::List(List {}),
            12 => C::Wait(Wait { until: self.until() }),
            13 => C::Retain(Retain { selector: self.selector() }),
            14 => C::LetGo(LetGo { version: self.dice.number() }),
            _ => C::Decline(Decline { detail: "at random".to_owned() }),
        };
        let call = (!self.dice.one_in(60)).then_some(call);
        Call { seq, deadline_ns: self.deadline(), call }
    }

    fn until(&mut self) -> Option<Until> {
        use crate::attacker::wire::held::Oldest;
        let number = self.dice.number();
        Some(match self.dice.below(3) {
            0 => Until::After(crate::attacker::wire::Revision {
                term: number,
                number: self.dice.number(),
            }),
            1 => Until::Available(self.selector()?),
            _ => Until::Held(Held {
                oldest: Some(if self.dice.one_in(2) {
                    Oldest::Number(number)
                } else {
                    Oldest::Behind(number)
                }),
                rollouts: self.dice.one_in(2).then(|| self.dice.number() as u32),
            }),
        })
    }
}

/// Changes a ticket, true or not, somewhere.
fn distort(dice: &mut Dice, ticket: &mut Ticket) {
    let proof = ticket.proof.get_or_insert_default();
    match dice.below(6) {
        0 => proof.term = dice.number(),
        1 => proof.origin = dice.number(),
        2 => {
            let incarnation = Incarnation { term: proof.term, number: dice.number() };
            ticket.incarnation = Some(incarnation);
        }
        3 => ticket.epoch = dice.number(),
        4 => {
            let version = Some(Version { epoch: dice.number(), number: dice.number() });
            ticket.held = Some(Proved { version, catalog: vec![1; 16], sum: None });
        }
        _ => ticket.mac = vec![dice.below(2) as u8; dice.pick(&[32, 32, 0, 31])],
    }
    if proof.mac.is_empty() && !dice.one_in(4) {
        proof.mac = vec![0; 32];
        ticket.mac = vec![0; 32];
    }
}

/// Makes one of the requests that need no stream. The answer does not matter.
pub(super) fn call_at_random(control: &ControlClient, dice: &mut Dice) {
    let mut rpc = control.rpc.clone();
    match dice.below(6) {
        0 => drop(control.status()),
        1 | 2 => drop(control.inspect(dice.pick(&MODELS), dice.pick(&REPLICAS), None)),
        3 => {
            // The same few manifests again and again, because the server keeps each for an hour.
            let which = dice.below(50);
            let size = if which.is_multiple_of(20) { 1 << 20 } else { which };
            let bytes = crate::attacker::forge::pattern(which, size as usize);
            drop(control.put_manifest(&bytes));
        }
        4 => {
            let digest = vec![dice.below(3) as u8; dice.pick(&[16, 16, 16, 0, 17])];
            drop(crate::attacker::runtime::run(rpc.get_manifest(GetManifestRequest { digest })));
        }
        // Terms of the past, and terms that can't be.
        _ => {
            let mut ticket = Ticket::default();
            distort(dice, &mut ticket);
            drop(crate::attacker::runtime::run(rpc.probe(ProbeRequest { proof: ticket.proof })));
        }
    }
}
