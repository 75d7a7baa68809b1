//! What is said of something else than what is there now is void: of another call, assignment, generation,
//! term, server or stream, earlier or later. What is there is not disturbed by it.

use super::*;
use weightcast_protocol::Nonce;
use weightcast_protocol::session::SessionState;

const FIRST: Attempt = Attempt(1);

fn relays(relays: bool) -> SessionConfig {
    SessionConfig { relays, ..config("a:1,b:1") }
}

fn two() -> Alone {
    Alone::open(config("a:1,b:1"))
}

#[test]
fn bytes_are_shown_of_what_is_held_at_the_generation_that_was_asked_about() {
    let shows = |alone: &Alone, at: Generation| {
        let mut alone = Alone { session: alone.session.clone(), now: alone.now };
        alone.take();
        let (generation, nonce) = (at, Nonce(3));
        let asked = alone.say(ServerMessage::Challenge { generation, nonce });
        alone.session.handle_proved(alone.now, generation, nonce, 5);
        let shown = alone.take();
        let proof = Output::Send(ClientMessage::Proof { generation, nonce, sum: 5 });
        assert_eq!(asked.is_empty(), shown.is_empty());
        assert!(shown.is_empty() || shown == [proof]);
        assert!(asked.is_empty() || asked == [Output::Prove { generation, nonce }]);
        !asked.is_empty()
    };
    let around = |alone: &Alone| {
        let own = alone.session.generation().0;
        [own - 1, own, own + 1].map(|generation| shows(alone, Generation(generation)))
    };
    let mut alone = Alone::open(config("a:1"));
    assert_eq!(around(&alone), [false; 3], "it holds nothing");
    alone.publishes(1);
    assert_eq!(around(&alone), [false, true, false]);
    let seq = alone.call(Call::Unpublish);
    assert_eq!(around(&alone), [false, true, false], "until it has given it up");
    alone.answer(seq, Answer::Unpublished);
    assert_eq!(around(&alone), [false; 3]);
    // What it fills its memory with it does not hold.
    alone.reads(2, false);
    assert_eq!(around(&alone), [false; 3]);
}

fn now_and_next(alone: &Alone) -> (Time, Option<Time>) {
    (alone.now, alone.session.next_timeout())
}

#[test]
fn a_stream_that_was_given_up_is_not_lost_again_and_none_that_is_there_too_late_is_used() {
    let mut alone = Alone::new(config("a:1,b:1"));
    alone.session.handle_disconnected(alone.now);
    let before = now_and_next(&alone);
    for _ in 0..3 {
        alone.session.handle_disconnected(alone.now);
        alone.session.handle_connected(alone.now);
        assert_eq!((alone.take(), now_and_next(&alone)), (vec![], before));
    }
    // Opened in the moment in which it is given up.
    let mut alone = Alone::new(config("a:1,b:1"));
    let late = START + Span::from_secs(10);
    alone.session.handle_connected(late);
    assert_eq!(alone.take(), []);
    assert_eq!(alone.session.next_timeout(), Some(late + Span::from_millis(50)));
    // Who leaves, and has a lease, takes leave on the next stream.
    let mut alone = two();
    alone.session.close(alone.now, DEADLINE);
    alone.session.handle_disconnected(alone.now);
    assert!(!has_ended(&alone.take()));
    assert_eq!(alone.session.state(), SessionState::Closing);
}

#[test]
fn a_last_word_of_a_server_that_was_left_changes_nothing() {
    // Between two streams, and while the next is being opened.
    let mut alone = two();
    alone.holds(1);
    alone.say(ServerMessage::Superseded);
    let before = now_and_next(&alone);
    assert_eq!((alone.say(ServerMessage::Superseded), now_and_next(&alone)), (vec![], before));
    let next = before.1.expect("it tries again");
    assert_eq!(alone.at(next), [Output::Connect { server: 1 }]);
    let before = now_and_next(&alone);
    assert_eq!((alone.say(ServerMessage::Superseded), now_and_next(&alone)), (vec![], before));
    for message in [opened(3), ServerMessage::Recovered, ServerMessage::Closed] {
        assert_eq!(alone.say(message), []);
    }
    alone.session.handle_connected(alone.now);
    assert_eq!(sent(&alone.take()).len(), 1);
}

