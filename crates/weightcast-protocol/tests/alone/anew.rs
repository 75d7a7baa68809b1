//! What starts anew has forgotten what was before it, and what has a length is counted from now.

use super::*;
use weightcast_protocol::session::SessionState;

const BACKOFF: Span = Span::from_millis(50);

fn servers(servers: usize) -> SessionConfig {
    config(&vec!["a:1"; servers].join(","))
}

fn connects(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, Output::Connect { .. }))
}

/// It waits until it opens a stream: how long.
fn reconnects(alone: &mut Alone) -> Span {
    let (from, mut outputs) = (alone.now, alone.take());
    while !connects(&outputs) {
        let next = alone.session.next_timeout().expect("it tries again");
        outputs = alone.at(next);
    }
    alone.now - from
}

/// So many streams cannot be opened: the pause after each.
fn pauses(alone: &mut Alone, tries: usize) -> Vec<Span> {
    let pause = |_| {
        alone.session.handle_disconnected(alone.now);
        reconnects(alone)
    };
    (0..tries).map(pause).collect()
}

/// A session that holds something, whose stream has broken and could not be opened again for so long
/// that pauses are long; one is being opened.
fn cut_off(config: SessionConfig) -> Alone {
    let mut alone = Alone::open(config);
    alone.holds(1);
    alone.session.handle_disconnected(alone.now);
    reconnects(&mut alone);
    let long = pauses(&mut alone, 9).pop().expect("nine tries");
    assert!(long > BACKOFF && alone.session.state() != SessionState::Suspended);
    alone
}

/// Its lease runs out, in a pause or while a stream is being opened.
fn given_up(config: SessionConfig, in_a_pause: bool) -> Alone {
    let mut alone = cut_off(config);
    while alone.session.state() != SessionState::Suspended {
        if in_a_pause {
            pauses(&mut alone, 1);
        } else {
            let next = alone.session.next_timeout().expect("it has a lease");
            alone.at(next);
        }
    }
    alone
}

/// The stream that is being opened is there, and so is the server, which gives way.
fn superseded(config: SessionConfig) -> Alone {
    let mut alone = cut_off(config);
    alone.session.handle_connected(alone.now);
    alone.say(ServerMessage::Superseded);
    assert_eq!(alone.session.state(), SessionState::Suspended);
    alone
}

#[test]
fn whoever_has_given_a_server_up_begins_with_the_shortest_pause() {
    let shortest = [[BACKOFF; 3], [BACKOFF.scaled(2, 1); 3]].concat();
    for in_a_pause in [false, true] {
        let mut alone = given_up(servers(3), in_a_pause);
        assert_eq!(pauses(&mut alone, 6), shortest, "its lease ran out, {in_a_pause}");
    }
    let mut alone = superseded(servers(3));
    assert_eq!(reconnects(&mut alone), BACKOFF);
    assert_eq!(pauses(&mut alone, 5), shortest[1..], "it was superseded");
    // That is once: the lease that was given up runs out of itself, and nothing begins anew with that.
    assert!(pauses(&mut alone, 20).is_sorted());
}

#[test]
fn a_server_that_has_other_clients_for_now_is_asked_less_and_less_often() {
    let mut alone = Alone::new(servers(1));
    alone.session.handle_connected(alone.now);
    for pause in [50, 100, 200, 400, 800, 1_000, 1_000] {
        let error = CallError::Misuse { detail: "the name is taken".into() };
        alone.say(ServerMessage::Refused { error, retry: true });
        let next = alone.now + Span::from_millis(pause);
        assert_eq!(alone.session.next_timeout(), Some(next));
        assert_eq!(sent(&alone.at(next)).len(), 1, "it opens again");
    }
}

/// The server that is tried next is another one, but for the one to which a stream is being opened just
/// now: that may be there, and its lease knows nothing of it.
#[test]
fn a_stream_that_is_being_opened_is_waited_for_when_the_lease_runs_out() {
    let server = |outputs: &[Output]| {
        let server = outputs.iter().find_map(|output| match output {
            Output::Connect { server } => Some(*server),
            _ => None,
        });
        server.expect("it connects")
    };
    let mut alone = given_up(servers(3), false);
    assert_eq!(alone.take(), []);
    alone.session.handle_disconnected(alone.now);
    assert_eq!(alone.take(), []);
    let next = alone.session.next_timeout().expect("it tries again");
    assert_eq!(server(&alone.at(next)), 1);
    // Else the next has its turn at once.
    let mut alone = Alone::open(servers(3));
    alone.holds(1);
    let end = START + LEASE.scaled(90, 100);
    assert_eq!(server(&alone.at(end)), 1);
}

