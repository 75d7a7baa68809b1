//! A session's machine under any sequence of frames, breaks, pauses, calls and ends of reads.

use weightcast_protocol::message::{Answer, Call, EpochPolicy, Open, ReadFailure, Role};
use weightcast_protocol::session::{Output, ReadOrder, Session, SessionConfig, SessionState};
use weightcast_protocol::{
    Attempt, CallError, ContentDigest, ExportId, Generation, OpSeq, PROTOCOL, Selector, SessionId,
    ShardSums, Span, Time,
};
use weightcast_testkit::{VirtualHost, VirtualRuntime, drive};

use crate::steps::{self, InputStep};

/// Whatever a server sends, the session answers every call once, serves nothing that may change
/// (S3), and ends when it is not heard any more.
///
/// # Panics
/// If it does not.
pub fn session(bytes: &[u8]) {
    let mut runtime = Runtime::new();
    for step in steps::decode(bytes) {
        runtime.take(step);
        runtime.obey();
    }
    runtime.end();
}

struct Runtime {
    session: Session,
    now: Time,
    host: VirtualHost<(OpSeq, Attempt)>,
    calling: Option<OpSeq>,
    closed: bool,
}

impl Runtime {
    fn new() -> Self {
        let open = Open {
            protocol: PROTOCOL,
            session: SessionId(1),
            ticket: None,
            rejoins: false,
            model: "policy".into(),
            replica: "rollout".into(),
            shard: 0,
            num_shards: 1,
            role: Role::Rollout,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: Default::default(),
            data_address: "host:1".into(),
            activate: false,
        };
        let now = Time(0);
        let session = Session::new(SessionConfig::new(open, "server"), now);
        Self { session, now, host: VirtualHost::default(), calling: None, closed: false }
    }

    fn take(&mut self, step: InputStep) {
        let now = self.now;
        match step {
            InputStep::Frame(_, frame) => match weightcast::fuzzing::server_message(&frame) {
                Some(message) => self.session.handle_message(now, message),
                None => self.session.handle_disconnected(now),
            },
            InputStep::Broken(_) => self.session.handle_disconnected(now),
            InputStep::Pass(millis) => {
                self.now = now + Span::from_millis(millis.into());
                self.session.handle_timeout(self.now);
            }
            InputStep::Other(what, which) => self.do_other(what, which),
        }
    }

    fn do_other(&mut self, what: u8, which: u8) {
        let now = self.now;
        match what % 6 {
            0 => self.session.handle_connected(now),
            1 => self.call(which),
            2 => {
                let sums = ShardSums::default();
                self.session.handle_sealed(now, Generation(which.into()), sums);
            }
            3 => {
                if let Some((seq, attempt)) = self.host.installing.take() {
                    return self.session.handle_installed(now, seq, attempt);
                }
                let Some((seq, attempt)) = self.host.reading.take() else { return };
                let failure = ReadFailure::Source { shard: 0, reason: "gone".into() };
                let result =
                    if which.is_multiple_of(2) { Ok(ShardSums::default()) } else { Err(failure) };
                self.session.handle_read(now, seq, attempt, result);
            }
            4 => self.session.close(now, Span::from_millis(which.into())),
            _ => self.session.handle_timeout(now),
        }
    }

    fn call(&mut self, which: u8) {
        let selector = Selector::Latest;
        let call = match which % 7 {
            0 => {
                let layout = ContentDigest([2; 16]);
                Call::Register { layout, export: ExportId(7), bytes: 8 }
            }
            1 => Call::Replicate { selector },
            2 => Call::Update { selector, allow_rollback: false, staged: which > 127 },
            3 => Call::Publish {
                version: 1,
                catalog: ContentDigest([1; 16]),
                generation: Generation(0),
            },
            4 => Call::Unpublish,
            5 => Call::Unregister,
            _ => Call::List,
        };
        if let Ok(seq) = self.session.call(self.now, call, Span::from_secs(3)) {
            assert_eq!(self.calling.replace(seq), None, "two calls at once");
        }
    }

    fn obey(&mut self) {
        drive(self);
        if self.closed {
            assert_eq!((self.host.exposed, self.calling), (None, None), "closed, but not at rest");
            assert_eq!(self.session.state(), SessionState::Ended);
        }
    }

    /// The server is never heard again: what was called ends.
    fn end(&mut self) {
        self.session.handle_disconnected(self.now);
        self.obey();
        for _ in 0..10_000 {
            let Some(due) = self.session.next_timeout().filter(|_| self.calling.is_some()) else {
                break;
            };
            self.now = self.now.max(due);
            self.session.handle_timeout(self.now);
            self.session.handle_disconnected(self.now);
            self.obey();
        }
        assert_eq!(self.calling, None, "a call without an end");
    }
}

impl VirtualRuntime for Runtime {
    type Reading = (OpSeq, Attempt);
    type Staged = ();

    fn host(&mut self) -> &mut VirtualHost<(OpSeq, Attempt)> {
        &mut self.host
    }

    fn next_output(&mut self) -> Option<Output> {
        let output = self.session.poll_output();
        assert!(!self.closed || output.is_none(), "{output:?} after the end");
        output
    }

    fn connect(&mut self, _: usize) {}

    fn read(&mut self, order: ReadOrder) {
        let beside = order.assignment.staged;
        assert!(beside || self.host.exposed.is_none(), "reads into memory that is served");
        self.host.stop_read();
        self.host.reading = Some((order.seq, order.attempt));
    }

    fn install(&mut self, _: OpSeq, _: Attempt) {
        assert_eq!(self.host.exposed, None, "copies into memory that is served");
    }

    fn answer(&mut self, seq: OpSeq, _: Result<Answer, CallError>) {
        assert_eq!(self.calling.take(), Some(seq), "an answer that nobody waits for");
    }

    fn end(&mut self, _: Option<CallError>) {
        self.closed = true;
    }
}
