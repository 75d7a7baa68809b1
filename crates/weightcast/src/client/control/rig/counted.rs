//! What the figures of a process say of a client.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_transport::Way;

use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::good;
use super::world::RigWorld;

/// Of a staged update all is put in place.
#[test]
fn what_was_put_in_place_is_told() {
    run(async {
        let reader = kind(Role::Rollout, form(9_000), Way::Direct);
        let mut world = RigWorld::with_reader(9_000, reader).await;
        world.second_version().await;
        for (staged, bytes) in [(true, 12_000), (false, 0)] {
            world.read(READER, staged, LONG);
            let Ok((_, transfer)) = world.answer(READER).await else { panic!("it is read") };
            assert_eq!(transfer.staged, bytes);
            assert_eq!(world.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
            world.workers[TRAINER].let_go(0xdd);
            world.publish(TRAINER, 3).await;
        }
    });
}

#[test]
fn what_a_client_holds_is_told_as_it_changes() {
    run(async {
        let reader = kind(Role::Rollout, form(9_000), Way::Direct);
        let mut world = RigWorld::with_reader(9_000, reader).await;
        let held = |world: &RigWorld| {
            let figures = &world.workers[READER].control.shared.figures;
            let versions = figures.count(|model| model.versions());
            versions.iter().map(|version| version.number).collect::<Vec<_>>()
        };
        assert!(held(&world).is_empty());
        world.second_version().await;
        let trainer = &world.workers[TRAINER].control.shared.figures;
        assert!(trainer.count(|model| model.sealing_took()) > 0.0);
        assert_eq!(held(&world), [1]);
        world.read(READER, false, LONG);
        drop(good(world.answer(READER).await));
        assert_eq!(held(&world), [2]);
        assert_eq!(world.ask(READER, Call::Unpublish).await, Answer::Unpublished);
        assert!(held(&world).is_empty());
    });
}
