//! Who is taken in, and when a server acts beside others.

use crate::cluster::open;
use weightcast_protocol::limits::{Limits, NAME_BYTES};
use weightcast_protocol::message::{ClientMessage, Open, Role, ServerMessage};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::{
    CallError, ConnectionId, PROTOCOL, SessionId, Span, Term, TermProof, Ticket, Time,
};

const START: Time = Time(1_000_000);
const LEASE: Span = Span::from_secs(5);

fn server(index: u32) -> Server {
    let limits = Limits { shards_per_group: 8, ..Limits::default() };
    let config =
        ServerConfig { lease: LEASE, index, paranoid: true, limits, ..ServerConfig::default() };
    Server::new(config)
}

/// What is said on each stream when this is opened on one.
fn said(server: &mut Server, stream: u64, open: Open) -> Vec<(u64, ServerMessage)> {
    server.handle(START, ConnectionId(stream), ClientMessage::Open(open));
    taken(server)
}

fn taken(server: &mut Server) -> Vec<(u64, ServerMessage)> {
    let said = std::iter::from_fn(|| server.poll_output()).filter_map(|output| match output {
        ServerOutput::Send { to, message } => Some((to.0, message)),
        ServerOutput::Disconnect { .. } => None,
    });
    said.collect()
}

fn shard(session: u128, shard: u32) -> Open {
    Open { session: SessionId(session), ..open("r", shard, 4, Role::Rollout) }
}

fn is_opened(said: &[(u64, ServerMessage)], stream: u64) -> bool {
    matches!(said, [(to, ServerMessage::Opened { .. })] if *to == stream)
}

