//! Whatever comes, in whatever order: what a session asks for makes sense, in the order in which it
//! asks for it.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use weightcast_protocol::message::Witnesses;
use weightcast_protocol::session::ReadProgress;
use weightcast_protocol::{Nonce, Version};

const CASES: u64 = 500;
const STEPS: usize = 250;

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn version(&mut self) -> Version {
        version(1, 1 + self.below(3))
    }

    fn error(&mut self) -> CallError {
        let text = || "it".to_owned();
        match self.below(60) {
            0 => CallError::GroupBroken { replica: text(), reason: text() },
            1..20 => CallError::ContentMismatch {
                version: self.version(),
                replica: text(),
                detail: text(),
            },
            20..30 => CallError::Misuse { detail: text() },
            _ => CallError::Timeout { call: text(), waiting_for: text(), detail: text() },
        }
    }
}

/// What is known from outside of what a session does.
#[derive(Default)]
struct World {
    /// The call that was made last, and what it was.
    seq: OpSeq,
    call: Option<Call>,
    /// The last assignment and with which its read began.
    attempt: u64,
    since: u64,
    term: u64,
    /// What its stream and its server have to say to what it has said.
    due: VecDeque<Input>,
}

impl World {
    fn hear(&mut self, output: &Output) {
        let answer = match output {
            Output::Connect { .. } => {
                self.due.clear();
                return self.due.push_back(Input::of(|session, now| session.handle_connected(now)));
            }
            Output::Send(ClientMessage::Open(_)) => opened(self.term.max(1)),
            Output::Send(ClientMessage::Announce(_)) => ServerMessage::Recovered,
            Output::Send(ClientMessage::Heartbeat { sent_at }) => {
                ServerMessage::HeartbeatAck { sent_at: *sent_at }
            }
            _ => return,
        };
        let input = move |session: &mut Session, now| session.handle_message(now, answer.clone());
        self.due.push_back(Input::of(input));
    }
}

type Heard = dyn Fn(&mut Session, Time);

/// What comes next.
enum Input {
    Call(Call, Span),
    Read(OpSeq, Attempt, bool),
    Installed(OpSeq, Attempt),
    Other(Box<Heard>),
}

impl Input {
    fn of(input: impl Fn(&mut Session, Time) + 'static) -> Self {
        Self::Other(Box::new(input))
    }

    /// The session hears of it; the number of a call that it makes.
    fn come(&self, session: &mut Session, now: Time) -> Option<OpSeq> {
        match self {
            Self::Call(call, deadline) => return session.call(now, call.clone(), *deadline).ok(),
            Self::Read(seq, attempt, true) => session.handle_read(now, *seq, *attempt, Ok(sums(7))),
            Self::Read(seq, attempt, false) => {
                let failure = ReadFailure::Source { shard: 0, reason: "lost".into() };
                session.handle_read(now, *seq, *attempt, Err(failure));
            }
            Self::Installed(seq, attempt) => session.handle_installed(now, *seq, *attempt),
            Self::Other(input) => input(session, now),
        }
        None
    }
}

fn message(
    dice: &mut Dice,
    world: &mut World,
    runtime: &Runtime,
    session: &Session,
) -> ServerMessage {
    // Mostly of what is going on, else of what was or will be.
    let seq = OpSeq(world.seq.0 + dice.below(12) / 11);
    let generation = Generation(session.generation().0 - dice.below(8) / 7);
    let version = match session.version() {
        Some(version) if dice.below(4) > 0 => version,
        _ => dice.version(),
    };
    match dice.below(40) {
        0..5 => {
            world.term += dice.below(9) / 8;
            opened(world.term.max(1))
        }
        5 if dice.below(5) == 0 => ServerMessage::Superseded,
        6 => ServerMessage::Refused { error: dice.error(), retry: dice.below(9) > 0 },
        7 | 8 => ServerMessage::Recovered,
        9..18 if runtime.beside && dice.below(3) > 0 => {
            let (attempt, deadline) = (Attempt(world.attempt), DEADLINE);
            ServerMessage::Install { seq, attempt, deadline }
        }
        9..18 => {
            world.attempt = (world.attempt + dice.below(6).min(1)).max(1);
            if world.since == 0 || dice.below(2) == 0 {
                world.since = world.attempt;
            }
            let staged = match &world.call {
                Some(Call::Replicate { .. }) => false,
                Some(Call::Update { staged, .. }) => *staged,
                _ => return ServerMessage::Recovered,
            };
            let (attempt, since) = (Attempt(world.attempt), Attempt(world.since));
            let assignment = assignment(1 + dice.below(2), staged);
            ServerMessage::Assigned { seq, attempt, since, assignment }
        }
        18..21 => {
            let (attempt, deadline) = (Attempt(world.attempt), DEADLINE);
            ServerMessage::Install { seq, attempt, deadline }
        }
        21..29 => {
            let answer = match &world.call {
                _ if dice.below(3) == 0 => Err(dice.error()),
                Some(Call::Publish { .. }) => Ok(Answer::Published { version }),
                Some(Call::Unpublish) => Ok(Answer::Unpublished),
                _ if !runtime.prepared => Ok(Answer::Unchanged { held: session.version() }),
                _ => Ok(Answer::Committed { version, source: "source".into() }),
            };
            ServerMessage::Answered { seq, result: answer }
        }
        29 => ServerMessage::Sealed { generation },
        30 if session.version().is_some() => {
            let witnesses = Box::new(Witnesses::default());
            ServerMessage::Fenced { generation, error: dice.error(), witnesses }
        }
        31 | 32 => ServerMessage::Offload { version, generation },
        33 | 34 => ServerMessage::Seed { version, ask: dice.below(3), deadline: DEADLINE },
        35 | 36 => ServerMessage::Challenge { generation, nonce: Nonce(dice.below(9)) },
        37 if dice.below(90) == 0 => ServerMessage::Release { deadline: DEADLINE },
        37 if dice.below(90) == 0 => ServerMessage::Broken { error: dice.error() },
        37 if dice.below(90) == 0 => ServerMessage::Closed,
        _ => ServerMessage::Vouched { ticket: ticket(world.term.max(1)) },
    }
}

