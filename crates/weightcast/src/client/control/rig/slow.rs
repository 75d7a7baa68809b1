//! A source that gives nothing for a while is left for another one, which the session can only know from
//! how far the read is.

use weightcast_protocol::Span;
use weightcast_protocol::message::{Answer, Role};
use weightcast_transport::{HoldPoint, Way};

use super::net::lock;
use super::scene::{LONG, READER, form, kind, run};
use super::worker::{ClientKind, good};
use super::world::RigWorld;

/// Several pieces.
const BYTES: u64 = 1_300_000;

/// What had come before is kept, in the memory and beside it.
#[test]
fn a_source_that_gives_nothing_is_left() {
    run(async {
        let client =
            || ClientKind { relays: true, ..kind(Role::Rollout, form(BYTES), Way::Direct) };
        for staged in [false, true] {
            let mut world = RigWorld::with_reader(BYTES, client()).await;
            let late = world.join(client());
            world.register(late).await;
            // Who holds nothing has nothing to go on serving, and stages nothing.
            world.read(late, false, LONG);
            assert!(matches!(good(world.answer(late).await), Answer::Committed { .. }));
            world.second_version().await;
            world.read(READER, false, LONG);
            assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
            world.gate.stop_at(HoldPoint::Asking, 1);
            world.read(late, staged, Span::from_secs(60));
            world.settle().await;
            assert!(world.gate.is_held());
            // Nobody opens the gate: the read is stopped, and another one is made.
            let begun = world.now;
            assert!(matches!(good(world.answer(late).await), Answer::Committed { .. }), "{staged}");
            assert!(world.now > begun, "it was held");
            let held = world.workers[late].control.session.version().map(|version| version.number);
            assert_eq!(held, Some(2));
            let figures = &world.workers[late].control.shared.figures;
            assert_eq!(figures.count(|model| model.retries), 1, "{staged}");
            // What was digested is the whole, not what came from the second source.
            let counters = {
                let net = lock(&world.net);
                net.servers[0].as_ref().expect("it lives").snapshot(world.now).counters
            };
            assert_eq!(counters.digest_mismatches, 0, "{staged}");
            world.look().await;
        }
    });
}