/// How many servers are asked, none of which acts, before one is asked to act.
/// Every other one of them is not even there, or all are.
fn asked(alone: &mut Alone, mut connecting: bool, absent: bool) -> usize {
    for asked in 0.. {
        if !connecting {
            reconnects(alone);
        }
        connecting = false;
        alone.session.handle_connected(alone.now);
        let outputs = alone.take();
        let activate = sent(&outputs).into_iter().find_map(|message| match message {
            ClientMessage::Open(open) => Some(open.activate),
            _ => None,
        });
        if activate.expect("it opens") {
            return asked;
        }
        match absent && asked % 2 == 0 {
            true => alone.session.handle_disconnected(alone.now),
            false => drop(alone.say(ServerMessage::Superseded)),
        }
    }
    unreachable!()
}

/// One that is given up is as good as asked. Whoever has lost it without a word takes it for dead, and
/// does not wait for the last of the others.
#[test]
fn so_many_servers_are_asked_before_one_is_to_act() {
    for (list, absent) in (2..6).flat_map(|list| [(list, false), (list, true)]) {
        let said = format!("{list} servers, {absent}");
        assert_eq!(asked(&mut Alone::new(servers(list)), true, absent), list, "{said}");
        for in_a_pause in [false, true] {
            let mut alone = given_up(servers(list), in_a_pause);
            assert_eq!(asked(&mut alone, true, absent), list - 2, "the lease ran out, {said}");
        }
        assert_eq!(asked(&mut superseded(servers(list)), false, absent), list - 1, "{said}");
        // And again after all of that.
        let mut alone = Alone::open(servers(list));
        alone.holds(1);
        for term in 2..4 {
            alone.goes_over(term);
            alone.say(ServerMessage::Recovered);
        }
        alone.say(ServerMessage::Superseded);
        assert_eq!(asked(&mut alone, false, absent), list - 1, "the third, {said}");
    }
}

/// Time passes; each heartbeat is answered. Who is told of the session's term, and when.
fn told(alone: &mut Alone, to: Time) -> Vec<(Time, usize)> {
    let mut told = Vec::new();
    while let Some(next) = alone.session.next_timeout().filter(|next| *next <= to) {
        let mut outputs = alone.at(next.max(alone.now));
        outputs.extend(alone.say(ServerMessage::HeartbeatAck { sent_at: alone.now.0 }));
        let probes = outputs.iter().filter_map(|output| match output {
            Output::Probe { server, proof } if *proof == ticket(1).proof => {
                Some((alone.now, *server))
            }
            _ => None,
        });
        told.extend(probes);
    }
    alone.now = to;
    told
}

#[test]
fn servers_are_told_again_a_lease_after_they_were_told_last() {
    let mut alone = Alone::open(servers(3));
    let after = |leases: u64, more: u64| START + Span(leases * LEASE.0 + more);
    assert_eq!(told(&mut alone, START), [(START, 1), (START, 2)]);
    assert_eq!(told(&mut alone, Time(after(1, 0).0 - 1)), []);
    // It comes late to it, and what was late once is not made up for.
    alone.say(ServerMessage::HeartbeatAck { sent_at: alone.now.0 });
    alone.now = after(1, SECOND.0);
    let outputs = alone.at(alone.now);
    let probes = outputs.iter().filter(|output| matches!(output, Output::Probe { .. }));
    assert_eq!(probes.count(), 2);
    alone.say(ServerMessage::HeartbeatAck { sent_at: alone.now.0 });
    assert_eq!(told(&mut alone, Time(after(2, SECOND.0).0 - 1)), []);
    let next = after(2, SECOND.0);
    // Who has answered is told no more, and what is said of another term is no answer to this.
    alone.session.handle_probed(alone.now, 1, Term(0), None);
    alone.session.handle_probed(alone.now, 2, Term(1), None);
    assert_eq!(told(&mut alone, next), [(next, 1)]);
    alone.session.handle_probed(alone.now, 1, Term(2), None);
    assert_eq!(told(&mut alone, after(3, SECOND.0)), [(after(3, SECOND.0), 1)]);
    alone.session.handle_probed(alone.now, 1, Term(1), None);
    assert_eq!(told(&mut alone, after(9, 0)), []);
}

/// No stream is opened any more, or none that says anything: when the session gives up.
fn gives_up(alone: &mut Alone) -> Time {
    while alone.session.state() != SessionState::Ended {
        let next = alone.session.next_timeout().expect("it waits");
        if connects(&alone.at(next)) && next.0.is_multiple_of(2) {
            alone.session.handle_disconnected(next);
        }
    }
    let error = alone.session.error().expect("it has failed").to_string();
    assert!(error.contains("no server took the group over within 60 s"), "{error}");
    alone.now
}

#[test]
fn another_server_is_looked_for_exactly_as_long_as_is_configured() {
    let minute = Span::from_secs(60);
    let late = START + Span::from_millis(1_234);
    let lost = || {
        let mut alone = Alone::open(servers(2));
        alone.holds(1);
        alone.now = late;
        alone
    };
    let mut alone = lost();
    alone.say(ServerMessage::Superseded);
    assert_eq!(gives_up(&mut alone), late + minute);
    // The lease ends first.
    let mut alone = lost();
    assert_eq!(gives_up(&mut alone), START + LEASE.scaled(90, 100) + minute);
    // One that is found, and lost before the group is whole there, gives it no more time.
    for loses in [false, true] {
        let mut alone = lost();
        alone.goes_over(2);
        if loses {
            alone.goes_over(3);
        }
        assert_eq!(alone.session.state(), SessionState::Suspended);
        assert_eq!(gives_up(&mut alone), late + minute, "{loses}");
    }
    // One that takes the group over does.
    let mut alone = lost();
    alone.goes_over(2);
    alone.say(ServerMessage::Recovered);
    let again = alone.now;
    alone.say(ServerMessage::Superseded);
    assert_eq!(gives_up(&mut alone), again + minute);
}