fn call(dice: &mut Dice) -> Call {
    match dice.below(6) {
        0 => cluster::publish(1 + dice.below(3)),
        1 => Call::Unpublish,
        2 => replicate(Selector::Latest),
        3 => Call::List,
        _ => {
            let (selector, staged) = (Selector::Latest, dice.below(2) == 0);
            Call::Update { selector, allow_rollback: false, staged }
        }
    }
}

fn input(dice: &mut Dice, world: &mut World, runtime: &Runtime, session: &Session) -> Input {
    if dice.below(6) > 0
        && let Some(input) = world.due.pop_front()
    {
        return input;
    }
    let generation = Generation(session.generation().0 - dice.below(8) / 7);
    let (seq, attempt) = match runtime.reads.or(runtime.installs) {
        Some(runs) => runs,
        None => (world.seq, Attempt(world.attempt)),
    };
    match dice.below(40) {
        0..3 => Input::of(|session, now| session.handle_timeout(now)),
        3 => Input::of(|session, now| session.handle_connected(now)),
        4 if dice.below(4) == 0 => Input::of(|session, now| session.handle_disconnected(now)),
        8..12 => Input::Call(call(dice), Span::from_secs(1 + dice.below(20))),
        12 if dice.below(40) == 0 => Input::of(|session, now| session.close(now, SECOND)),
        13 => Input::of(move |session, now| session.handle_sealed(now, generation, sums(7))),
        14 | 15 => {
            let nonce = Nonce(dice.below(9));
            Input::of(move |session, now| session.handle_proved(now, generation, nonce, 1))
        }
        // What runs ends, or what was replaced just now.
        16..19 | 25..31 if runtime.reads.is_some() => {
            let attempt = Attempt(attempt.0 - dice.below(9) / 8);
            Input::Read(seq, attempt, dice.below(3) > 0)
        }
        19 | 31 | 32 if runtime.reads.is_some() => {
            let progress = ReadProgress { arrived: dice.below(99), left: 1 << 40, shard: 0 };
            Input::of(move |session, now| session.handle_progress(now, seq, attempt, progress))
        }
        20 | 21 | 25..31 if runtime.installs.is_some() => Input::Installed(seq, attempt),
        22 => {
            let version = dice.version();
            Input::of(move |session, now| {
                session.handle_offload_failed(now, version, generation, "full".into());
            })
        }
        23 => {
            let ask = dice.below(3);
            Input::of(move |session, now| session.handle_seed_failed(now, ask))
        }
        24 => {
            let (server, told) = (dice.below(2) as usize, Term(world.term));
            let acts = (dice.below(3) == 0).then(|| ticket(world.term + 1).proof);
            Input::of(move |session, now| session.handle_probed(now, server, told, acts))
        }
        _ => {
            let message = message(dice, world, runtime, session);
            Input::of(move |session, now| session.handle_message(now, message.clone()))
        }
    }
}

/// What a runtime relies on.
#[derive(Default)]
struct Runtime {
    /// At which generation the memory is served, and whether it is whole.
    served: Option<(Generation, bool)>,
    fenced: Generation,
    /// The read or the copying into place that runs.
    reads: Option<(OpSeq, Attempt)>,
    installs: Option<(OpSeq, Attempt)>,
    /// What was assigned last is read, or in place: the server may commit it.
    prepared: bool,
    /// It is read beside the memory: the server may have it put in place.
    beside: bool,
    /// What was assigned last is read beside it.
    staged: bool,
    ended: OpSeq,
    closed: bool,
}