#[test]
fn there_is_no_way_back_to_an_earlier_term_nor_into_another_group() {
    let mut alone = two();
    alone.holds(1);
    alone.goes_over(3);
    alone.say(ServerMessage::Recovered);
    alone.say(ServerMessage::Superseded);
    // The next one acts in a term that is over.
    let next = alone.session.next_timeout().expect("it tries again");
    alone.at(next);
    alone.session.handle_connected(next);
    alone.take();
    let outputs = alone.say(opened(2));
    assert_eq!(outputs, [], "it is not told anything");
    assert_eq!(alone.session.state(), SessionState::Suspended);
    assert_eq!(alone.session.lease().expect("it had one").term, Term(3));
    assert!(matches!(alone.session.ticket(), Some(ticket) if ticket.proof.term == Term(3)));

    for other in [
        Incarnation { term: Term(1), number: 2 },
        Incarnation { term: Term(2), number: 1 },
        Incarnation { term: Term(1), number: 0 },
    ] {
        let mut alone = two();
        alone.holds(1);
        alone.say(ServerMessage::Superseded);
        let next = alone.session.next_timeout().expect("it tries again");
        alone.at(next);
        alone.session.handle_connected(next);
        let ticket = Ticket { incarnation: other, ..ticket(2) };
        alone.say(ServerMessage::Opened { ticket, lease: LEASE });
        let error = alone.session.error();
        assert!(matches!(error, Some(CallError::GroupBroken { .. })), "{error:?}");
    }
}

/// Whom another server has told of a later term: its own server learns of it, and it goes there.
#[test]
fn a_server_of_a_later_term_is_gone_over_to_and_of_no_other() {
    let scene = || {
        let mut alone = Alone::open(config("a:1,b:1,c:1,d:1"));
        alone.holds(1);
        alone.at(START);
        alone
    };
    let later = ticket(2).proof;
    let mut alone = scene();
    alone.session.handle_probed(alone.now, 2, Term(1), Some(later));
    assert_eq!(alone.take()[0], Output::Probe { server: 0, proof: later });
    let next = alone.session.next_timeout().expect("it goes there");
    assert_eq!(alone.at(next), [Output::Connect { server: 2 }]);
    for (told, acts) in [
        (Term(1), Some(ticket(1).proof)),
        (Term(1), Some(ticket(0).proof)),
        (Term(1), None),
        (Term(0), Some(later)),
        (Term(2), Some(later)),
    ] {
        let mut alone = scene();
        alone.session.handle_probed(alone.now, 2, told, acts);
        assert_eq!(alone.take(), [], "{told} {acts:?}");
        assert_eq!(alone.session.state(), SessionState::Holding);
    }
    // Those that have been told are not told for a new stream's sake.
    let mut alone = scene();
    for server in 1..4 {
        alone.session.handle_probed(alone.now, server, Term(1), None);
    }
    alone.session.handle_disconnected(alone.now);
    let next = alone.session.next_timeout().expect("it tries again");
    alone.at(next);
    alone.session.handle_connected(next);
    alone.say(opened(1));
    let probes = |output: &Output| matches!(output, Output::Probe { .. });
    assert!(!alone.at(next).iter().any(probes));
}

#[test]
fn digests_of_an_earlier_publish_are_not_those_of_the_next() {
    let mut alone = Alone::open(config("a:1"));
    alone.publishes(1);
    let old = alone.session.generation();
    let seq = alone.call(Call::Unpublish);
    alone.answer(seq, Answer::Unpublished);
    alone.session.handle_sealed(alone.now, old, sums(1));
    alone.publishes(2);
    alone.take();
    let own = alone.session.generation();
    for generation in [old, own.next()] {
        alone.session.handle_sealed(alone.now, generation, sums(1));
        alone.session.handle_seal_failed(alone.now, generation, "it is gone");
        assert_eq!((alone.take(), alone.session.error()), (vec![], None));
    }
    alone.session.handle_sealed(alone.now, own, sums(2));
    let sealed = ClientMessage::Sealed { generation: own, sums: sums(2) };
    assert_eq!(sent(&alone.take()), [&sealed]);
    // Once it is said, nothing can go wrong with it any more.
    alone.session.handle_sealed(alone.now, own, sums(3));
    alone.session.handle_seal_failed(alone.now, own, "it is gone");
    assert_eq!((alone.take(), alone.session.error()), (vec![], None));
}

