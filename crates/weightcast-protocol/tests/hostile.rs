//! A client may send anything at any time: the server answers or closes the stream, keeps its
//! invariants, and leaves others alone (F33, F34).

use crate::cluster::*;
use proptest::prelude::*;
use weightcast_protocol::message::{
    Answer, Call, ClientMessage, EpochPolicy, ReadFailure, Role, ServerMessage,
};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput, Snapshot};
use weightcast_protocol::{
    Attempt, Condition, ConnectionId, ContentDigest, ExportId, Generation, OpSeq, Revision,
    Selector, SessionId, Span, Term, Time,
};

/// Stands for the call that would be right: mostly, so that the test gets somewhere.
const NEXT: OpSeq = OpSeq(u64::MAX);

/// An input to the server.
#[derive(Clone, Debug)]
enum Input {
    Message(usize, Box<ClientMessage>),
    Disconnect(u64),
    Pass(u64),
}

fn opening() -> impl Strategy<Value = ClientMessage> {
    let role = prop_oneof![Just(Role::Trainer), Just(Role::Rollout)];
    (0..4u64, 0..3u64, 0..2u32, 1..3u32, role, any::<bool>()).prop_map(
        |(session, replica, shard, num_shards, role, new)| {
            let mut open = open(&format!("r{replica}"), shard, num_shards, role);
            open.session = SessionId(session.into());
            if new {
                open.epoch = EpochPolicy::New;
            }
            ClientMessage::Open(open)
        },
    )
}

fn selector() -> impl Strategy<Value = Selector> {
    prop_oneof![
        Just(Selector::Latest),
        (0..3u64).prop_map(Selector::Exact),
        (0..3u64).prop_map(Selector::LatestMinus),
        (0..2u64).prop_map(Selector::NthLatest),
        Just(Selector::AtLeast(u64::MAX)),
    ]
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (0..2u8).prop_map(|n| Call::Register {
            layout: ContentDigest([n; 16]),
            export: ExportId(n.into()),
            bytes: u64::MAX,
        }),
        1 => Just(Call::Unregister),
        4 => (0..3u64, 0..2u64).prop_map(|(version, generation)| Call::Publish {
            version,
            catalog: ContentDigest([1; 16]),
            generation: Generation(generation),
        }),
        2 => Just(Call::Unpublish),
        4 => selector().prop_map(|selector| Call::Replicate { selector }),
        4 => (selector(), any::<bool>(), any::<bool>())
            .prop_map(|(selector, allow_rollback, staged)| Call::Update { selector, allow_rollback, staged }),
        1 => selector().prop_map(|selector| Call::Describe { selector }),
        1 => Just(Call::List),
        1 => (0..4u64).prop_map(|after| Call::Wait { until: Condition::Changed { after: Revision { term: Term(0), number: after } } }),
        1 => Just(Call::Decline { detail: "ü".repeat(9_999) }),
    ]
}

fn message() -> impl Strategy<Value = ClientMessage> {
    let seq = || prop_oneof![300 => Just(NEXT), 1 => (0..7u64).prop_map(OpSeq)];
    let attempt = || prop_oneof![8 => Just(Attempt(1)), 2 => (0..4u64).prop_map(Attempt)];
    let deadline = || prop_oneof![1 => Just(Span(0)), 8 => Just(Span::from_secs(2)), 1 => Just(Span(u64::MAX))];
    let failure = prop_oneof![
        Just(ReadFailure::Source { shard: u32::MAX, reason: String::new() }),
        Just(ReadFailure::Layout { detail: String::new() }),
    ];
    prop_oneof![
        1 => opening(),
        60 => (seq(), deadline(), any_call())
            .prop_map(|(seq, deadline, call)| ClientMessage::Call { seq, deadline, call }),
        15 => (0..2u64, 0..20u64).prop_map(|(generation, sum)| ClientMessage::Sealed {
            generation: Generation(generation),
            sums: sums(sum / 19),
        }),
        30 => (seq(), attempt(), 0..20u64).prop_map(|(seq, attempt, sum)| ClientMessage::Prepared {
            seq,
            attempt,
            generation: Generation(1),
            sums: sums(sum / 19),
        }),
        15 => (seq(), attempt()).prop_map(|(seq, attempt)| ClientMessage::Installed {
            seq,
            attempt,
            generation: Generation(1),
        }),
        8 => (seq(), attempt(), failure).prop_map(|(seq, attempt, failure)| {
            ClientMessage::ReadFailed { seq, attempt, failure }
        }),
        15 => any::<u64>().prop_map(|sent_at| ClientMessage::Heartbeat { sent_at }),
        15 => (seq(), attempt(), any::<u64>(), any::<u64>()).prop_map(|(seq, attempt, arrived, total)| {
            ClientMessage::Progress { sent_at: arrived, seq, attempt, arrived, total }
        }),
        1 => deadline().prop_map(|deadline| ClientMessage::Close { deadline }),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        40 => (0..4usize, message()).prop_map(|(stream, message)| Input::Message(stream, Box::new(message))),
        1 => (0..4u64).prop_map(Input::Disconnect),
        1 => (0..900u64).prop_map(Input::Pass),
    ]
}

