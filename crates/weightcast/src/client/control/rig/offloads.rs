//! Copies of retained versions, from the moment when they are asked for until nobody needs them.

use std::sync::mpsc::channel;

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{CallError, Span};
use weightcast_transport::{HoldPoint, Way};

use super::net::lock;
use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::{ClientKind, good};
use super::world::RigWorld;
use crate::client::event::Event;

const BYTES: u64 = 9_000;
/// Both tensors.
const ROOM: u64 = BYTES + BYTES / 3;

/// A trainer that retains its newest version, with room for one copy; and a reader that holds nothing.
async fn retained() -> RigWorld {
    let mut world = RigWorld::new(5);
    let trainer = kind(Role::Trainer, form(BYTES), Way::Auto);
    world.join(ClientKind { retain: 1, room: Some(ROOM), ..trainer });
    world.join(ClientKind { relays: true, ..kind(Role::Rollout, form(BYTES), Way::Direct) });
    for worker in [TRAINER, READER] {
        world.register(worker).await;
    }
    world.publish(TRAINER, 1).await;
    world
}

impl RigWorld {
    /// The trainer gives version 1 up; the copy that has its place then.
    async fn copied(&mut self) -> usize {
        self.begin(TRAINER, Call::Unpublish, LONG);
        self.until("the copy", |world| {
            world.workers[TRAINER].answered().is_some_and(|reply| {
                assert_eq!(good(reply), Answer::Unpublished);
                true
            })
        })
        .await;
        assert!(self.workers[TRAINER].control.offloader.is_stopped());
        self.workers[TRAINER].let_go(0xdd);
        let live = self.live_seconds();
        assert_eq!(live.len(), 1);
        live[0]
    }

    /// Nothing of a copy is left, whoever it was made for: its thread lets go of the memory last.
    async fn nothing_is_left(&mut self, of: usize) {
        self.until("its end", |world| {
            let shared = world.workers.iter().filter(|worker| worker.second);
            let mut shared = shared.map(|worker| &worker.control.shared);
            let let_go =
                shared.all(|copy| copy.exports.exports().is_empty() && copy.current().is_none());
            let_go && world.live_seconds().is_empty() && world.workers[of].has_room()
        })
        .await;
        self.look().await;
    }

    async fn reads(&mut self, version: u64) {
        self.read(READER, false, LONG);
        assert!(matches!(good(self.answer(READER).await), Answer::Committed { .. }));
        let held = self.workers[READER].control.session.version();
        assert_eq!(held.map(|held| held.number), Some(version));
        self.look().await;
    }
}

#[test]
fn a_copy_is_read_from_and_goes_with_the_version() {
    run(async {
        let mut world = retained().await;
        for version in 1..4 {
            let copy = world.copied().await;
            let held = world.workers[copy].control.session.version();
            assert_eq!(held.map(|held| held.number), Some(version));
            assert!(!world.workers[TRAINER].has_room(), "it is taken");
            world.reads(version).await;
            assert_eq!(world.ask(READER, Call::Unpublish).await, Answer::Unpublished);
            world.workers[READER].let_go(0xee);
            world.publish(TRAINER, version + 1).await;
            world.nothing_is_left(TRAINER).await;
            let figures = &world.workers[TRAINER].control.shared.figures;
            assert_eq!(figures.count(|model| model.offloads), version);
        }
    });
}

/// Memory that is let go of while it is read keeps its bytes until the reader has gone.
#[test]
fn a_copy_that_is_not_needed_any_more_waits_for_its_reader() {
    run(async {
        for point in [HoldPoint::Asking, HoldPoint::Taking, HoldPoint::Judging] {
            let mut world = retained().await;
            let copy = world.copied().await;
            world.gate.stop_at(point, 0);
            world.read(READER, false, LONG);
            world.settle().await;
            assert!(world.gate.is_held(), "{point:?}");
            let now = world.now;
            world.workers[TRAINER].write(2);
            world.acting(TRAINER, "publish", |worker| worker.publish(now, 2));
            world.pass(Span::from_secs(1)).await;
            assert!(!world.workers[copy].gone, "{point:?}: it is read from");
            world.gate.open();
            assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
            assert!(matches!(good(world.answer(TRAINER).await), Answer::Published { .. }));
            world.nothing_is_left(TRAINER).await;
            world.reads(2).await;
        }
    });
}