/// The same rule, written down once more: what an assignment comes to after another one, of which nothing
/// was heard, which runs, or which has ended well or not.
#[test]
fn an_assignment_after_another_stops_and_fences_what_it_has_to_and_keeps_what_it_may() {
    for relaying in [false, true] {
        for staged in [false, true] {
            for (ended, well) in [(false, false), (true, false), (true, true)] {
                for (attempt, since) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)] {
                    let said = format!("{relaying} {staged} {ended} {well} {attempt} {since}");
                    let mut alone = Alone::open(relays(relaying));
                    if staged {
                        alone.holds(1);
                    }
                    let seq = alone.reads(2, staged);
                    if ended {
                        let failure = ReadFailure::Source { shard: 0, reason: "cut".into() };
                        let result = if well { Ok(sums(7)) } else { Err(failure) };
                        alone.session.handle_read(alone.now, seq, FIRST, result);
                    }
                    alone.take();
                    let generation = alone.session.generation();
                    let outputs = alone.assign(seq, attempt, since, assignment(2, staged));
                    if attempt == 1 {
                        assert_eq!(outputs, [], "{said}: it is known");
                        continue;
                    }
                    let keep = since == 1 && relaying;
                    let mut expected = Vec::new();
                    if !keep && !ended {
                        expected.push(Output::StopRead);
                    }
                    if !keep && !staged {
                        if relaying || well {
                            expected.push(Output::Fence(generation));
                        }
                        if relaying {
                            expected.push(Output::ExposeFilling(generation.next()));
                        }
                    }
                    if relaying && !staged {
                        let generation = if keep { generation } else { generation.next() };
                        let since = Attempt(since);
                        let filling = ClientMessage::Filling { seq, since, generation };
                        expected.push(Output::Send(filling));
                    }
                    let (attempt, assignment) = (Attempt(attempt), assignment(2, staged));
                    let deadline = START + DEADLINE;
                    let since = Attempt(since);
                    expected.push(Output::Read { seq, attempt, since, assignment, keep, deadline });
                    assert_eq!(outputs, expected, "{said}");
                    // What was assigned before is void now.
                    alone.session.handle_read(alone.now, seq, FIRST, Ok(sums(7)));
                    assert_eq!(alone.take(), [], "{said}");
                }
            }
        }
    }
    // Of another call.
    let mut alone = Alone::open(relays(true));
    let seq = alone.reads(2, false);
    for other in [OpSeq(seq.0 - 1), seq.next()] {
        assert_eq!(alone.assign(other, 2, 1, assignment(2, false)), []);
    }
}

