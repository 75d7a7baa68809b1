//! A source that comes back as another process at the address of the first.

use weightcast_protocol::message::{Answer, Role};
use weightcast_protocol::{Span, Version};
use weightcast_transport::Way;

use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::good;
use super::world::RigWorld;

/// A reader that holds what a trainer had published, which is another process since and has version 2.
async fn restarted(way: Way) -> RigWorld {
    let reader = kind(Role::Rollout, form(9_000), way);
    let mut world = RigWorld::with_reader(9_000, reader).await;
    world.read(READER, false, LONG);
    assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
    world.restart(TRAINER, kind(Role::Trainer, form(9_000), Way::Auto));
    // Until the lease of the first has passed.
    world.pass(Span::from_secs(10)).await;
    world.register(TRAINER).await;
    world.publish(TRAINER, 2).await;
    world
}

#[test]
fn a_source_that_is_another_process_is_reached_anew() {
    run(async {
        for way in [Way::Direct, Way::Tcp] {
            let mut world = restarted(way).await;
            // The first read may learn of it; the next one knows.
            world.read(READER, true, Span::from_secs(5));
            let _ = world.answer(READER).await;
            world.read(READER, true, LONG);
            drop(good(world.answer(READER).await));
            let held = world.workers[READER].control.session.version();
            assert!(matches!(held, Some(Version { number: 2, .. })), "{way:?}: {held:?}");
            world.look().await;
        }
    });
}