/// Why, and whether it may be tried again; nothing else is said.
fn refused(server: &mut Server, stream: u64, open: Open) -> (CallError, bool) {
    let before = server.snapshot(START).counters.refusals;
    match &said(server, stream, open)[..] {
        [(to, ServerMessage::Refused { error, retry })] if *to == stream => {
            assert_eq!(server.snapshot(START).counters.refusals, before + 1);
            (error.clone(), *retry)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_name_and_label_is_bounded_and_says_which_it_is() {
    type Field = (&'static str, fn(&mut Open, String), &'static str);
    let fields: [Field; 5] = [
        ("the model name", |open, text| open.model = text, "a b"),
        ("the replica name", |open, text| open.replica = text, "a b"),
        ("the datacentre", |open, text| open.location.datacentre = text, "a b"),
        ("the host", |open, text| open.location.host = text, "a\n"),
        ("the data address", |open, text| open.data_address = text, "ü:1"),
    ];
    for (name, set, wrong) in fields {
        let with = |text: String| {
            let mut open = shard(1, 0);
            set(&mut open, text);
            open
        };
        let mut server = server(0);
        assert!(is_opened(&said(&mut server, 1, with("x".repeat(NAME_BYTES))), 1), "{name}");
        let (error, retry) = refused(&mut server, 2, with("x".repeat(NAME_BYTES + 1)));
        let what = format!("length of {name}");
        assert_eq!(error, CallError::Limit { what, limit: 512, got: 513 });
        assert!(!retry);
        let (error, retry) = refused(&mut server, 3, with(wrong.into()));
        let CallError::Misuse { detail } = error else { panic!("{error:?}") };
        assert!(detail.starts_with(&format!("{name} {wrong:?}")), "{detail}");
        assert!(!retry);
    }
}

#[test]
fn a_group_has_as_many_shards_as_it_may_and_each_is_one_of_them() {
    let mut server = server(0);
    for (shard, num_shards, expected) in
        [(7, 8, true), (8, 8, false), (0, 1, true), (1, 1, false), (0, 0, false), (0, 9, false)]
    {
        let session = SessionId(u128::from(shard + 10 * num_shards));
        let name = format!("r-{num_shards}");
        let open = Open { session, ..open(&name, shard, num_shards, Role::Rollout) };
        let stream = u64::from(shard + 10 * num_shards);
        if expected {
            assert!(is_opened(&said(&mut server, stream, open), stream));
        } else {
            refused(&mut server, stream, open);
        }
    }
    for protocol in [PROTOCOL - 1, PROTOCOL + 1] {
        let open = Open { protocol, ..shard(99, 0) };
        assert!(refused(&mut server, 99, open).0.to_string().contains("protocol"));
    }
}

#[test]
fn a_stream_is_one_session_s_and_a_session_one_shard_s() {
    let mut server = server(0);
    assert!(is_opened(&said(&mut server, 1, shard(1, 0)), 1));
    assert!(is_opened(&said(&mut server, 1, shard(1, 0)), 1), "it may open again");
    let (error, _) = refused(&mut server, 1, shard(2, 1));
    assert!(error.to_string().contains("belongs to another session"), "{error}");
    for other in [
        Open { model: "other".into(), ..shard(1, 0) },
        Open { replica: "other".into(), ..shard(1, 0) },
        shard(1, 1),
        Open { num_shards: 5, ..shard(1, 0) },
    ] {
        let (error, retry) = refused(&mut server, 2, other);
        let text = error.to_string();
        assert!(text.contains("this session is shard 0 of 4 of replica r"), "{text}");
        assert!(!retry);
    }
    // It is where it was, and moves to another stream if it says so.
    let heartbeat = ClientMessage::Heartbeat { sent_at: 7 };
    server.handle(START, ConnectionId(1), heartbeat.clone());
    assert_eq!(taken(&mut server), [(1, ServerMessage::HeartbeatAck { sent_at: 7 })]);
    server.handle(START, ConnectionId(3), ClientMessage::Open(shard(1, 0)));
    let connection = ConnectionId(1);
    assert_eq!(server.poll_output(), Some(ServerOutput::Disconnect { connection }));
    assert!(is_opened(&taken(&mut server), 3));
    server.handle(START, ConnectionId(3), heartbeat);
    assert_eq!(taken(&mut server), [(3, ServerMessage::HeartbeatAck { sent_at: 7 })]);
}

#[test]
fn whoever_joins_has_to_fit_and_is_told_in_what_it_does_not() {
    let mut server = server(0);
    said(&mut server, 1, shard(1, 2));
    let others = [
        (Open { num_shards: 3, ..shard(2, 0) }, "has 3 shards, shard 2 has said 4", false),
        (
            Open { role: Role::Trainer, ..shard(2, 0) },
            "as Trainer, the other shards did as Rollout",
            false,
        ),
        (Open { offload_seeding: true, ..shard(2, 0) }, "offload_seeding=true", false),
        (shard(2, 2), "shard 2 of replica r is open already", true),
    ];
    for (open, text, again) in others {
        let (error, retry) = refused(&mut server, 2, open);
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(retry, again, "{text}");
    }
    assert!(is_opened(&said(&mut server, 2, shard(2, 0)), 2));
    assert!(is_opened(&said(&mut server, 3, Open { replica: "s".into(), ..shard(3, 2) }), 3));
}

fn ticket(server: &mut Server, now: Time, session: u128, shown: Option<Ticket>) -> Option<Ticket> {
    let name = format!("r-{session}");
    let open =
        Open { session: SessionId(session), ticket: shown, ..open(&name, 0, 1, Role::Rollout) };
    server.handle(now, ConnectionId(session as u64), ClientMessage::Open(open));
    taken(server).into_iter().find_map(|(_, message)| match message {
        ServerMessage::Opened { ticket, .. } => Some(ticket),
        _ => None,
    })
}

/// Two that knew of nobody have begun in the same step. The first of the list has the later term.
#[test]
fn who_took_a_term_too_early_gives_way_to_any_other_for_as_long_as_clients_come_over() {
    let fresh = LEASE.scaled(2, 1);
    for (after, gives_way) in [(Span(0), true), (Span(fresh.0 - 1), true), (fresh, false)] {
        let (mut first, mut second) = (server(0), server(1));
        let own = ticket(&mut first, START, 1, None).expect("it acts").proof;
        let other = ticket(&mut second, START, 1, None).expect("it acts").proof;
        assert!(own.term > other.term && own.origin != other.origin);
        let acts = first.handle_probe(START + after, other);
        assert_eq!(acts, (!gives_way).then_some(own), "after {after:?}");
        assert_eq!(first.term() == Term(0), gives_way);
        let superseded = taken(&mut first).contains(&(1, ServerMessage::Superseded));
        assert_eq!(superseded, gives_way);
        // A later one is given way to whenever it is shown.
        let later = second.handle_probe(START + after, own);
        assert_eq!(later, None);
    }
}

#[test]
fn a_term_that_nobody_proves_or_that_is_earlier_of_the_same_line_ends_none() {
    let (mut first, mut second) = (server(0), server(1));
    let early = ticket(&mut first, START, 1, None).expect("it acts");
    let later = ticket(&mut second, START, 1, Some(early)).expect("it takes over").proof;
    let early = early.proof;
    assert!(later.term > early.term && later.origin == early.origin);
    let forged = TermProof { term: Term(later.term.0 + 1), ..later };
    for proof in [early, later, forged, TermProof::default()] {
        assert_eq!(second.handle_probe(START, proof), Some(later), "{proof:?}");
    }
    for (proof, acts) in [(forged, Some(early)), (early, Some(early)), (later, None)] {
        assert_eq!(first.handle_probe(START, proof), acts, "{proof:?}");
    }
}