#[test]
fn only_what_is_read_beside_the_memory_is_put_in_place_and_once() {
    let install = |alone: &mut Alone, seq, attempt| {
        alone.say(ServerMessage::Install { seq, attempt, deadline: DEADLINE })
    };
    let scene = |staged: bool| {
        let mut alone = Alone::open(relays(true));
        alone.holds(1);
        if !staged {
            let seq = alone.call(Call::Unpublish);
            alone.answer(seq, Answer::Unpublished);
        }
        let seq = alone.reads(2, staged);
        (alone, seq)
    };
    let read = |alone: &mut Alone, seq, result| {
        alone.session.handle_read(alone.now, seq, FIRST, result);
        alone.take();
    };
    // It is still being read, and nothing is in place.
    let (mut alone, seq) = scene(true);
    assert_eq!(install(&mut alone, seq, FIRST), []);
    alone.session.handle_installed(alone.now, seq, FIRST);
    assert_eq!(alone.take(), []);
    // It could not be read.
    let failure = ReadFailure::Source { shard: 0, reason: "cut".into() };
    read(&mut alone, seq, Err(failure));
    assert_eq!(install(&mut alone, seq, FIRST), []);
    assert_eq!(alone.session.version(), Some(version(1, 1)));
    // It was read into the memory.
    let (mut alone, seq) = scene(false);
    read(&mut alone, seq, Ok(sums(7)));
    assert_eq!(install(&mut alone, seq, FIRST), []);
    // It is read, and another is to be put in place.
    let (mut alone, seq) = scene(true);
    read(&mut alone, seq, Ok(sums(7)));
    for (seq, attempt) in
        [(seq, Attempt(0)), (seq, Attempt(2)), (OpSeq(seq.0 - 1), FIRST), (seq.next(), FIRST)]
    {
        assert_eq!(install(&mut alone, seq, attempt), []);
    }
    let generation = alone.session.generation();
    let expected = [Output::Fence(generation), Output::Install { seq, attempt: FIRST }];
    assert_eq!(install(&mut alone, seq, FIRST), expected);
    assert_eq!(alone.session.version(), None, "it holds neither");
    assert_eq!(install(&mut alone, seq, FIRST), [], "once");
    // Nobody asks how fast that is.
    let measures = |output: &Output| matches!(output, Output::Measure { .. });
    let outputs = alone.at(START + Span::from_secs(2));
    assert!(!outputs.iter().any(measures), "{outputs:?}");
    for (seq, attempt) in [(seq, Attempt(2)), (seq.next(), FIRST)] {
        alone.session.handle_installed(alone.now, seq, attempt);
        assert_eq!(alone.take(), []);
    }
    alone.session.handle_installed(alone.now, seq, FIRST);
    assert_eq!(alone.take()[0], Output::Expose(generation.next()));
}

#[test]
fn a_copy_aside_is_of_one_version_at_one_generation() {
    let offload = |alone: &mut Alone, version, generation| {
        alone.say(ServerMessage::Offload { version, generation })
    };
    let held = || {
        let mut alone = Alone::open(config("a:1"));
        alone.publishes(1);
        let generation = alone.session.generation();
        (alone, version(1, 1), generation)
    };
    let failed = |outputs: &[Output]| match sent(outputs)[..] {
        [ClientMessage::OffloadFailed { version, generation, reason }] => {
            Some((*version, *generation, reason.clone()))
        }
        _ => None,
    };
    for running in [false, true] {
        for (other, later) in [(version(1, 1), 1), (version(1, 2), 0), (version(2, 1), 0)] {
            let (mut alone, own, generation) = held();
            if running {
                assert_eq!(
                    offload(&mut alone, own, generation),
                    [Output::Offload { version: own, generation }]
                );
                assert_eq!(offload(&mut alone, own, generation), [], "it is being made");
            }
            let generation = Generation(generation.0 + later);
            let outputs = offload(&mut alone, other, generation);
            let reason = format!("it does not hold version {other}");
            assert_eq!(failed(&outputs), Some((other, generation, reason)));
        }
    }
    let (mut alone, own, generation) = held();
    offload(&mut alone, own, generation);
    let fails = |alone: &mut Alone, version, generation, reason: &str| {
        alone.session.handle_offload_failed(alone.now, version, generation, reason.into());
        failed(&alone.take())
    };
    assert_eq!(fails(&mut alone, version(1, 2), generation, "of another"), None);
    assert_eq!(fails(&mut alone, own, generation.next(), "of another"), None);
    let first = Some((own, generation, "the first".to_owned()));
    assert_eq!(fails(&mut alone, own, generation, "the first"), first);
    assert_eq!(fails(&mut alone, own, generation, "the second"), first, "what was said stays");
}