impl Runtime {
    /// What ran is over.
    fn note(&mut self, input: &Input, staged: bool) {
        match input {
            Input::Read(seq, attempt, whole) if self.reads == Some((*seq, *attempt)) => {
                (self.reads, self.prepared) = (None, *whole && !staged);
                self.beside = *whole && staged;
            }
            Input::Installed(seq, attempt) if self.installs == Some((*seq, *attempt)) => {
                (self.installs, self.prepared) = (None, true);
            }
            _ => {}
        }
    }

    fn obey(&mut self, output: &Output) {
        assert!(!self.closed, "after its end: {output:?}");
        match output {
            Output::Expose(generation) | Output::ExposeFilling(generation) => {
                assert!(*generation > self.fenced, "{output:?}, which was fenced");
                let whole = matches!(output, Output::Expose(_));
                let before = self.served.replace((*generation, whole));
                let filled = before == Some((*generation, false)) && whole;
                assert!(before.is_none() || filled, "{before:?} is not fenced before {output:?}");
            }
            Output::Fence(generation) => {
                assert_eq!(self.served.take().map(|(at, _)| at), Some(*generation));
                (self.fenced, self.prepared, self.beside) = (*generation, false, false);
            }
            Output::Read { seq, attempt, assignment, keep, .. } => {
                let before = self.reads.replace((*seq, *attempt));
                assert!(before.is_none() || *keep, "{before:?} was not stopped");
                assert!(self.installs.is_none());
                let whole = self.served.is_some_and(|(_, whole)| whole);
                assert!(assignment.staged || *keep || !whole, "what is served is written over");
                (self.prepared, self.beside) = (false, false);
                self.staged = assignment.staged;
            }
            Output::Install { seq, attempt } => {
                assert!(self.served.is_none() && self.reads.is_none());
                self.installs = Some((*seq, *attempt));
            }
            Output::StopRead => (self.reads, self.installs) = (None, None),
            Output::Unstage => assert!(self.reads.is_none() && self.installs.is_none()),
            // The server may send readers here as soon as it hears of it.
            Output::Send(ClientMessage::Prepared { generation, .. }) if !self.staged => {
                assert_eq!(self.served, Some((*generation, true)));
            }
            Output::Send(ClientMessage::Installed { generation, .. }) => {
                assert_eq!(self.served, Some((*generation, true)));
            }
            Output::Send(ClientMessage::Filling { generation, .. }) => {
                assert_eq!(self.served.map(|(at, _)| at), Some(*generation));
            }
            Output::Done { seq, .. } => {
                assert!(*seq > self.ended, "call {seq} has ended before");
                (self.ended, self.prepared, self.beside) = (*seq, false, false);
                assert!(self.reads.is_none() && self.installs.is_none(), "its read goes on");
            }
            Output::Closed { .. } => {
                assert!(self.served.is_none() && self.reads.is_none());
                self.closed = true;
            }
            _ => {}
        }
    }
}

#[test]
fn what_a_session_asks_for_can_be_done_in_the_order_in_which_it_asks() {
    let mut kinds = BTreeMap::new();
    for case in 0..CASES {
        let mut dice = Dice(case);
        let mut config = config(["a:1", "a:1,b:1"][dice.below(2) as usize]);
        config.relays = dice.below(2) == 0;
        if dice.below(3) == 0 {
            config.reconnect = Span(0);
        }
        let (mut world, mut runtime) = (World::default(), Runtime::default());
        let mut session = Session::new(config, START);
        let mut late = session.clone();
        let (mut now, mut asked) = (START, Vec::new());
        for _ in 0..STEPS {
            now = now + Span::from_millis([0, 0, 1, 40, 300, 1_000][dice.below(6) as usize]);
            let input = input(&mut dice, &mut world, &runtime, &session);
            let staged = matches!(&world.call, Some(Call::Update { staged: true, .. }));
            runtime.note(&input, staged);
            let seq = input.come(&mut session, now);
            assert_eq!(input.come(&mut late, now), seq);
            if let (Some(seq), Input::Call(call, _)) = (seq, input) {
                (world.seq, world.call) = (seq, Some(call));
                (world.attempt, world.since) = (0, 0);
            }
            session.handle_timeout(now);
            late.handle_timeout(now);
            while let Some(output) = session.poll_output() {
                runtime.obey(&output);
                world.hear(&output);
                asked.push(output);
            }
            let next = session.next_timeout();
            assert!(next.is_none_or(|next| next > now), "it would never wait");
        }
        asked.extend(std::iter::from_fn(|| session.poll_output()));
        let all: Vec<Output> = std::iter::from_fn(|| late.poll_output()).collect();
        assert_eq!(asked, all, "whoever takes them later takes the same");
        for output in &all {
            let text = format!("{output:?}");
            let name = text.split(['(', ' ', '{']).take(2).collect::<Vec<_>>().join(" ");
            *kinds.entry(name).or_insert(0u32) += 1;
        }
    }
    assert!(kinds.len() == 32 && kinds.values().all(|count| *count > 20), "{kinds:#?}");
}
