//! Who may make a server act, and when: takeovers end once faults have (L5).

use crate::cluster::open;
use weightcast_protocol::message::{Answer, Call, ClientMessage, Open, Role, ServerMessage};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::session::{Output, Session, SessionConfig};
use weightcast_protocol::{CallError, ConnectionId, OpSeq, Revision, Span, Term, Ticket, Time};

const START: Time = Time(1_000_000);
const LEASE: Span = Span::from_secs(5);

/// What a session asks for next, time passing as it needs.
fn asked(session: &mut Session, now: &mut Time) -> Open {
    for _ in 0..20 {
        match session.poll_output() {
            Some(Output::Connect { .. }) => session.handle_connected(*now),
            Some(Output::Send(ClientMessage::Open(open))) => return open,
            Some(_) => {}
            None => {
                *now = session.next_timeout().expect("it tries again");
                session.handle_timeout(*now);
            }
        }
    }
    panic!("it asks nobody");
}

#[test]
fn who_has_found_a_server_that_acts_asks_the_whole_list_before_another_is_to_act() {
    let mut now = START;
    let config = SessionConfig::new(open("r", 0, 1, Role::Rollout), "a:1,b:1,c:1");
    let mut session = Session::new(config, now);
    for _ in 0..3 {
        assert!(!asked(&mut session, &mut now).activate);
        session.handle_message(now, ServerMessage::Superseded);
    }
    assert!(asked(&mut session, &mut now).activate, "none of the list acts");
    let error = CallError::Misuse { detail: "it has to wait".into() };
    session.handle_message(now, ServerMessage::Refused { error, retry: true });
    // Meanwhile that server has stepped down. It is not to act again for this session's sake.
    for _ in 0..3 {
        assert!(!asked(&mut session, &mut now).activate);
        session.handle_message(now, ServerMessage::Superseded);
    }
    assert!(asked(&mut session, &mut now).activate, "still, none of the list acts");
}

/// The pauses that a session makes before each of so many tries that find nobody.
fn pauses(session: &mut Session, now: &mut Time, tries: usize) -> Vec<Span> {
    let mut made = Vec::new();
    for _ in 0..tries {
        let since = *now;
        asked(session, now);
        made.push(Span(now.0 - since.0));
        session.handle_disconnected(*now);
    }
    made
}

#[test]
fn pauses_double_with_each_round_of_the_list_and_begin_anew_after_a_stream_that_opened() {
    let mut now = START;
    let config = SessionConfig::new(open("r", 0, 1, Role::Rollout), "a:1,b:1,c:1");
    let (first, most) = (config.backoff, config.backoff_max);
    let mut session = Session::new(config, now);
    let twice = first.scaled(2, 1);
    let expected = [Span(0), first, first, first, twice, twice, twice, first.scaled(4, 1)];
    assert_eq!(pauses(&mut session, &mut now, 8), expected);
    assert_eq!(pauses(&mut session, &mut now, 12).pop(), Some(most));

    asked(&mut session, &mut now);
    let opened = opened(&mut server(0), now, 1, None);
    session.handle_message(now, opened);
    assert!(session.lease().is_some());
    session.handle_disconnected(now);
    assert_eq!(pauses(&mut session, &mut now, 4), [first, first, first, twice]);
}

/// What a server says to somebody who wants it to act, and shows this of another server.
fn opened(server: &mut Server, now: Time, stream: u64, ticket: Option<Ticket>) -> ServerMessage {
    let session = weightcast_protocol::SessionId(u128::from(stream));
    let replica = format!("r-{stream}");
    let open = Open { session, ticket, activate: true, ..open(&replica, 0, 1, Role::Rollout) };
    server.handle(now, ConnectionId(stream), ClientMessage::Open(open));
    std::iter::from_fn(|| server.poll_output())
        .find_map(|output| match output {
            ServerOutput::Send { to: ConnectionId(to), message } if to == stream => Some(message),
            _ => None,
        })
        .expect("it answers")
}

/// The same, if it acts.
fn ticket(server: &mut Server, stream: u64, shown: Option<Ticket>) -> Ticket {
    match opened(server, START, stream, shown) {
        ServerMessage::Opened { ticket, .. } => ticket,
        other => panic!("{other:?}"),
    }
}

/// The revision that a server that acts shows the session of a stream, in its first call.
fn shown(server: &mut Server, stream: u64) -> Revision {
    let call = ClientMessage::Call { seq: OpSeq(1), deadline: LEASE, call: Call::List };
    server.handle(START, ConnectionId(stream), call);
    let answer = std::iter::from_fn(|| server.poll_output()).find_map(|output| match output {
        ServerOutput::Send { message: ServerMessage::Answered { result, .. }, .. } => Some(result),
        _ => None,
    });
    match answer {
        Some(Ok(Answer::Listed(listing))) => listing.revision,
        other => panic!("{other:?}"),
    }
}

fn server(index: u32) -> Server {
    let paranoid = true;
    Server::new(ServerConfig { lease: LEASE, index, paranoid, ..ServerConfig::default() })
}