/// Clients that mostly keep to the protocol: two trainers and two rollouts of one shard each.
struct Four {
    server: Server,
    now: Time,
    /// Calls that each has made, and that have been answered.
    made: [u64; 4],
    answered: [u64; 4],
}

impl Four {
    fn new() -> Self {
        let server = Server::new(ServerConfig { paranoid: true, ..Default::default() });
        let mut four = Self { server, now: Time(0), made: [0; 4], answered: [0; 4] };
        for stream in 0..4 {
            let role = if stream < 2 { Role::Trainer } else { Role::Rollout };
            let mut open = open(&format!("s{stream}"), 0, 1, role);
            open.session = SessionId(stream as u128 + 10);
            four.say(stream, ClientMessage::Open(open));
            let deadline = Span::from_secs(9);
            four.say(stream, ClientMessage::Call { seq: NEXT, deadline, call: register(0) });
        }
        four
    }

    fn say(&mut self, stream: usize, mut message: ClientMessage) {
        match &mut message {
            ClientMessage::Call { seq, .. } if *seq == NEXT => {
                if self.made[stream] > self.answered[stream] {
                    return; // one at a time
                }
                self.made[stream] += 1;
                *seq = OpSeq(self.made[stream]);
            }
            ClientMessage::Prepared { seq, .. } | ClientMessage::ReadFailed { seq, .. }
                if *seq == NEXT =>
            {
                *seq = OpSeq(self.made[stream]);
            }
            _ => {}
        }
        self.server.handle(self.now, ConnectionId(stream as u64), message);
        self.take();
    }

    fn take(&mut self) {
        while let Some(output) = self.server.poll_output() {
            let ServerOutput::Send { to, message } = output else { continue };
            if let ServerMessage::Answered { seq, .. } = message {
                self.answered[to.0 as usize] = seq.0;
            }
        }
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        self.server.handle_timeout(self.now);
        self.take();
    }
}

/// Whoever looks at a replica is told of the copy that is listed, of all its shards, and no other.
fn inspected_as_listed(snapshot: &Snapshot, server: &Server) {
    for (name, model) in &snapshot.models {
        for replica in &model.replicas {
            let copy = server.inspect(name, &replica.name, None).copy;
            let listed = model.versions.iter().find(|(_, names)| names.contains(&replica.name));
            assert_eq!(copy.as_ref().map(|copy| &copy.version), listed.map(|(version, _)| version));
            assert!(copy.is_none_or(|copy| !copy.in_flight && !copy.shards.is_empty()));
        }
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn no_sequence_of_messages_breaks_an_invariant(
        inputs in prop::collection::vec(input(), 1..200)
    ) {
        let mut four = Four::new();
        for input in inputs {
            match input {
                Input::Message(stream, message) => four.say(stream, *message),
                Input::Disconnect(stream) => {
                    four.server.handle_disconnect(four.now, ConnectionId(stream));
                }
                Input::Pass(millis) => four.pass(Span::from_millis(millis)),
            }
            inspected_as_listed(&four.server.snapshot(four.now), &four.server);
        }
        // Whatever happened, all of it ends with the leases.
        for _ in 0..50 {
            four.pass(Span::from_secs(60));
        }
        let snapshot = four.server.snapshot(four.now);
        prop_assert_eq!(snapshot.sessions, 0);
        prop_assert!(snapshot.models.values().all(|m| m.replicas.is_empty() && m.edges.is_empty()));
    }
}

#[test]
fn disagreeing_copies_within_a_group_are_found() {
    let mut cluster = Cluster::new();
    cluster.auto_seal = false;
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 11);
    for client in &trainer {
        let client = &mut cluster.clients[*client];
        let generation = client.host.sealing.take().unwrap();
        let mut wrong = sums(client.memory);
        wrong.held.0[0] ^= u64::from(client.shard);
        client.session.handle_sealed(cluster.now, generation, wrong);
    }
    cluster.run();
    let outcomes = cluster.call_all(&trainer, |_| Call::List);
    for outcome in outcomes {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("different copies"), "{error}");
    }
}

