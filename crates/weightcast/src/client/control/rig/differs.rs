//! A read of other bytes than were published.

use weightcast_protocol::CallError;
use weightcast_protocol::Span;
use weightcast_protocol::message::Role;
use weightcast_transport::Way;

use super::scene::{READER, TRAINER, form, kind, run};
use super::world::RigWorld;

/// It leaves what is needed to look for the difference, and nothing that the next read is compared with.
#[test]
fn a_read_that_differs_leaves_its_evidence_and_no_knowledge() {
    run(async {
        let reader = kind(Role::Rollout, form(9_000), Way::Direct);
        let mut world = RigWorld::with_reader(9_000, reader).await;
        // Its memory was changed under the seal.
        world.workers[TRAINER].lies = 5;
        world.workers[TRAINER].write(1);
        world.read(READER, false, Span::from_secs(5));
        let Err(failed) = world.answer(READER).await else { panic!("it differs") };
        assert!(matches!(failed.error, CallError::DigestMismatch { .. }), "{}", failed.error);
        let evidence = failed.evidence.expect("it has read all");
        assert_eq!(evidence.digests, evidence.registration.digest_all());
        let control = &world.workers[READER].control;
        assert!(!control.shared.routes.knows_content() && control.memory.note.is_none());
        world.workers[READER].let_go(0xee);
        world.look().await;
    });
}