#[test]
fn a_server_that_was_told_of_another_one_leaves_it_a_lease() {
    let (mut first, mut second) = (server(0), server(1));
    let shown = ticket(&mut first, 1, None);
    let later = ticket(&mut second, 1, Some(shown));
    assert_eq!(first.handle_probe(START, later.proof), None);
    let soon = START + Span(LEASE.0 - 1);
    assert_eq!(opened(&mut first, soon, 2, None), ServerMessage::Superseded);
    assert_eq!(opened(&mut first, soon, 1, Some(later)), ServerMessage::Superseded);
    assert_eq!(first.term(), Term(0));
    let after = opened(&mut first, START + LEASE, 1, Some(later));
    assert!(matches!(after, ServerMessage::Opened { .. }));
    assert!(first.term() > later.proof.term);
}

/// A shard that goes from the one to the other would be shown the same number for other contents,
/// and its watch would sleep over a change.
#[test]
fn servers_that_take_over_in_the_same_step_count_different_revisions() {
    let (mut first, mut second) = (server(0), server(1));
    let (of_first, of_second) = (ticket(&mut first, 1, None), ticket(&mut second, 1, None));
    let (later, earlier) = (of_first.proof.term, of_second.proof.term);
    assert_eq!(later.step(), earlier.step());
    assert!(later > earlier, "the first of a list is the later one");
    assert!(shown(&mut first, 1) > shown(&mut second, 1));
}

#[test]
fn it_does_not_wait_for_one_that_a_still_later_one_has_followed() {
    let (mut first, mut second, mut third) = (server(0), server(1), server(2));
    let told = ticket(&mut second, 1, None);
    let later = ticket(&mut third, 1, Some(told));
    first.handle_probe(START, told.proof);
    // This client has lost the server of the later term.
    assert!(matches!(opened(&mut first, START, 1, Some(later)), ServerMessage::Opened { .. }));
    assert!(first.term() > later.proof.term);
}

#[test]
fn being_told_of_the_same_term_again_and_again_does_not_keep_it_from_acting() {
    let (mut first, mut second) = (server(0), server(1));
    let told = ticket(&mut second, 1, None);
    for tenth in 0..10 {
        first.handle_probe(START + LEASE.scaled(tenth, 10), told.proof);
    }
    let after = opened(&mut first, START + LEASE, 1, Some(told));
    assert!(matches!(after, ServerMessage::Opened { .. }));
}

#[test]
fn a_server_that_knows_nothing_takes_one_term_more_for_each_later_one_that_it_is_shown() {
    let (mut known, mut latest) = (Vec::new(), None);
    for life in 1..5 {
        let mut before =
            Server::new(ServerConfig { life, lease: LEASE, ..ServerConfig::default() });
        // Only one of them comes over to the next.
        latest = Some(ticket(&mut before, 100, latest));
        known.push(ticket(&mut before, life, None));
    }
    let mut last = server(1);
    let mut terms = vec![ticket(&mut last, 101, None).proof.term];
    // Whoever comes once more lifts nobody.
    for (stream, shown) in (1..).zip(&known).chain((1..).zip(&known)) {
        opened(&mut last, START, stream, Some(*shown));
        terms.push(last.term());
    }
    assert!(terms.is_sorted(), "{terms:?}");
    terms.dedup();
    assert_eq!(terms.len(), 1 + known.len(), "{terms:?}");
}

/// The session is opened by the server that it has a ticket of; says how many others it tells of that.
fn told(session: &mut Session, now: Time, ticket: Ticket) -> usize {
    session.handle_message(now, ServerMessage::Opened { ticket, lease: LEASE });
    session.handle_timeout(now);
    let probes: Vec<usize> = std::iter::from_fn(|| session.poll_output())
        .filter_map(|output| match output {
            Output::Probe { server, .. } => Some(server),
            _ => None,
        })
        .collect();
    for server in &probes {
        session.handle_probed(now, *server, ticket.proof.term, None);
    }
    probes.len()
}

/// The server that it has asked may act since, with nobody in it who could tell. Nor does the term of its own
/// server, which it is back in, say that it was away.
#[test]
fn who_has_asked_a_server_to_act_looks_for_it_when_another_one_opens() {
    let (mut now, ticket) = (START, ticket(&mut server(0), 1, None));
    let config = SessionConfig::new(open("r", 0, 1, Role::Rollout), "a:1,b:1,c:1");
    let mut session = Session::new(config, now);
    asked(&mut session, &mut now);
    assert_eq!(told(&mut session, now, ticket), 2, "its term is new to it");
    session.handle_disconnected(now);
    assert!(!asked(&mut session, &mut now).activate);
    assert_eq!(told(&mut session, now, ticket), 0, "nobody else was asked to act");
    session.handle_disconnected(now);
    while !asked(&mut session, &mut now).activate {
        session.handle_disconnected(now);
    }
    let error = CallError::Misuse { detail: "it has to wait".into() };
    session.handle_message(now, ServerMessage::Refused { error, retry: true });
    session.handle_disconnected(now);
    assert!(!asked(&mut session, &mut now).activate);
    assert_eq!(told(&mut session, now, ticket), 2, "one of them may act");
    session.handle_disconnected(now);
    assert!(!asked(&mut session, &mut now).activate);
    assert_eq!(told(&mut session, now, ticket), 0, "they were told");
}