#[test]
fn each_seed_is_asked_for_once_whatever_its_number_and_its_failure_is_its_own() {
    let mut alone = Alone::open(config("a:1"));
    let asks = |alone: &mut Alone, ask| {
        let (version, deadline) = (version(1, 1), DEADLINE);
        alone.say(ServerMessage::Seed { version, ask, deadline })
    };
    let (version, deadline) = (version(1, 1), DEADLINE);
    let mut before = 0;
    // Names of another term may be lower.
    for ask in [5, 7, 3, u64::MAX, 1] {
        assert_eq!(asks(&mut alone, ask), [Output::Seed { version, ask, deadline }]);
        assert_eq!(asks(&mut alone, ask), [], "it is on its way");
        alone.session.handle_seed_failed(alone.now, before);
        assert_eq!(alone.take(), [], "an earlier one");
        alone.session.handle_seed_failed(alone.now, ask);
        let failed = ClientMessage::SeedFailed { ask };
        assert_eq!(sent(&alone.take()), [&failed]);
        assert_eq!(sent(&asks(&mut alone, ask)), [&failed], "it may have been lost");
        before = ask;
    }
}

fn timeout() -> CallError {
    CallError::Timeout { call: "update".into(), waiting_for: "it".into(), detail: String::new() }
}

/// What a transfer has left is gone on with by the next one, unless the memory was another one meanwhile.
#[test]
fn what_was_left_is_gone_on_with_after_any_call_but_one_that_changes_the_memory() {
    for staged in [false, true] {
        for (call, keeps) in [
            (Call::List, true),
            (cluster::wait(Default::default()), true),
            (Call::Unregister, false),
            (cluster::register(1), false),
        ] {
            let mut alone = Alone::open(relays(true));
            if staged {
                alone.holds(1);
            }
            let seq = alone.reads(2, staged);
            alone.say(ServerMessage::Answered { seq, result: Err(timeout()) });
            let seq = alone.call(call.clone());
            alone.take();
            let result = Err(timeout());
            let mut outputs = alone.say(ServerMessage::Answered { seq, result });
            outputs.pop();
            let unstage = (staged && !keeps).then_some(Output::Unstage);
            assert_eq!(outputs, unstage.into_iter().collect::<Vec<_>>(), "{call:?}");
            let seq = alone.call(cluster::update());
            let outputs = alone.assign(seq, 2, 1, assignment(2, staged));
            let kept = outputs.iter().find_map(|output| match output {
                Output::Read { keep, .. } => Some(*keep),
                _ => None,
            });
            assert_eq!(kept, Some(keeps), "{call:?}, {staged}");
        }
        // A server that is lost knows nothing of it.
        let mut alone = Alone::open(relays(true));
        alone.holds(1);
        let seq = alone.reads(2, staged);
        alone.say(ServerMessage::Answered { seq, result: Err(timeout()) });
        let outputs = alone.say(ServerMessage::Superseded);
        assert_eq!(outputs.contains(&Output::Unstage), staged);
    }
}

/// What lies beside the memory is freed before the next is read there, unless that goes on after it.
#[test]
fn what_was_left_and_is_not_gone_on_with_is_freed_first() {
    for (attempt, since, number, keeps) in
        [(2, 1, 2, true), (2, 2, 2, false), (2, 1, 3, false), (1, 1, 2, false)]
    {
        let mut alone = Alone::open(relays(true));
        alone.holds(1);
        let seq = alone.reads(2, true);
        alone.say(ServerMessage::Answered { seq, result: Err(timeout()) });
        let seq = alone.call(cluster::staged_update());
        alone.take();
        let outputs = alone.assign(seq, attempt, since, assignment(number, true));
        assert_eq!(outputs[0] == Output::Unstage, !keeps, "{attempt} {since} {number}");
        let reads = |output: &Output| matches!(output, Output::Read { keep, .. } if *keep == keeps);
        assert!(outputs.last().is_some_and(reads), "{outputs:?}");
    }
}

#[test]
fn whoever_leaves_during_a_transfer_keeps_nothing_of_it() {
    for relaying in [false, true] {
        let mut alone = Alone::open(relays(relaying));
        alone.holds(1);
        alone.reads(2, true);
        alone.session.close(alone.now, DEADLINE);
        let outputs = alone.take();
        assert_eq!(outputs[..2], [Output::StopRead, Output::Unstage]);
        // It fails while it takes leave: it is closed all the same.
        alone.say(ServerMessage::Broken { error: timeout() });
        assert_eq!((alone.session.error(), alone.session.state()), (None, SessionState::Ended));
    }
}

