//! Seeds: versions that are brought near in the background, read from there, and let go of.

use std::sync::mpsc::channel;

use weightcast_protocol::Span;
use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_transport::{HoldPoint, Way};

use super::groups::update;
use super::net::lock;
use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::{ClientKind, good};
use super::world::RigWorld;
use crate::client::event::Event;

const BYTES: u64 = 9_000;
const ROOM: u64 = BYTES + BYTES / 3;

/// A trainer here that has published version 2, and a reader far from it that holds version 1, with
/// room for one seed.
async fn far() -> RigWorld {
    let mut world = RigWorld::new(6);
    let here = kind(Role::Trainer, form(BYTES), Way::Auto);
    world.join(ClientKind { datacentre: "here".to_owned(), ..here });
    world.join(ClientKind {
        datacentre: "there".to_owned(),
        relays: true,
        seeding: true,
        room: Some(ROOM),
        ..kind(Role::Rollout, form(BYTES), Way::Direct)
    });
    for worker in [TRAINER, READER] {
        world.register(worker).await;
    }
    world.publish(TRAINER, 1).await;
    world.read(READER, false, LONG);
    assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
    world.next_version(2).await;
    world
}

impl RigWorld {
    async fn next_version(&mut self, version: u64) {
        assert_eq!(self.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
        self.workers[TRAINER].let_go(0xdd);
        self.publish(TRAINER, version).await;
    }

    /// An update that is left to a seed.
    async fn asks_for_a_seed(&mut self) {
        assert!(matches!(self.ask(READER, update(false)).await, Answer::Unchanged { .. }));
    }

    /// A seed that holds a version.
    async fn seeded(&mut self, version: u64) -> usize {
        self.until("the seed", |world| {
            let seed = world.live_seconds().first().copied();
            let held = seed.and_then(|seed| world.workers[seed].control.session.version());
            held.is_some_and(|held| held.number == version)
        })
        .await;
        self.live_seconds()[0]
    }

    async fn is_alone_again(&mut self) {
        self.until("its end", |world| {
            world.live_seconds().is_empty() && world.workers[READER].has_room()
        })
        .await;
        self.look().await;
    }

    fn reader_holds(&self) -> Option<u64> {
        self.held(&[READER])
    }
}

#[test]
fn a_seed_is_read_from_and_goes_when_nobody_lacks_it() {
    run(async {
        let mut world = far().await;
        for version in 2..5 {
            world.asks_for_a_seed().await;
            let seed = world.seeded(version).await;
            assert!(!world.workers[READER].has_room(), "it is taken");
            assert_eq!(world.reader_holds(), Some(version - 1), "it has not waited");
            // The trainer is not read from any more.
            world.gate.stop_at(HoldPoint::Taking, 0);
            world.read(READER, version % 2 == 0, LONG);
            world.settle().await;
            assert!(world.gate.is_held() && !world.workers[seed].gone);
            world.gate.open();
            assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
            assert_eq!(world.reader_holds(), Some(version));
            world.is_alone_again().await;
            let figures = &world.workers[READER].control.shared.figures;
            assert_eq!(figures.count(|model| model.seeds), version - 1);
            world.next_version(version + 1).await;
        }
    });
}

/// The seed's own read is stopped, and its owner or its server is gone meanwhile.
#[test]
fn a_seed_ends_with_whom_it_is_for() {
    type End = fn(&mut RigWorld, usize);
    let ends: [(&str, End); 3] = [
        ("its owner closes", |world, _| {
            let (reply, _closed) = channel();
            world.happen(READER, Event::Close { deadline: Span::from_millis(1), reply });
        }),
        ("its owner is lost", |world, _| {
            lock(&world.net).unreachable.push(READER);
            world.cut(READER);
        }),
        ("it is lost", |world, seed| {
            lock(&world.net).unreachable.push(seed);
            world.cut(seed);
        }),
    ];
    run(async move {
        for (what, end) in ends {
            for point in [HoldPoint::Asking, HoldPoint::Judging, HoldPoint::Telling] {
                let mut world = far().await;
                world.gate.stop_at(point, 0);
                world.asks_for_a_seed().await;
                world.until("its read", |world| world.gate.is_held()).await;
                let seed = world.live_seconds()[0];
                end(&mut world, seed);
                world.pass(Span::from_secs(80)).await;
                world.gate.open();
                world.is_alone_again().await;
                assert!(world.workers[seed].control.shared.current().is_none(), "{what}");
            }
        }
    });
}

/// A seed that comes to nothing is told of, and the next update crosses by itself.
#[test]
fn without_a_seed_an_update_crosses_by_itself() {
    run(async {
        let mut world = far().await;
        world.seconds.late = true;
        world.asks_for_a_seed().await;
        world.until("it asks", |world| world.seconds.asking() == 1).await;
        // Its thread lets go of the room first, and says so when it gets to it.
        world.keep = Some(|event| matches!(event, Event::SeedFailed { .. }));
        world.seconds.forget();
        world.until("its end", |world| !world.kept.is_empty()).await;
        assert!(world.workers[READER].has_room());
        world.keep = None;
        let (reader, failed) = world.kept.remove(0);
        world.happen(reader, failed);
        // Its time is the server's to say.
        world.pass(Span::from_secs(1)).await;
        assert!(matches!(world.ask(READER, update(false)).await, Answer::Committed { .. }));
        assert_eq!(world.reader_holds(), Some(2));
        world.look().await;
    });
}
