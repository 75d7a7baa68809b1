//! Streams that are late, that break, and what comes over one that is over.

use tonic::Status;
use weightcast_protocol::message::{Answer, Call, Role, ServerMessage};
use weightcast_protocol::session::{Session, SessionState};
use weightcast_protocol::{CallError, Condition, Selector, Span};
use weightcast_transport::Way;

use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::good;
use super::world::RigWorld;
use crate::client::event::Event;

fn reader() -> super::worker::ClientKind {
    kind(Role::Rollout, form(9_000), Way::Direct)
}

fn stream(world: &RigWorld, worker: usize) -> Option<u64> {
    world.workers[worker].control.stream.as_ref().map(|(stream, _)| *stream)
}

/// All that a client is: what the machine knows, and what the runtime holds for it.
fn state(world: &RigWorld, worker: usize) -> String {
    let control = &world.workers[worker].control;
    let (session, trouble): (&Session, _) = (&control.session, control.shared.trouble());
    format!("{session:?} {:?} {trouble:?}", stream(world, worker))
}

/// The streams that open are kept back until the third one has been asked for.
async fn three_late_streams() -> (RigWorld, Vec<Event>) {
    let mut world = RigWorld::new(1);
    world.keep = Some(|event| matches!(event, Event::Connected { .. }));
    world.join(reader());
    while world.kept.len() < 3 {
        world.pass(Span::from_secs(1)).await;
    }
    let kept = std::mem::take(&mut world.kept);
    world.keep = None;
    (world, kept.into_iter().map(|(_, event)| event).collect())
}

#[test]
fn a_stream_that_opens_after_another_was_asked_for_is_not_used() {
    run(async {
        let (mut world, late) = three_late_streams().await;
        for (place, event) in late.into_iter().enumerate() {
            let before = state(&world, 0);
            world.happen(0, event);
            if place < 2 {
                assert_eq!(state(&world, 0), before, "stream {place}");
            }
        }
        assert_eq!(stream(&world, 0), Some(3));
        world.settle().await;
        assert_eq!(world.workers[0].control.session.state(), SessionState::Empty);
    });
}

#[test]
fn a_stream_that_failed_after_another_was_asked_for_changes_nothing() {
    run(async {
        let (mut world, mut late) = three_late_streams().await;
        world.happen(0, late.pop().unwrap());
        world.settle().await;
        let before = state(&world, 0);
        for status in [Status::unavailable("late"), Status::unauthenticated("late")] {
            world.happen(0, Event::Connected { stream: 1, result: Err(status) });
            assert_eq!(state(&world, 0), before);
        }
    });
}

#[test]
fn a_late_stream_does_not_take_the_place_of_the_open_one() {
    run(async {
        let (mut world, mut late) = three_late_streams().await;
        world.happen(0, late.pop().unwrap());
        world.settle().await;
        let before = state(&world, 0);
        world.happen(0, late.pop().unwrap());
        assert_eq!(state(&world, 0), before);
        world.pass(Span::from_secs(10)).await;
        assert_eq!(stream(&world, 0), Some(3), "it is the one that lives");
    });
}

/// A world in which the reader's first stream has broken and a second one is open.
async fn at_the_second_stream() -> RigWorld {
    let mut world = RigWorld::with_reader(9_000, reader()).await;
    world.cut(READER);
    world.pass(Span::from_secs(1)).await;
    assert_eq!(stream(&world, READER), Some(2));
    world
}

#[test]
fn what_comes_over_an_earlier_stream_is_ignored() {
    run(async {
        let mut world = at_the_second_stream().await;
        world.read(READER, false, LONG);
        let error = CallError::Misuse { detail: "of an earlier stream".to_owned() };
        let seq = world.workers[READER].control.pending.keys().next().copied().unwrap();
        let version = world.workers[TRAINER].control.session.version().unwrap();
        let answer = Answer::Committed { version, source: "nobody".to_owned() };
        for message in [
            ServerMessage::Refused { error: error.clone(), retry: false },
            ServerMessage::Refused { error: error.clone(), retry: true },
            ServerMessage::Answered { seq, result: Ok(answer) },
            ServerMessage::Answered { seq, result: Err(error.clone()) },
            ServerMessage::Broken { error },
            ServerMessage::Superseded,
            ServerMessage::Release { deadline: Span(0) },
            ServerMessage::Closed,
        ] {
            let before = state(&world, READER);
            let said = format!("{message:?}");
            world.happen(READER, Event::Frame { stream: 1, message });
            assert_eq!(state(&world, READER), before, "{said}");
        }
        assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
    });
}

#[test]
fn the_end_of_an_earlier_stream_does_not_end_the_next() {
    run(async {
        let mut world = at_the_second_stream().await;
        let before = state(&world, READER);
        let reason = "of an earlier stream".to_owned();
        world.happen(READER, Event::StreamEnded { stream: 1, reason });
        assert_eq!(state(&world, READER), before);
    });
}

