//! What a server may have missed is said again on the next stream, all of it and nothing else; to a new server
//! only once the group is whole there.

use super::*;
use weightcast_protocol::message::{Announcement, Holding, Registration};
use weightcast_protocol::session::SessionState;

const FIRST: Attempt = Attempt(1);

fn relays() -> SessionConfig {
    SessionConfig { relays: true, ..config("a:1,b:1") }
}

fn read(alone: &mut Alone, seq: OpSeq) {
    alone.session.handle_read(alone.now, seq, FIRST, Ok(sums(7)));
}

fn fails(alone: &mut Alone, seq: OpSeq) {
    let failure = ReadFailure::Source { shard: 0, reason: "cut".into() };
    alone.session.handle_read(alone.now, seq, FIRST, Err(failure));
}

fn install(alone: &mut Alone, seq: OpSeq) {
    alone.say(ServerMessage::Install { seq, attempt: FIRST, deadline: DEADLINE });
}

/// Its stream breaks, and another one is opened.
fn reopens(alone: &mut Alone) -> Vec<Output> {
    alone.take();
    alone.session.handle_disconnected(alone.now);
    let next = alone.session.next_timeout().expect("it tries again");
    alone.at(next);
    alone.session.handle_connected(next);
    alone.take();
    alone.say(opened(1))
}

/// The names of what is sent, in order.
fn names(outputs: &[Output]) -> Vec<String> {
    let name = |message: &&ClientMessage| {
        let text = format!("{message:?}");
        text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
    };
    sent(outputs).iter().map(name).collect()
}

