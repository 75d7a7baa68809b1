//! Memory that is let go of while it is read: not one byte of it is written after that, and nothing
//! is taken from it that ends well. Reads are stopped at each of their points, and there it is done.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{CallError, Span};
use weightcast_transport::HoldPoint::{self, Asking, Judging, Taking, Telling};
use weightcast_transport::Way;

use super::net::lock;
use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::world::RigWorld;
use crate::client::event::Event;

/// More than two pieces.
const BYTES: u64 = 1_300_000;
const POINTS: [HoldPoint; 4] = [Asking, Taking, Judging, Telling];
const WAYS: [Way; 2] = [Way::Direct, Way::Tcp];

impl RigWorld {
    /// The reader's memory is its program's again.
    fn let_go(&mut self) {
        self.workers[READER].let_go(0xee);
    }

    /// Lets whatever was stopped go on, and looks.
    async fn go_on(&mut self) {
        self.gate.open();
        self.pass(Span::from_secs(1)).await;
        self.look().await;
        assert!(self.workers[READER].control.memory.read.is_none(), "no read is left");
    }

    fn lose_server(&mut self, worker: usize) {
        lock(&self.net).unreachable.push(worker);
        self.cut(worker);
    }
}

/// The reader's memory while a read of it stands at a point, by each way.
async fn at_each_point(staged: bool, then: impl AsyncFn(&mut RigWorld)) {
    for way in WAYS {
        for point in POINTS {
            let mut world =
                RigWorld::with_reader(BYTES, kind(Role::Rollout, form(BYTES), way)).await;
            if staged {
                world.second_version().await;
            }
            world.gate.stop_at(point, 1);
            world.read(READER, staged, Span::from_secs(5));
            world.settle().await;
            assert!(world.gate.is_held(), "{way:?} at {point:?}");
            then(&mut world).await;
        }
    }
}

#[test]
fn a_call_that_runs_out_of_time_leaves_the_memory_alone() {
    run(at_each_point(false, async |world| {
        world.pass(Span::from_secs(5)).await;
        let Err(failed) = world.answer(READER).await else { panic!("it runs out of time") };
        assert!(matches!(failed.error, CallError::Timeout { .. }), "{}", failed.error);
        world.let_go();
        world.go_on().await;
    }));
}

#[test]
fn a_handle_that_is_closed_leaves_the_memory_alone() {
    run(at_each_point(false, async |world| {
        let (reply, closed) = std::sync::mpsc::channel();
        world.happen(READER, Event::Close { deadline: Span::from_millis(1), reply });
        world.pass(Span::from_secs(4)).await;
        assert_eq!(world.workers[READER].control.session.state(), SessionState::Ended);
        assert!(closed.try_recv().is_err(), "the thread tells once it has left");
        assert!(world.workers[READER].answered().is_some(), "its call has ended");
        world.let_go();
        world.go_on().await;
    }));
}

#[test]
fn a_thread_that_leaves_leaves_the_memory_alone() {
    run(at_each_point(false, async |world| {
        let index = READER;
        let mut worker = world.workers.remove(index);
        let (reply, closed) = std::sync::mpsc::channel();
        worker.control.awaiting_close.push(reply);
        world.gate.busy(true);
        worker.control.leave();
        world.gate.busy(false);
        closed.try_recv().expect("the last that it does");
        let written: Vec<_> = worker.regions.drain(..).collect();
        written.iter().for_each(|r| r.write_at(0, &vec![7; r.len()]).unwrap());
        world.gate.open();
        world.settle().await;
        for region in written {
            assert!(region.to_vec().iter().all(|byte| *byte == 7));
        }
    }));
}

#[test]
fn a_thread_that_leaves_serves_nothing_any_more() {
    run(async {
        let reader = kind(Role::Rollout, form(BYTES), Way::Direct);
        let mut world = RigWorld::with_reader(BYTES, reader).await;
        let mut worker = world.workers.remove(TRAINER);
        let shared = std::sync::Arc::clone(&worker.control.shared);
        assert_eq!(shared.exports.exports().len(), 1);
        worker.control.leave();
        assert!(shared.exports.exports().is_empty());
    });
}

#[test]
fn a_session_that_is_over_leaves_the_memory_alone() {
    run(at_each_point(false, async |world| {
        world.lose_server(READER);
        world.pass(Span::from_secs(8)).await;
        assert!(world.workers[READER].answered().is_some(), "its call has ended");
        world.let_go();
        world.go_on().await;
        world.pass(Span::from_secs(80)).await;
        assert_eq!(world.workers[READER].control.session.state(), SessionState::Ended);
        world.look().await;
    }));
}

#[test]
fn a_staged_read_that_is_stopped_leaves_nothing_beside_the_memory() {
    run(at_each_point(true, async |world| {
        world.pass(Span::from_secs(5)).await;
        assert!(world.answer(READER).await.is_err());
        world.go_on().await;
        let reader = &world.workers[READER].control;
        assert!(reader.memory.staged.is_none());
        assert!(reader.session.version().is_some(), "what it held it holds");
    }));
}

/// What becomes of a read whose source lets go of its memory, where nobody tells the reader: only the
/// fence does.
async fn source_lets_go(then: impl AsyncFn(&mut RigWorld)) {
    for way in WAYS {
        for point in [Asking, Taking, Judging] {
            for piece in 0..3 {
                let mut world =
                    RigWorld::with_reader(BYTES, kind(Role::Rollout, form(BYTES), way)).await;
                world.gate.stop_at(point, piece);
                world.read(READER, false, LONG);
                world.settle().await;
                assert!(world.gate.is_held(), "{way:?} at {point:?} of piece {piece}");
                world.keep = Some(|event| matches!(event, Event::ReadDone { .. }));
                // Whatever the server says to the reader comes too late.
                world.deaf = Some(READER);
                then(&mut world).await;
                world.workers[TRAINER].let_go(0xdd);
                world.gate.open();
                world.settle().await;
                let done = world.kept.pop().expect("the read has ended");
                let (READER, Event::ReadDone { result, .. }) = done else {
                    panic!("it is the reader's")
                };
                assert!(result.is_err(), "{way:?} at {point:?} of piece {piece}: torn bytes");
                world.workers[TRAINER].check("the end");
            }
        }
    }
}

#[test]
fn readers_of_what_is_unpublished_end_as_fenced() {
    run(source_lets_go(async |world| {
        // Its readers are waited for, and then cut off.
        world.begin(TRAINER, Call::Unpublish, Span::from_secs(20));
        let reply = world.answer(TRAINER).await;
        assert!(matches!(reply, Ok((Answer::Unpublished, _))));
    }));
}

#[test]
fn readers_of_what_is_closed_end_as_fenced() {
    run(source_lets_go(async |world| {
        let (reply, _closed) = std::sync::mpsc::channel();
        world.happen(TRAINER, Event::Close { deadline: Span::from_millis(1), reply });
        world.pass(Span::from_secs(4)).await;
        assert_eq!(world.workers[TRAINER].control.session.state(), SessionState::Ended);
    }));
}

#[test]
fn readers_of_who_has_lost_its_server_end_as_fenced() {
    run(source_lets_go(async |world| {
        world.lose_server(TRAINER);
        world.pass(Span::from_secs(80)).await;
        assert_eq!(world.workers[TRAINER].control.session.state(), SessionState::Ended);
    }));
}
