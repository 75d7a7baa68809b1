//! What whoever waits is told: that the session is open, that it is sealed, that it is over, and why.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tonic::{Code, Status};
use weightcast_protocol::engine_update::{FleetQuestion, RoutingQuestion};
use weightcast_protocol::message::{Call, Role, ServerMessage};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{CallError, Span};
use weightcast_transport::Way;

use super::net::lock;
use super::scene::{LONG, READER, TRAINER, form, kind, run};
use super::world::RigWorld;
use crate::client::event::{Event, FailedCall};

fn reader() -> super::worker::ClientKind {
    kind(Role::Rollout, form(9_000), Way::Direct)
}

impl RigWorld {
    fn await_open(&mut self, worker: usize) -> Receiver<Result<(), CallError>> {
        let (reply, told) = channel();
        self.happen(worker, Event::AwaitOpen { reply });
        told
    }

    fn await_seal(&mut self, worker: usize) -> Receiver<Result<(), FailedCall>> {
        let (reply, told) = channel();
        self.happen(worker, Event::AwaitSeal { reply });
        told
    }

    fn await_end(&mut self, worker: usize) -> Receiver<Option<CallError>> {
        let (reply, told) = channel();
        self.happen(worker, Event::AwaitEnd { reply });
        told
    }

    /// One client whose streams the test opens, and the first that it has asked for.
    async fn before_it_opens() -> Self {
        let mut world = Self::new(1);
        world.keep = Some(|event| matches!(event, Event::Connected { .. }));
        world.join(reader());
        world.settle().await;
        assert_eq!(world.kept.len(), 1);
        world
    }

    fn refuse(&mut self, code: Code) {
        let result = Err(Status::new(code, "says a test"));
        self.happen(0, Event::Connected { stream: 1, result });
    }

    fn trouble(&self, worker: usize) -> Option<CallError> {
        self.workers[worker].control.shared.trouble()
    }
}

#[track_caller]
fn says(error: &CallError, what: &str) {
    let CallError::ServerUnreachable { reason, .. } = error else { panic!("{error}") };
    assert!(reason.contains(what), "{reason}");
}

#[test]
fn a_server_that_does_not_take_the_token_ends_the_session_at_once() {
    run(async {
        let mut world = RigWorld::before_it_opens().await;
        let (open, end) = (world.await_open(0), world.await_end(0));
        world.begin(0, Call::List, LONG);
        world.refuse(Code::Unauthenticated);
        assert_eq!(world.workers[0].control.session.state(), SessionState::Ended);
        says(&open.try_recv().unwrap().unwrap_err(), "says a test");
        says(&end.try_recv().unwrap().unwrap(), "says a test");
        let Some(Err(failed)) = world.workers[0].answered() else { panic!("the call ends too") };
        says(&failed.error, "says a test");
        // Whoever asks later is told the same, and no other stream is asked for.
        says(&world.await_open(0).try_recv().unwrap().unwrap_err(), "says a test");
        says(&world.await_seal(0).try_recv().unwrap().unwrap_err().error, "says a test");
        says(&world.await_end(0).try_recv().unwrap().unwrap(), "says a test");
        let (reply, told) = channel();
        let (model, deadline) = ("model".to_owned(), Duration::from_secs(20));
        let question = FleetQuestion::State;
        world.happen(0, Event::AskFleet { model, question, deadline, reply });
        let error = told.try_recv().unwrap().unwrap_err().to_string();
        assert!(error.contains("says a test"), "{error}");
        let (reply, told) = channel();
        let (model, question) = ("model".to_owned(), RoutingQuestion::Engines);
        world.happen(0, Event::AskRouting { model, question, deadline, reply });
        let error = told.try_recv().unwrap().unwrap_err().to_string();
        assert!(error.contains("says a test"), "{error}");
        world.begin(0, Call::List, LONG);
        let Some(Err(failed)) = world.workers[0].answered() else { panic!("it is over") };
        says(&failed.error, "says a test");
        world.pass(Span::from_secs(100)).await;
        assert_eq!(world.kept.len(), 1);
    });
}

/// Calls learn why the session is over for as long as there is a handle.
#[test]
fn a_thread_whose_session_is_over_stays_until_its_handle_is_closed() {
    run(async {
        let mut world = RigWorld::before_it_opens().await;
        world.refuse(Code::Unauthenticated);
        let mut worker = world.workers.remove(0);
        let (reply, told) = channel();
        worker.control.events.send(Event::AwaitEnd { reply }).unwrap();
        assert!(worker.control.step(&mut worker.queue).await);
        says(&told.try_recv().unwrap().unwrap(), "says a test");
        let (reply, _closed) = channel();
        worker.control.events.send(Event::Close { deadline: LONG, reply }).unwrap();
        assert!(!worker.control.step(&mut worker.queue).await);
    });
}