/// It was prepared when it lost its server: what came of that only the next one knows.
#[test]
fn a_doubt_lasts_until_the_group_is_whole_again() {
    let prepared = || {
        let mut alone = two();
        alone.call(Call::List);
        alone.answer(OpSeq(1), Answer::Unregistered);
        let seq = alone.reads(1, false);
        alone.session.handle_read(alone.now, seq, FIRST, Ok(sums(7)));
        (alone, seq)
    };
    let done = |outputs: &[Output], seq| {
        let done = outputs.iter().find_map(|output| match output {
            Output::Done { seq: of, result: Err(error) } if *of == seq => Some(error.clone()),
            _ => None,
        });
        done.expect("it has ended")
    };
    let doubt = CallError::InDoubt { version: version(1, 1) };
    let opens = |alone: &mut Alone| {
        let next = alone.session.next_timeout().expect("it tries again");
        alone.at(next);
        alone.session.handle_connected(next);
    };
    let no = || CallError::Misuse { detail: "no".into() };
    // The next server will not have it, or breaks its group.
    let (mut alone, seq) = prepared();
    alone.say(ServerMessage::Superseded);
    opens(&mut alone);
    let outputs = alone.say(ServerMessage::Refused { error: no(), retry: false });
    assert_eq!(done(&outputs, seq), doubt);
    let (mut alone, seq) = prepared();
    alone.goes_over(2);
    assert_eq!(done(&alone.say(ServerMessage::Broken { error: no() }), seq), doubt);
    // Lost twice.
    let (mut alone, seq) = prepared();
    alone.goes_over(2);
    alone.goes_over(3);
    assert_eq!(done(&alone.say(ServerMessage::Broken { error: no() }), seq), doubt);
    // Once no shard knows of an answer, there was none.
    let (mut alone, seq) = prepared();
    alone.goes_over(2);
    alone.say(ServerMessage::Recovered);
    assert_eq!(done(&alone.say(ServerMessage::Broken { error: no() }), seq), no());
}

/// A lease that ran out, of a server that lives on and takes the session in again, counts again.
#[test]
fn a_lease_that_is_granted_again_runs_out_again() {
    let mut alone = two();
    alone.holds(1);
    let end = LEASE.scaled(90, 100);
    alone.at(START + end);
    assert_eq!(alone.session.state(), SessionState::Suspended);
    alone.session.handle_connected(alone.now);
    alone.say(opened(1));
    alone.say(ServerMessage::Recovered);
    assert_eq!(alone.session.state(), SessionState::Holding);
    let again = alone.now + end;
    alone.at(Time(again.0 - 1));
    assert_eq!(alone.session.state(), SessionState::Holding);
    alone.at(again);
    assert_eq!(alone.session.state(), SessionState::Suspended);
}

/// Who was never taken in is told why. Who was, by an earlier server, may have a group that knows better.
#[test]
fn a_refusal_is_the_reason_of_who_was_never_taken_in() {
    let refuse = |alone: &mut Alone| {
        let error = CallError::Misuse { detail: "the name is taken".into() };
        alone.say(ServerMessage::Refused { error, retry: true });
        while alone.session.state() != SessionState::Ended {
            let next = alone.session.next_timeout().expect("it waits");
            alone.at(next);
        }
        alone.session.error().expect("it has failed").clone()
    };
    let taken = CallError::Misuse { detail: "the name is taken".into() };
    let mut alone = Alone::new(config("a:1,b:1"));
    alone.session.call(alone.now, Call::List, SECOND).expect("callable");
    alone.session.handle_connected(alone.now);
    assert_eq!(refuse(&mut alone), taken);

    let mut alone = two();
    alone.holds(1);
    alone.session.call(alone.now, Call::List, SECOND).expect("callable");
    alone.say(ServerMessage::Superseded);
    let next = alone.session.next_timeout().expect("it tries again");
    alone.at(next);
    alone.session.handle_connected(next);
    match refuse(&mut alone) {
        CallError::ServerUnreachable { reason, .. } => assert_eq!(reason, taken.to_string()),
        other => panic!("{other}"),
    }
}
