//! Ends of work that come late: of a digest, of a read, of what was copied into place.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::{Attempt, OpSeq, Span};
use weightcast_transport::Way;

use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::world::RigWorld;
use crate::client::event::Event;

async fn world() -> RigWorld {
    RigWorld::with_reader(9_000, kind(Role::Rollout, form(9_000), Way::Direct)).await
}

async fn republish(world: &mut RigWorld, version: u64) {
    world.publish(TRAINER, version).await;
}

/// What was digested for an earlier publication says nothing of the next one.
#[test]
fn a_digest_of_what_was_unpublished_is_not_kept() {
    run(async {
        let mut world = world().await;
        assert_eq!(world.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
        world.workers[TRAINER].let_go(0xdd);
        world.keep = Some(|event| matches!(event, Event::Sealed { .. }));
        republish(&mut world, 2).await;
        world.begin(TRAINER, Call::Unpublish, Span::from_secs(2));
        world.pass(Span::from_secs(3)).await;
        let first = world.kept.remove(0);
        let (_, Event::Sealed { generation, sums, note }) = first else { panic!("a digest") };
        assert_ne!(world.workers[TRAINER].control.memory.note.as_ref(), Some(&note));
        let again = |note: &[u8]| Event::Sealed { generation, sums, note: note.to_vec() };
        world.happen(TRAINER, again(&note));
        world.settle().await;
        // It was of this one, whether it is withdrawn or not; once more is of nothing.
        let kept = world.workers[TRAINER].control.memory.note.clone();
        world.happen(TRAINER, again(b"later"));
        assert_eq!(world.workers[TRAINER].control.memory.note, kept);
        world.look().await;
    });
}

/// What a read has brought counts for its own attempt.
#[test]
fn the_end_of_a_read_that_was_stopped_is_not_taken_for_that_of_the_next() {
    run(async {
        let mut world = world().await;
        world.keep = Some(|event| matches!(event, Event::ReadDone { .. }));
        world.read(READER, false, Span::from_secs(1));
        world.pass(Span::from_secs(2)).await;
        assert!(world.answer(READER).await.is_err());
        assert_eq!(world.kept.len(), 1, "a read has ended, and nobody was told");
        world.workers[READER].let_go(0xee);
        let (_, late) = world.kept.remove(0);
        world.happen(READER, late);
        world.look().await;
        assert!(world.workers[READER].control.session.version().is_none());
        world.keep = None;
        world.read(READER, false, LONG);
        assert!(world.answer(READER).await.is_ok());
        world.look().await;
    });
}

/// What is told to be in place after the group has given up is not held.
#[test]
fn what_is_in_place_too_late_is_not_held() {
    run(async {
        let mut world = world().await;
        world.second_version().await;
        world.keep = Some(|event| matches!(event, Event::Installed { .. }));
        world.read(READER, true, LONG);
        world.pass(Span::from_secs(90)).await;
        assert!(world.answer(READER).await.is_err());
        assert!(world.workers[READER].control.memory.staged.is_none());
        world.workers[READER].let_go(0xee);
        let (_, late) = world.kept.remove(0);
        world.happen(READER, late);
        world.look().await;
        assert!(world.workers[READER].control.session.version().is_none());
    });
}

/// Nor is one of another call.
#[test]
fn what_another_call_has_put_in_place_ends_no_call() {
    run(async {
        let mut world = world().await;
        world.second_version().await;
        world.keep = Some(|event| matches!(event, Event::Installed { .. }));
        world.read(READER, true, LONG);
        world.pass(Span::from_secs(1)).await;
        let (_, Event::Installed { seq, attempt, installed }) = world.kept.remove(0) else {
            panic!("it is in place")
        };
        let (other, next) = (OpSeq(seq.0 + 1), Attempt(attempt.0 + 1));
        for (seq, attempt) in [(other, attempt), (seq, next)] {
            world.happen(READER, Event::Installed { seq, attempt, installed });
            world.settle().await;
            assert!(world.workers[READER].pending.is_some());
            assert!(world.workers[READER].control.session.version().is_none());
        }
        world.happen(READER, Event::Installed { seq, attempt, installed });
        assert!(matches!(world.answer(READER).await, Ok((Answer::Committed { .. }, _))));
        world.look().await;
    });
}
