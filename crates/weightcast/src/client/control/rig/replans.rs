//! Plans, and what is left of reads, after a new registration.

use std::fs;
use std::path::PathBuf;

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::{CallError, Selector, Span};
use weightcast_transport::{HoldPoint, Way};

use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::worker::{ClientKind, Form, good};
use super::world::RigWorld;
use crate::client::reading::plans::PlanFrom;

/// Larger than what is asked for at once.
const PIECES: u64 = 1_300_000;

impl RigWorld {
    /// Reads the newest version; where its plan came from.
    async fn planned(&mut self) -> PlanFrom {
        self.read(READER, false, LONG);
        match self.answer(READER).await {
            Ok((Answer::Committed { .. }, transfer)) => transfer.plan_from,
            Ok((other, _)) => panic!("{other:?}"),
            Err(failed) => panic!("{}", failed.error),
        }
    }

    /// Registers other memory, in which the tensors lie so.
    async fn registers(&mut self, form: Form) {
        if self.workers[READER].control.session.version().is_some() {
            assert_eq!(self.ask(READER, Call::Unpublish).await, Answer::Unpublished);
        }
        assert_eq!(self.ask(READER, Call::Unregister).await, Answer::Unregistered);
        self.workers[READER].control.shared.release();
        self.workers[READER].let_go(0xee);
        self.workers[READER].form = form;
        self.register(READER).await;
    }
}

fn reader(plans: Option<PathBuf>) -> ClientKind {
    ClientKind { plans, ..kind(Role::Rollout, form(9_000), Way::Direct) }
}

fn turned() -> Form {
    Form { turned: true, ..form(9_000) }
}

#[test]
fn a_plan_is_not_used_for_memory_that_is_registered_after_it_was_made() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader(None)).await;
        assert_eq!(world.planned().await, PlanFrom::Planner);
        for form in [turned(), form(9_000), turned()] {
            world.registers(form).await;
            assert_eq!(world.planned().await, PlanFrom::Planner);
            world.look().await;
        }
    });
}

#[test]
fn a_stored_plan_is_used_for_its_own_layout_only() {
    let directory = std::env::temp_dir().join(format!("wc-rig-plans-{}", std::process::id()));
    let plans = directory.clone();
    run(async move {
        let mut world = RigWorld::with_reader(9_000, reader(Some(plans))).await;
        assert_eq!(world.planned().await, PlanFrom::Planner);
        for (form, from) in [
            (turned(), PlanFrom::Planner),
            (form(9_000), PlanFrom::File),
            (turned(), PlanFrom::File),
        ] {
            world.registers(form).await;
            assert_eq!(world.planned().await, from);
            world.look().await;
        }
    });
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_plan_that_is_made_for_a_trainer_is_not_used_for_the_next_one() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader(None)).await;
        assert_eq!(world.planned().await, PlanFrom::Planner);
        assert_eq!(world.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
        world.workers[TRAINER].let_go(0xee);
        assert_eq!(world.ask(TRAINER, Call::Unregister).await, Answer::Unregistered);
        world.workers[TRAINER].control.shared.release();
        world.workers[TRAINER].form = turned();
        world.register(TRAINER).await;
        world.publish(TRAINER, 2).await;
        assert_eq!(world.planned().await, PlanFrom::Planner);
        world.look().await;
    });
}

/// A relay whose read ran out of time keeps what had come, for the same memory.
async fn broken_off() -> RigWorld {
    let reader = ClientKind { relays: true, ..kind(Role::Rollout, form(PIECES), Way::Direct) };
    let mut world = RigWorld::with_reader(PIECES, reader).await;
    world.gate.stop_at(HoldPoint::Telling, 1);
    world.read(READER, false, Span::from_secs(1));
    world.settle().await;
    assert!(world.gate.is_held());
    world.pass(Span::from_secs(1)).await;
    let Err(failed) = world.answer(READER).await else { panic!("out of time") };
    assert!(matches!(failed.error, CallError::Timeout { .. }), "{}", failed.error);
    world
}

#[test]
fn what_is_left_of_a_read_is_gone_on_with_in_the_same_memory() {
    run(async {
        let mut world = broken_off().await;
        world.gate.open();
        world.settle().await;
        world.workers[READER].take_back();
        world.gate.stop_at(HoldPoint::Asking, 0);
        let call = Call::Replicate { selector: Selector::Exact(1) };
        world.begin(READER, call, LONG);
        world.settle().await;
        let progress = world.workers[READER].control.memory.progress();
        let progress = progress.expect("it reads");
        let whole = PIECES + PIECES / 3;
        world.gate.open();
        assert!(progress.left > 0 && progress.left < whole, "{progress:?}");
        assert!(matches!(good(world.answer(READER).await), Answer::Committed { .. }));
        world.look().await;
    });
}

#[test]
fn what_is_left_of_a_read_is_not_gone_on_with_in_other_memory() {
    run(async {
        let mut world = broken_off().await;
        world.registers(form(PIECES)).await;
        world.ask_exactly().await;
        world.look().await;
    });
}

impl RigWorld {
    async fn ask_exactly(&mut self) {
        self.gate.open();
        self.workers[READER].take_back();
        let call = Call::Replicate { selector: Selector::Exact(1) };
        assert!(matches!(self.ask(READER, call).await, Answer::Committed { .. }));
    }
}