/// Whatever ends the call for which a copy is made, the owner's memory is its own, and the copy goes.
#[test]
fn a_copy_that_comes_too_late_is_not_kept() {
    type End = fn(&mut RigWorld);
    let ends: [(&str, End); 2] = [
        ("it closes", |world| {
            let (reply, _closed) = channel();
            world.happen(TRAINER, Event::Close { deadline: Span::from_millis(1), reply });
        }),
        ("it loses its server", |world| {
            lock(&world.net).unreachable.push(TRAINER);
            world.cut(TRAINER);
        }),
    ];
    run(async move {
        for (what, end) in ends {
            let mut world = retained().await;
            world.seconds.late = true;
            world.begin(TRAINER, Call::Unpublish, LONG);
            world.until("the copy asks", |world| world.seconds.asking() == 1).await;
            assert!(!world.workers[TRAINER].has_room(), "{what}: its room is taken");
            end(&mut world);
            world.pass(Span::from_secs(80)).await;
            assert!(world.workers[TRAINER].answered().is_some(), "{what}: its call has ended");
            assert_eq!(world.workers[TRAINER].control.session.state(), SessionState::Ended);
            assert!(world.workers[TRAINER].control.offloader.is_stopped(), "{what}");
            world.workers[TRAINER].let_go(0xdd);
            world.seconds.late = false;
            // Some are refused at once.
            world.until("it opens", |world| world.workers.iter().any(|of| of.second)).await;
            world.pass(Span::from_secs(80)).await;
            world.nothing_is_left(TRAINER).await;
        }
    });
}

/// The call for which a copy was made ran out of time, so the copy goes; the next call has one made anew.
#[test]
fn a_copy_that_was_let_go_of_is_made_again() {
    const LATE: usize = 2;
    run(async {
        let mut world = RigWorld::new(5);
        world.join(ClientKind { retain: 2, ..kind(Role::Trainer, form(BYTES), Way::Auto) });
        for _ in [READER, LATE] {
            let reader = kind(Role::Rollout, form(BYTES), Way::Direct);
            world.join(ClientKind { relays: true, room: Some(ROOM), ..reader });
        }
        for worker in [TRAINER, READER, LATE] {
            world.register(worker).await;
        }
        world.publish(TRAINER, 1).await;
        world.reads(1).await;
        // The reader is the only one that has version 1, and is read from.
        assert_eq!(world.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
        world.workers[TRAINER].let_go(0xdd);
        world.gate.stop_at(HoldPoint::Taking, 0);
        world.read(LATE, false, LONG);
        world.settle().await;
        assert!(world.gate.is_held());
        world.publish(TRAINER, 2).await;
        world.read(READER, false, Span::from_secs(2));
        let copied = |world: &mut RigWorld| {
            let copies = world.live_seconds();
            copies.iter().any(|copy| world.workers[*copy].control.session.version().is_some())
        };
        world.until("the copy", copied).await;
        let Err(failed) = world.answer(READER).await else { panic!("it is read from") };
        assert!(matches!(failed.error, CallError::Timeout { .. }), "{}", failed.error);
        world.nothing_is_left(READER).await;
        world.gate.open();
        assert!(matches!(good(world.answer(LATE).await), Answer::Committed { .. }));
        world.read(LATE, false, LONG);
        assert!(matches!(good(world.answer(LATE).await), Answer::Committed { .. }));
        world.reads(2).await;
        world.until("the copy again", copied).await;
        assert!(!world.workers[READER].has_room(), "it is taken");
    });
}

/// No room for a copy: the version is lost, and the owner goes on.
#[test]
fn without_room_the_owner_goes_on() {
    run(async {
        let mut world = retained().await;
        let (registration, _) = world.workers[TRAINER].control.shared.current().unwrap();
        let taken = world.workers[TRAINER].room.take(&registration, std::time::Duration::ZERO);
        world.begin(TRAINER, Call::Unpublish, LONG);
        world.until("the answer", |world| world.workers[TRAINER].answered().is_some()).await;
        assert!(world.live_seconds().is_empty());
        world.workers[TRAINER].let_go(0xdd);
        world.read(READER, false, Span::from_secs(2));
        let Err(failed) = world.answer(READER).await else { panic!("nobody has it") };
        assert!(!matches!(failed.error, CallError::Misuse { .. }), "{}", failed.error);
        drop((taken, registration));
        world.publish(TRAINER, 2).await;
        world.copied().await;
        world.reads(2).await;
    });
}

/// The copy's stream breaks, or its server dies and comes back: it is still the version.
#[test]
fn a_copy_outlives_its_streams() {
    run(async {
        let mut world = retained().await;
        let copy = world.copied().await;
        world.cut(copy);
        world.pass(Span::from_secs(5)).await;
        world.reads(1).await;
        world.publish(TRAINER, 2).await;
        world.nothing_is_left(TRAINER).await;
    });
}

/// The thread that keeps a copy ends with its session, whatever ended that.
#[test]
fn a_copy_that_has_lost_its_server_ends() {
    run(async {
        let mut world = retained().await;
        let copy = world.copied().await;
        lock(&world.net).unreachable.push(copy);
        world.cut(copy);
        world.pass(Span::from_secs(80)).await;
        world.nothing_is_left(TRAINER).await;
    });
}
