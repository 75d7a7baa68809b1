//! Calls of a handle whose memory others write.

use std::sync::mpsc::Receiver;

use weightcast_protocol::message::{Answer, Call, ClientMessage, Role, ServerMessage};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{Condition, Selector, Span};
use weightcast_transport::Way;

use super::net::lock;
use super::scene::{LONG, READER, form, kind, run};
use super::worker::ClientKind;
use super::world::RigWorld;
use crate::client::event::Event;
use crate::client::push::target::TargetEvent;
use crate::convert::client_message;

const BYTES: u64 = 9_000;

async fn world() -> RigWorld {
    let reader = ClientKind { relays: true, ..kind(Role::Rollout, form(BYTES), Way::Direct) };
    RigWorld::with_reader(BYTES, reader).await
}

impl RigWorld {
    /// Others write the reader's memory from now on; what comes to its target is left to the test.
    fn push_to_reader(&self) -> Receiver<TargetEvent> {
        let room = &self.workers[READER].control.shared.push.target;
        let events = room.open().expect("nobody accepts yet");
        room.begin_fill();
        events
    }

    fn is_pushed_to(&self) -> bool {
        self.workers[READER].control.memory.is_pushed_to()
    }

    /// What clients have said that has not come to a server.
    fn said(&self) -> Vec<ClientMessage> {
        let (mut net, mut said) = (lock(&self.net), Vec::new());
        for line in net.lines.values_mut() {
            while let Ok(frame) = line.up.try_recv() {
                said.push(client_message(frame).expect("what was encoded"));
            }
        }
        said
    }
}

/// The server sends readers to memory that is filled, but not while others write it.
#[test]
fn memory_that_others_write_is_offered_to_no_reader() {
    run(async {
        for pushed in [false, true] {
            let mut world = world().await;
            world.keep = Some(|event| {
                matches!(event, Event::Frame { message: ServerMessage::Assigned { .. }, .. })
            });
            let events = pushed.then(|| world.push_to_reader());
            world.read(READER, false, LONG);
            world.settle().await;
            let (_, assigned) = world.kept.pop().expect("a source");
            world.happen(READER, assigned);
            let said = world.said();
            let offered = said.iter().any(|of| matches!(of, ClientMessage::Filling { .. }));
            assert_eq!(offered, !pushed, "{said:?}");
            let memory = &world.workers[READER].control.memory;
            assert_eq!(memory.exposed.is_empty(), pushed);
            assert!(memory.read.is_some());
            let left = events.map(|events| events.try_recv());
            assert_eq!(matches!(left, Some(Ok(TargetEvent::Read(_)))), pushed);
            world.settle().await;
        }
    });
}

/// It serves nothing meanwhile, and afterwards at another generation.
#[test]
fn a_shard_that_has_lost_its_server_writes_nothing_into_others() {
    run(async {
        let mut world = world().await;
        world.read(READER, false, LONG);
        assert!(world.answer(READER).await.is_ok());
        let shared = std::sync::Arc::clone(&world.workers[READER].control.shared);
        let room = &shared.push.sending;
        room.begin();
        world.pass(Span::from_secs(5)).await;
        assert!(!room.is_over());
        let held = world.workers[READER].control.session.version();
        lock(&world.net).unreachable.push(READER);
        world.cut(READER);
        world.pass(Span::from_secs(20)).await;
        assert_eq!(world.workers[READER].control.session.version(), held);
        assert!(held.is_some() && room.is_over());
    });
}

/// Well or not: nobody writes once the caller has its answer.
#[test]
fn a_push_ends_with_its_call() {
    run(async {
        let condition = Condition::Available(Selector::Exact(9));
        for (call, well) in [(Call::List, true), (Call::Wait { until: condition }, false)] {
            let mut world = world().await;
            let _events = world.push_to_reader();
            world.begin(READER, call, Span::from_secs(2));
            assert!(world.is_pushed_to());
            let answer = world.answer(READER).await;
            assert_eq!(matches!(answer, Ok((Answer::Listed(_), _))), well);
            assert!(!world.is_pushed_to());
        }
    });
}

#[test]
fn a_push_ends_with_its_session() {
    run(async {
        let mut world = world().await;
        let _events = world.push_to_reader();
        let (reply, _closed) = std::sync::mpsc::channel();
        world.happen(READER, Event::Close { deadline: LONG, reply });
        world.settle().await;
        assert_eq!(world.workers[READER].control.session.state(), SessionState::Ended);
        assert!(!world.is_pushed_to());
    });
}

#[test]
fn a_push_ends_with_its_thread() {
    run(async {
        let mut world = world().await;
        let _events = world.push_to_reader();
        let mut worker = world.workers.remove(READER);
        worker.control.leave();
        assert!(!worker.control.memory.is_pushed_to());
    });
}