#[test]
fn trainers_that_start_a_run_together_share_its_epoch() {
    let mut cluster = Cluster::new();
    let mut start = |replica: &str| {
        let mut open = open(replica, 0, 1, Role::Trainer);
        open.epoch = EpochPolicy::New;
        let client = cluster.start(open);
        cluster.call_all(&[client], register);
        let epoch = cluster.clients[client].session.lease().unwrap().epoch;
        (client, epoch)
    };
    let (a, b) = (start("a"), start("b"));
    assert_eq!((a.1, b.1), (RUN, RUN));
    cluster.publish(&[a.0], 1, 11);
    let outcomes = cluster.publish(&[b.0], 1, 11);
    assert!(matches!(outcomes[0], Ok(Answer::Published { .. })));
    let mut open = open("c", 0, 1, Role::Trainer);
    open.epoch = EpochPolicy::New;
    let c = cluster.start(open);
    assert_eq!(cluster.clients[c].session.lease().unwrap().epoch, RUN.next());
}

/// A raw shard of group `a`, which says what no session says.
fn raw_shard(server: &mut Server, shard: u32, num_shards: u32) -> ConnectionId {
    let mut open = open("a", shard, num_shards, Role::Rollout);
    (open.session, open.activate) = (SessionId(u128::from(shard) + 1), true);
    let stream = ConnectionId(shard.into());
    server.handle(Time(1), stream, ClientMessage::Open(open));
    stream
}

fn waits_for_ever(seq: u64, deadline: Span) -> ClientMessage {
    let until = Condition::Available(Selector::AtLeast(u64::MAX));
    ClientMessage::Call { seq: OpSeq(seq), deadline, call: Call::Wait { until } }
}

/// Zero stands for "none yet": a shard that makes it call zero would go past a call that it joins,
/// and take away the call under way.
#[test]
fn a_call_that_counts_as_past_is_not_joined() {
    let mut server = Server::new(ServerConfig { paranoid: true, ..ServerConfig::default() });
    let shards = [0, 1, 2].map(|shard| raw_shard(&mut server, shard, 3));
    let long = Span::from_secs(30);
    server.handle(Time(1), shards[0], waits_for_ever(0, Span(1)));
    server.handle_timeout(Time(1_000_000_000));
    for (shard, seq) in [(0, 1), (1, 0), (2, 0), (1, 0), (1, 1), (2, 1)] {
        server.handle(Time(1_000_000_001), shards[shard], waits_for_ever(seq, long));
    }
    server.snapshot(Time(1_000_000_002));
    server.handle_timeout(Time(60_000_000_000));
}

/// The same of a group that is over: the call would be started anew in it.
#[test]
fn a_call_that_counts_as_past_does_not_start_in_a_group_that_is_over() {
    let mut server = Server::new(ServerConfig { paranoid: true, ..ServerConfig::default() });
    let shards = [0, 1].map(|shard| raw_shard(&mut server, shard, 2));
    server.handle(Time(1), shards[0], waits_for_ever(0, Span(1)));
    server.handle_timeout(Time(1_000_000_000));
    server.handle(Time(1_000_000_001), shards[0], waits_for_ever(1, Span::from_secs(30)));
    server.handle(Time(1_000_000_002), shards[0], ClientMessage::Close { deadline: Span(1) });
    server.handle(Time(1_000_000_003), shards[1], waits_for_ever(0, Span::from_secs(30)));
}
