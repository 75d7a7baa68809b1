//! One session, whose server and runtime is the test: when it does what, and in which order.

use crate::cluster;
mod anew;
mod aside;
mod calls;
mod ends;
mod lease;
mod order;
mod owed;
mod pace;
mod stale;

use crate::cluster::{CATALOG, open, replicate, sums, version};
use weightcast_protocol::message::{
    Answer, Assignment, Call, ClientMessage, ReadFailure, Role, ServerMessage, SourceShard,
};
use weightcast_protocol::session::{Output, Session, SessionConfig};
use weightcast_protocol::{
    Attempt, CallError, ContentDigest, Epoch, ExportId, Generation, Incarnation, Mac, OpSeq,
    Selector, Span, Term, TermProof, Ticket, Time,
};

const START: Time = Time(1_000_000);
const LEASE: Span = Span::from_secs(5);
const SECOND: Span = Span::from_secs(1);
/// Of the calls that are made here.
const DEADLINE: Span = Span::from_secs(30);

fn config(servers: &str) -> SessionConfig {
    SessionConfig::new(open("r", 0, 1, Role::Rollout), servers)
}

/// A session that is lost with its server.
fn lonely() -> SessionConfig {
    SessionConfig { reconnect: Span(0), ..config("a:1") }
}

/// What the server of a term gives the session.
fn ticket(term: u64) -> Ticket {
    Ticket {
        proof: TermProof { term: Term(term), origin: Term(1), mac: Mac::default() },
        incarnation: Incarnation { term: Term(1), number: 1 },
        epoch: Epoch(1),
        held: None,
        mac: Mac::default(),
    }
}

fn opened(term: u64) -> ServerMessage {
    ServerMessage::Opened { ticket: ticket(term), lease: LEASE }
}

/// An assignment of version `number`, whose tensors have a name that tells it from others.
fn assignment(number: u64, staged: bool) -> Assignment {
    let layout = ContentDigest([1; 16]);
    let shard = |at: u64| SourceShard {
        data_address: at.to_string(),
        export: ExportId(at),
        generation: Generation(1),
        layout,
    };
    Assignment {
        version: version(1, number),
        catalog: catalog(number),
        replica: "source".into(),
        in_flight: false,
        staged,
        helpers: Vec::new(),
        shards: (0..2).map(shard).collect(),
    }
}

fn catalog(number: u64) -> ContentDigest {
    ContentDigest([number as u8; 16])
}

struct Alone {
    session: Session,
    now: Time,
}

impl Alone {
    /// A session whose stream is being opened.
    fn new(config: SessionConfig) -> Self {
        let mut session = Session::new(config, START);
        assert_eq!(session.poll_output(), Some(Output::Connect { server: 0 }));
        Self { session, now: START }
    }

    /// A session that is open in term 1.
    fn open(config: SessionConfig) -> Self {
        let mut alone = Self::new(config);
        alone.session.handle_connected(alone.now);
        alone.say(opened(1));
        alone
    }

    /// What it asks for, now.
    fn take(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.session.poll_output()).collect()
    }

    /// What its server says, and what comes of it.
    fn say(&mut self, message: ServerMessage) -> Vec<Output> {
        self.session.handle_message(self.now, message);
        self.take()
    }

    /// The time has come.
    fn at(&mut self, now: Time) -> Vec<Output> {
        self.now = now;
        self.session.handle_timeout(now);
        self.take()
    }

    fn call(&mut self, call: Call) -> OpSeq {
        self.session.call(self.now, call, DEADLINE).expect("callable")
    }

    fn answer(&mut self, seq: OpSeq, answer: Answer) -> Vec<Output> {
        self.say(ServerMessage::Answered { seq, result: Ok(answer) })
    }

    /// It is told to read version `number` with its first assignment.
    fn reads(&mut self, number: u64, staged: bool) -> OpSeq {
        let call = match staged {
            true => cluster::staged_update(),
            false => replicate(Selector::Latest),
        };
        let seq = self.call(call);
        self.assign(seq, 1, 1, assignment(number, staged));
        seq
    }

    fn assign(&mut self, seq: OpSeq, attempt: u64, since: u64, to: Assignment) -> Vec<Output> {
        let (attempt, since) = (Attempt(attempt), Attempt(since));
        self.say(ServerMessage::Assigned { seq, attempt, since, assignment: to })
    }

    /// It holds version `number`, which it has read.
    fn holds(&mut self, number: u64) {
        let seq = self.reads(number, false);
        self.session.handle_read(self.now, seq, Attempt(1), Ok(sums(7)));
        self.commit(seq, number);
    }

    fn commit(&mut self, seq: OpSeq, number: u64) {
        let source = "source".into();
        self.answer(seq, Answer::Committed { version: version(1, number), source });
        assert_eq!(self.session.version(), Some(version(1, number)));
    }

    /// It holds version `number`, which it has published, and digests it.
    fn publishes(&mut self, number: u64) {
        let seq = self.call(cluster::publish(number));
        self.answer(seq, Answer::Published { version: version(1, number) });
        assert_eq!(self.session.version(), Some(version(1, number)));
    }

    /// Its server gives way to the next of the list, where it is open in this term.
    fn goes_over(&mut self, term: u64) -> Vec<Output> {
        self.say(ServerMessage::Superseded);
        for _ in 0..10 {
            let now = self.session.next_timeout().expect("it tries again");
            if self.at(now).iter().any(|output| matches!(output, Output::Connect { .. })) {
                self.session.handle_connected(now);
                return self.say(opened(term));
            }
        }
        panic!("it asks nobody");
    }
}

/// What was sent, but for heartbeats.
fn sent(outputs: &[Output]) -> Vec<&ClientMessage> {
    let messages = outputs.iter().filter_map(|output| match output {
        Output::Send(ClientMessage::Heartbeat { .. }) => None,
        Output::Send(message) => Some(message),
        _ => None,
    });
    messages.collect()
}

fn has_ended(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Closed { .. }))
}