#[test]
fn what_comes_between_two_streams_is_ignored() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        world.keep = Some(|event| matches!(event, Event::Connected { .. }));
        world.cut(READER);
        world.pass(Span::from_secs(1)).await;
        assert_eq!(stream(&world, READER), None);
        let before = state(&world, READER);
        for stream in [1, 2] {
            world.happen(READER, Event::Frame { stream, message: ServerMessage::Closed });
            world.happen(READER, Event::StreamEnded { stream, reason: String::new() });
        }
        assert_eq!(state(&world, READER), before);
    });
}

/// The server says nothing for so long that another stream is asked for, and then says it all.
#[test]
fn what_comes_over_a_stream_that_was_given_up_is_ignored() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        world.keep = Some(|event| matches!(event, Event::Connected { .. } | Event::Frame { .. }));
        let asked = |(worker, event): &(usize, Event)| {
            *worker == READER && matches!(event, Event::Connected { .. })
        };
        while !world.kept.iter().any(asked) {
            world.pass(Span::from_secs(1)).await;
        }
        assert_eq!(stream(&world, READER), None, "until the next one is there");
        let before = state(&world, READER);
        world.happen(READER, Event::Frame { stream: 1, message: ServerMessage::Closed });
        world.happen(READER, Event::StreamEnded { stream: 1, reason: String::new() });
        assert_eq!(state(&world, READER), before);
    });
}

/// A stream that is full counts as broken, so the session asks for another.
#[test]
fn a_stream_that_takes_nothing_is_given_up() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        let (sender, _full) = tokio::sync::mpsc::channel(1);
        sender.try_send(crate::wire::ClientFrame::default()).unwrap();
        let current = stream(&world, READER).unwrap();
        world.workers[READER].control.stream = Some((current, sender));
        world.read(READER, false, LONG);
        assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
        assert!(stream(&world, READER) > Some(current));
    });
}

/// Its other half may still bring what the server had sent.
#[test]
fn what_comes_over_a_stream_that_took_nothing_is_ignored() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        let current = stream(&world, READER).unwrap();
        let reason = "it does not take messages".to_owned();
        world.keep = Some(|event| matches!(event, Event::Connected { .. }));
        world.happen(READER, Event::StreamEnded { stream: current, reason: reason.clone() });
        assert_eq!(stream(&world, READER), None);
        let before = state(&world, READER);
        world.happen(READER, Event::Frame { stream: current, message: ServerMessage::Closed });
        world.happen(READER, Event::StreamEnded { stream: current, reason });
        assert_eq!(state(&world, READER), before);
    });
}

type CallStep = (&'static str, fn(&mut RigWorld), fn(&Answer) -> bool);

fn version_exists() -> Condition {
    Condition::Available(Selector::Latest)
}

/// What a reader does in its life; each call is begun, and has this answer.
fn life() -> Vec<CallStep> {
    vec![
        ("list", |w| w.begin(READER, Call::List, LONG), |a| matches!(a, Answer::Listed(_))),
        (
            "wait",
            |w| w.begin(READER, Call::Wait { until: version_exists() }, LONG),
            |a| matches!(a, Answer::Listed(_)),
        ),
        (
            "describe",
            |w| w.begin(READER, Call::Describe { selector: Selector::Latest }, LONG),
            |a| matches!(a, Answer::Described { .. }),
        ),
        ("update", |w| w.read(READER, false, LONG), |a| matches!(a, Answer::Committed { .. })),
        (
            "unpublish",
            |w| w.begin(READER, Call::Unpublish, LONG),
            |a| matches!(a, Answer::Unpublished),
        ),
        ("again", |w| w.read(READER, true, LONG), |a| matches!(a, Answer::Committed { .. })),
        ("nothing", |w| w.read(READER, true, LONG), |a| matches!(a, Answer::Unchanged { .. })),
        (
            "release",
            |w| w.begin(READER, Call::Unpublish, LONG),
            |a| matches!(a, Answer::Unpublished),
        ),
        (
            "unregister",
            |w| w.begin(READER, Call::Unregister, LONG),
            |a| matches!(a, Answer::Unregistered),
        ),
    ]
}

/// Lets so many events happen from the moment when a call is begun, then cuts the stream.
async fn broken_after(events: u64, call: usize) -> bool {
    let mut world = RigWorld::with_reader(9_000, reader()).await;
    for (place, (name, begin, expected)) in life().into_iter().enumerate() {
        begin(&mut world);
        let first = world.happened;
        let mut cut = false;
        let reply = loop {
            if place == call && !cut && world.happened - first >= events {
                world.cut(READER);
                cut = true;
            }
            if let Some(reply) = world.workers[READER].answered() {
                break reply;
            }
            world.one().await;
        };
        let answer = good(reply);
        assert!(expected(&answer), "{name}, cut after {events}: {answer:?}");
        if place == call {
            return cut;
        }
    }
    false
}

#[test]
fn a_stream_may_break_in_the_middle_of_each_call() {
    run(async {
        for call in 0..life().len() {
            let mut events = 0;
            while broken_after(events, call).await {
                events += 1;
            }
            assert!(events > 0, "call {call}");
        }
    });
}