/// The machine only knows that no answer came.
#[test]
fn a_call_that_found_no_server_is_told_why() {
    run(async {
        let mut world = RigWorld::before_it_opens().await;
        world.begin(0, Call::List, Span::from_secs(2));
        world.refuse(Code::Unavailable);
        world.pass(Span::from_secs(3)).await;
        let Some(Err(failed)) = world.workers[0].answered() else { panic!("nobody answers") };
        says(&failed.error, "Unavailable: says a test");
    });
}

/// Whoever waits for the session to open hears that as the reason, if time runs out.
#[test]
fn what_a_server_says_of_a_client_that_it_does_not_take_yet_is_kept() {
    run(async {
        let mut world = RigWorld::before_it_opens().await;
        let (worker, connected) = world.kept.remove(0);
        world.happen(worker, connected);
        let error = CallError::Misuse { detail: "says a test".to_owned() };
        let message = ServerMessage::Refused { error: error.clone(), retry: true };
        world.happen(0, Event::Frame { stream: 1, message });
        assert_eq!(world.workers[0].control.session.state(), SessionState::Opening);
        assert_eq!(world.trouble(0), Some(error));
    });
}

#[test]
fn a_server_that_is_not_reached_is_tried_again_and_forgotten_once_it_is() {
    run(async {
        for code in [Code::Unavailable, Code::PermissionDenied, Code::DeadlineExceeded] {
            let mut world = RigWorld::before_it_opens().await;
            let open = world.await_open(0);
            let end = world.await_end(0);
            world.refuse(code);
            assert_eq!(world.workers[0].control.session.state(), SessionState::Opening);
            says(&world.trouble(0).unwrap(), &format!("{code:?}: says a test"));
            world.keep = None;
            world.pass(Span::from_secs(5)).await;
            assert_eq!(world.workers[0].control.session.state(), SessionState::Empty);
            assert_eq!(open.try_recv().unwrap(), Ok(()));
            assert_eq!(world.trouble(0), None);
            assert_eq!(world.await_open(0).try_recv().unwrap(), Ok(()), "it is open");
            assert!(end.try_recv().is_err(), "it is not over");
        }
    });
}

#[test]
fn a_server_that_stays_away_ends_the_session() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        lock(&world.net).unreachable.push(READER);
        world.cut(READER);
        let end = world.await_end(READER);
        world.pass(Span::from_secs(80)).await;
        assert_eq!(world.workers[READER].control.session.state(), SessionState::Ended);
        assert!(matches!(end.try_recv(), Ok(Some(CallError::ServerUnreachable { .. }))));
        says(
            &world.await_open(READER).try_recv().unwrap().unwrap_err(),
            "no server took the group over",
        );
    });
}

#[test]
fn who_has_closed_in_good_order_is_told_no_error() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        let end = world.await_end(READER);
        let (reply, closed) = channel();
        world.happen(READER, Event::Close { deadline: LONG, reply });
        assert!(end.try_recv().is_err());
        world.settle().await;
        assert_eq!(end.try_recv(), Ok(None));
        assert_eq!(world.await_end(READER).try_recv(), Ok(None));
        let error = world.await_open(READER).try_recv().unwrap().unwrap_err();
        assert!(
            matches!(&error, CallError::Misuse { detail } if detail.contains("closed")),
            "{error}"
        );
        assert!(closed.try_recv().is_err(), "that is told when the thread leaves");
    });
}

#[test]
fn all_who_wait_for_the_seal_are_told_once_it_is_there() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        drop(world.ask(TRAINER, Call::Unpublish).await);
        world.workers[TRAINER].let_go(0xdd);
        world.keep = Some(|event| matches!(event, Event::Sealed { .. }));
        assert!(matches!(world.await_seal(TRAINER).try_recv(), Ok(Ok(()))), "of nothing");
        world.publish(TRAINER, 2).await;
        let (early, late) = (world.await_seal(TRAINER), world.await_seal(TRAINER));
        assert!(early.try_recv().is_err() && late.try_recv().is_err());
        let (_, sealed) = world.kept.remove(0);
        world.happen(TRAINER, sealed);
        world.settle().await;
        for told in [early, late, world.await_seal(TRAINER)] {
            assert!(matches!(told.try_recv(), Ok(Ok(()))));
        }
    });
}

#[test]
fn a_digest_that_fails_ends_what_was_published() {
    run(async {
        let mut world = RigWorld::with_reader(9_000, reader()).await;
        drop(world.ask(TRAINER, Call::Unpublish).await);
        world.workers[TRAINER].let_go(0xdd);
        world.keep = Some(|event| matches!(event, Event::Sealed { .. }));
        world.publish(TRAINER, 2).await;
        let told = world.await_seal(TRAINER);
        let (_, Event::Sealed { generation, .. }) = world.kept.remove(0) else { panic!("kept") };
        let reason = "says a test".to_owned();
        world.happen(TRAINER, Event::SealFailed { generation, reason });
        world.settle().await;
        let Ok(Err(failed)) = told.try_recv() else { panic!("it never will be sealed") };
        assert!(failed.error.to_string().contains("says a test"), "{}", failed.error);
    });
}