type Case = (&'static str, fn(&mut Alone), &'static [&'static str]);

const CASES: [Case; 13] = [
    ("holds", |alone| alone.holds(1), &["Sealed"]),
    ("digests", |alone| alone.publishes(1), &[]),
    (
        "has digested",
        |alone| {
            alone.publishes(1);
            alone.session.handle_sealed(alone.now, alone.session.generation(), sums(1));
        },
        &["Sealed"],
    ),
    ("calls", |alone| _ = alone.call(Call::List), &["Call"]),
    ("reads", |alone| _ = alone.reads(1, false), &["Call", "Filling"]),
    (
        "has read",
        |alone| {
            let seq = alone.reads(1, false);
            read(alone, seq);
        },
        &["Call", "Filling", "Prepared"],
    ),
    (
        "can't read",
        |alone| {
            let seq = alone.reads(1, false);
            fails(alone, seq);
        },
        &["Call", "Filling", "ReadFailed"],
    ),
    (
        "reads beside",
        |alone| {
            alone.holds(1);
            alone.reads(2, true);
        },
        &["Sealed", "Call"],
    ),
    (
        "has read beside",
        |alone| {
            alone.holds(1);
            let seq = alone.reads(2, true);
            read(alone, seq);
        },
        &["Sealed", "Call", "Prepared"],
    ),
    (
        "installs",
        |alone| {
            alone.holds(1);
            let seq = alone.reads(2, true);
            read(alone, seq);
            install(alone, seq);
        },
        &["Call"],
    ),
    (
        "has installed",
        |alone| {
            alone.holds(1);
            let seq = alone.reads(2, true);
            read(alone, seq);
            install(alone, seq);
            alone.session.handle_installed(alone.now, seq, FIRST);
        },
        &["Call", "Installed"],
    ),
    (
        "can't offload",
        |alone| {
            alone.publishes(1);
            let (version, generation) = (version(1, 1), alone.session.generation());
            alone.say(ServerMessage::Offload { version, generation });
            let (now, reason) = (alone.now, "full".into());
            alone.session.handle_offload_failed(now, version, generation, reason);
        },
        &["OffloadFailed"],
    ),
    (
        "can't seed",
        |alone| {
            let (version, deadline) = (version(1, 1), DEADLINE);
            alone.say(ServerMessage::Seed { version, ask: 3, deadline });
            alone.session.handle_seed_failed(alone.now, 3);
        },
        &["SeedFailed"],
    ),
];

#[test]
fn on_a_new_stream_all_is_said_again_that_may_have_been_lost() {
    for (name, prepare, expected) in CASES {
        let mut alone = Alone::open(relays());
        prepare(&mut alone);
        let before = names(&alone.take());
        let outputs = reopens(&mut alone);
        assert_eq!(names(&outputs), expected, "{name}");
        let last = before.last().filter(|last| *last != "Call");
        assert!(last.is_none_or(|last| expected.contains(&last.as_str())), "{name}: {before:?}");
        // And on the next one.
        assert_eq!(names(&reopens(&mut alone)), expected, "{name}, again");
    }
}

/// What was said of a read that an earlier server had assigned is not of the next one's.
#[test]
fn a_new_server_is_told_what_the_shard_brings_and_the_rest_once_the_group_is_whole() {
    for (name, prepare, said) in CASES {
        let mut alone = Alone::open(relays());
        alone.call(Call::List);
        let listing = Answer::Unregistered;
        alone.answer(OpSeq(1), listing);
        prepare(&mut alone);
        let outputs = alone.goes_over(2);
        assert_eq!(names(&outputs), ["Open", "Announce"], "{name}");
        alone.at(alone.now); // it tells the others
        // Neither what happens meanwhile, nor what is owed.
        let generation = alone.session.generation();
        alone.session.handle_sealed(alone.now, generation, sums(1));
        alone.session.handle_seed_failed(alone.now, 3);
        if !said.contains(&"Call") {
            alone.call(Call::List);
        }
        let outputs = alone.take();
        assert_eq!(names(&outputs), Vec::<String>::new(), "{name}: it is not whole yet");
        assert_eq!(alone.session.state(), SessionState::Suspended);
        let expected: Vec<&str> = match name {
            "holds" | "has digested" | "reads beside" | "has read beside" => vec!["Sealed", "Call"],
            "can't seed" => vec!["Call", "SeedFailed"],
            _ => vec!["Call"],
        };
        assert_eq!(names(&alone.say(ServerMessage::Recovered)), expected, "{name}");
        assert_eq!(alone.say(ServerMessage::Recovered), [], "{name}: once");
    }
}

/// Who has published in its last words to an earlier server publishes what is there now.
#[test]
fn a_publish_that_is_made_again_offers_the_memory_as_it_is_served_now() {
    let mut alone = Alone::open(relays());
    alone.call(Call::List);
    alone.answer(OpSeq(1), Answer::Unregistered);
    alone.call(cluster::publish(1));
    let before = alone.session.generation();
    assert!(alone.take().contains(&Output::Expose(before)));
    let outputs = alone.goes_over(2);
    assert!(!outputs.iter().any(|output| matches!(output, Output::Expose(_))), "it holds nothing");
    alone.at(alone.now); // it tells the others
    let outputs = alone.say(ServerMessage::Recovered);
    let generation = alone.session.generation();
    assert!(generation > before);
    assert_eq!(outputs[0], Output::Expose(generation), "before anybody is told");
    match &sent(&outputs)[..] {
        [ClientMessage::Call { call: Call::Publish { generation: offered, .. }, .. }] => {
            assert_eq!(*offered, generation);
        }
        other => panic!("{other:?}"),
    }
    // Another call exposes nothing.
    let mut alone = Alone::open(relays());
    alone.call(Call::List);
    alone.answer(OpSeq(1), Answer::Unregistered);
    alone.call(Call::List);
    alone.goes_over(2);
    alone.at(alone.now);
    let outputs = alone.say(ServerMessage::Recovered);
    assert!(matches!(outputs[..], [Output::Send(ClientMessage::Call { .. })]), "{outputs:?}");
}

fn announced(outputs: &[Output]) -> Announcement {
    let announced = sent(outputs).into_iter().find_map(|message| match message {
        ClientMessage::Announce(announcement) => Some(announcement.clone()),
        _ => None,
    });
    announced.expect("it brings its group along")
}

#[test]
fn a_shard_brings_its_registration_as_long_as_it_has_one() {
    let mut alone = Alone::open(config("a:1,b:1"));
    let layouts = vec![ContentDigest([5; 16])].into();
    let seq = alone.call(cluster::register(5));
    alone.answer(seq, Answer::Registered { layouts, siblings: [].into() });
    let registration =
        Registration { layout: ContentDigest([5; 16]), export: ExportId(5), bytes: 8 };
    assert_eq!(announced(&alone.goes_over(2)).registration, Some(registration));
    alone.say(ServerMessage::Recovered);
    let seq = alone.call(Call::Unregister);
    // Until it is answered, the memory is registered.
    assert_eq!(announced(&alone.goes_over(3)).registration, Some(registration));
    alone.say(ServerMessage::Recovered);
    alone.answer(seq, Answer::Unregistered);
    assert_eq!(announced(&alone.goes_over(4)).registration, None);
}

#[test]
fn what_was_refused_is_brought_along_as_refused_and_served_to_nobody() {
    let mut alone = Alone::open(config("a:1,b:1"));
    alone.publishes(1);
    let generation = alone.session.generation();
    let error = CallError::ContentMismatch {
        version: version(1, 1),
        replica: "r".into(),
        detail: "it differs".into(),
    };
    let witnesses = Box::default();
    alone.say(ServerMessage::Fenced { generation, error, witnesses });
    let exposes = |outputs: &[Output]| {
        outputs.iter().any(|o| matches!(o, Output::Expose(_) | Output::ExposeFilling(_)))
    };
    let outputs = alone.goes_over(2);
    let held = Holding {
        version: version(1, 1),
        catalog: CATALOG,
        sums: None,
        refused: true,
        withdrawn: false,
    };
    assert_eq!((announced(&outputs).held, exposes(&outputs)), (Some(held), false));
    alone.say(ServerMessage::Recovered);
    // Nor if its program publishes it again.
    let seq = alone.call(cluster::publish(1));
    assert!(!exposes(&alone.take()));
    let outputs = reopens_in(&mut alone, 2);
    assert!(!exposes(&outputs), "{outputs:?}");
    let result = Err(CallError::Misuse { detail: "no".into() });
    assert!(!exposes(&alone.say(ServerMessage::Answered { seq, result })));
    assert_eq!(alone.session.state(), SessionState::Refused);
}

fn reopens_in(alone: &mut Alone, term: u64) -> Vec<Output> {
    alone.session.handle_disconnected(alone.now);
    let next = alone.session.next_timeout().expect("it tries again");
    alone.at(next);
    alone.session.handle_connected(next);
    alone.take();
    alone.say(opened(term))
}

/// What is published is not digested again, nor served anew, for being published once more.
#[test]
fn publishing_what_is_held_asks_for_nothing() {
    let mut alone = Alone::open(relays());
    alone.publishes(1);
    alone.session.handle_sealed(alone.now, alone.session.generation(), sums(1));
    alone.take();
    let generation = alone.session.generation();
    let seq = alone.call(cluster::publish(1));
    match &alone.take()[..] {
        [
            Output::Send(ClientMessage::Call {
                call: Call::Publish { generation: of, .. }, ..
            }),
        ] => {
            assert_eq!(*of, generation);
        }
        other => panic!("{other:?}"),
    }
    let result = Ok(Answer::Published { version: version(1, 1) });
    let outputs = alone.say(ServerMessage::Answered { seq, result: result.clone() });
    assert_eq!(outputs, [Output::Done { seq, result }]);
    assert_eq!(names(&reopens(&mut alone)), ["Sealed"], "the digests are the same as before");
}

/// A group that has had no answer yet has nothing to come over with.
#[test]
fn who_has_had_no_answer_opens_anew_and_calls_again() {
    for calls in [false, true] {
        let mut alone = Alone::open(config("a:1,b:1"));
        let seq = calls.then(|| alone.call(cluster::register(0)));
        alone.take();
        alone.say(ServerMessage::Superseded);
        assert_eq!(alone.session.state(), SessionState::Opening);
        let next = alone.session.next_timeout().expect("it tries again");
        alone.at(next);
        alone.session.handle_connected(next);
        match &sent(&alone.take())[..] {
            [ClientMessage::Open(open)] => assert!(!open.rejoins && open.ticket.is_some()),
            other => panic!("{other:?}"),
        }
        let outputs = alone.say(opened(2));
        let expected: &[&str] = if seq.is_some() { &["Call"] } else { &[] };
        assert_eq!(names(&outputs), expected);
        assert_eq!(alone.session.state(), SessionState::Empty);
    }
    // With an answer it has.
    let mut alone = Alone::open(config("a:1,b:1"));
    alone.call(Call::List);
    alone.answer(OpSeq(1), Answer::Unregistered);
    alone.say(ServerMessage::Superseded);
    let next = alone.session.next_timeout().expect("it tries again");
    alone.at(next);
    alone.session.handle_connected(next);
    assert!(matches!(sent(&alone.take())[..], [ClientMessage::Open(open)] if open.rejoins));
}
