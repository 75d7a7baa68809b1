//! A publication that is refused: nobody reads it, its record is there for those who look for the
//! difference, and the next one is as if it had not been.

use weightcast_protocol::CallError;
use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_transport::Way;

use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::good;
use super::world::RigWorld;

/// The reader holds version 1, and the trainer publishes something else as that.
async fn refused() -> RigWorld {
    let reader = kind(Role::Rollout, form(9_000), Way::Direct);
    let mut world = RigWorld::with_reader(9_000, reader).await;
    world.read(READER, false, LONG);
    assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
    assert_eq!(world.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
    world.workers[TRAINER].let_go(0xdd);
    world.workers[TRAINER].lies = 5;
    world.publish(TRAINER, 1).await;
    world
}

#[test]
fn what_is_refused_has_a_record_until_something_else_is_published() {
    run(async {
        let mut world = refused().await;
        let memory = &world.workers[TRAINER].control.memory;
        assert!(memory.exposed.is_empty());
        // Where others look for it: at the generation after that which was served.
        let control = &world.workers[TRAINER].control;
        let export = control.shared.current().map(|(_, export)| export);
        let found = export.map(|export| export.at(control.session.generation().0));
        assert!(memory.record.is_some() && memory.record == found);
        assert!(memory.refusal().is_some());
        assert_eq!(control.shared.figures.count(|model| model.refusals), 1);
        world.begin(TRAINER, Call::Unpublish, LONG);
        let Err(failed) = world.answer(TRAINER).await else { panic!("it was refused") };
        assert!(matches!(failed.error, CallError::ContentMismatch { .. }), "{}", failed.error);
        assert!(failed.refusal.is_some(), "with what tells where");
        let control = &world.workers[TRAINER].control;
        assert!(control.memory.refusal().is_none() && control.memory.note.is_none());
        // Other shards may still look.
        assert!(control.memory.record.is_some());
        world.workers[TRAINER].lies = 0;
        world.workers[TRAINER].let_go(0xdd);
        world.publish(TRAINER, 2).await;
        let memory = &world.workers[TRAINER].control.memory;
        assert!(memory.record.is_none() && memory.refusal().is_none());
        world.notes_are_served();
        world.read(READER, true, LONG);
        assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
        world.look().await;
    });
}