/// What a session asks for when a transfer runs out of time, but for the end of the call.
fn runs_out(alone: &mut Alone, seq: OpSeq) -> Vec<Output> {
    let error = CallError::Timeout {
        call: "update".into(),
        waiting_for: "it".into(),
        detail: String::new(),
    };
    let mut outputs = alone.say(ServerMessage::Answered { seq, result: Err(error.clone()) });
    assert_eq!(outputs.pop(), Some(Output::Done { seq, result: Err(error) }));
    outputs
}

/// The memory is the user's again: nobody reads it, at whichever generation. What is beside it is not.
#[test]
fn a_transfer_that_runs_out_of_time_leaves_nothing_that_is_served() {
    for relays in [false, true] {
        for read in [false, true] {
            let mut alone = Alone::open(SessionConfig { relays, ..servers(1) });
            let seq = alone.reads(1, false);
            if read {
                alone.session.handle_read(alone.now, seq, Attempt(1), Ok(sums(7)));
            }
            alone.take();
            let generation = alone.session.generation();
            let stop = (!read).then_some(Output::StopRead);
            let fence = (relays || read).then_some(Output::Fence(generation));
            let expected: Vec<Output> = stop.into_iter().chain(fence).collect();
            assert_eq!(runs_out(&mut alone, seq), expected, "{relays}, {read}");
            assert_eq!(
                (alone.session.version(), alone.session.state()),
                (None, SessionState::Empty)
            );
            assert!(alone.session.generation() > generation);

            let mut alone = Alone::open(SessionConfig { relays, ..servers(1) });
            alone.holds(1);
            let generation = alone.session.generation();
            let seq = alone.reads(2, true);
            if read {
                alone.session.handle_read(alone.now, seq, Attempt(1), Ok(sums(8)));
            }
            alone.take();
            let unstage = (!relays).then_some(Output::Unstage);
            let stop = (!read).then_some(Output::StopRead);
            let expected: Vec<Output> = stop.into_iter().chain(unstage).collect();
            let mut installing = Alone { session: alone.session.clone(), now: alone.now };
            assert_eq!(runs_out(&mut alone, seq), expected, "{relays}, {read}, beside");
            assert_eq!(alone.session.version(), Some(version(1, 1)));
            assert_eq!(alone.session.generation(), generation, "it is served as before");
            if read {
                let (attempt, deadline) = (Attempt(1), DEADLINE);
                installing.say(ServerMessage::Install { seq, attempt, deadline });
                let expected = [Output::StopRead, Output::Unstage];
                assert_eq!(runs_out(&mut installing, seq), expected, "what is half in place goes");
                assert_eq!(installing.session.version(), None);
            }
        }
    }
}

/// That there is no stream just now takes the first word from nobody: the server knows of the call, or of
/// its group's.
#[test]
fn a_call_waits_for_the_servers_word_while_its_lease_lives_though_its_stream_has_broken() {
    let mut alone = Alone::open(servers(1));
    let seq = alone.session.call(alone.now, Call::List, SECOND).expect("callable");
    alone.session.handle_disconnected(alone.now);
    let end = START + SECOND.scaled(2, 1);
    while alone.session.state() != SessionState::Ended {
        let next = alone.session.next_timeout().expect("it waits");
        if connects(&alone.at(next)) {
            alone.session.handle_disconnected(next);
        }
    }
    assert_eq!((alone.now, seq), (end, OpSeq(1)));
}

#[test]
fn a_shard_comes_back_as_one_that_has_had_an_answer_or_as_a_new_one() {
    for (calls, answers) in [(false, false), (true, false), (true, true)] {
        let mut alone = Alone::open(servers(2));
        if calls {
            alone.call(Call::List);
        }
        if answers {
            alone.answer(OpSeq(1), Answer::Unregistered);
        }
        alone.session.handle_disconnected(alone.now);
        reconnects(&mut alone);
        alone.session.handle_connected(alone.now);
        match sent(&alone.take())[..] {
            [ClientMessage::Open(open)] => assert_eq!(open.rejoins, answers, "{calls}"),
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_takes_leave_looks_for_no_other_server() {
    let mut alone = Alone::open(servers(2));
    alone.holds(1);
    alone.session.close(alone.now, DEADLINE);
    alone.take();
    let end = START + LEASE.scaled(90, 100);
    assert!(!has_ended(&alone.at(Time(end.0 - 1))));
    assert_eq!(alone.at(end).last(), Some(&Output::Closed { error: None }));
}
