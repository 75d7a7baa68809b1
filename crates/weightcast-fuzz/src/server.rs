//! The server's machine under any sequence of frames, breaks and pauses of four streams.

use weightcast_protocol::engine_update::{
    FleetQuestion, FleetTransaction, FleetVerdict, RoutingQuestion, ServingNotice,
};
use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{ConnectionId, Epoch, Span, Term, TermProof, Time, Version};

use crate::steps::{self, InputStep};

const STREAMS: u8 = 4;

/// Whatever strangers send, the server keeps its invariants (F33, F34) and falls quiet.
///
/// # Panics
/// If an invariant breaks, or timers never end.
pub fn server(bytes: &[u8]) {
    let config = ServerConfig { paranoid: true, ..ServerConfig::default() };
    let mut server = Server::new(config);
    let mut now = Time(0);
    for step in steps::decode(bytes) {
        match step {
            InputStep::Frame(stream, frame) => {
                let stream = ConnectionId(u64::from(stream % STREAMS));
                match weightcast::fuzzing::client_message(&frame) {
                    Some(mut message) => {
                        if let ClientMessage::Open(open) = &mut message {
                            open.activate = true; // it is the only one
                        }
                        server.handle(now, stream, message);
                    }
                    // As the runtime does: the stream of a malformed frame is closed.
                    None => server.handle_disconnect(now, stream),
                }
            }
            // Somebody makes a term up; it changes nothing.
            InputStep::Other(_, which) if which.is_multiple_of(16) => {
                let (term, before) = (Term(u64::MAX >> (which % 64)), server.term());
                server.handle_probe(now, TermProof { term, ..TermProof::default() });
                assert_eq!(server.term(), before);
            }
            InputStep::Other(about, which) if which % 16 == 1 => {
                ask_fleet(&mut server, about, which)
            }
            InputStep::Other(about, which) if which % 16 == 2 => {
                ask_routing(&mut server, now, about, which / 16);
            }
            InputStep::Broken(stream) | InputStep::Other(stream, _) => {
                server.handle_disconnect(now, ConnectionId(u64::from(stream % STREAMS)));
            }
            InputStep::Pass(millis) => {
                now = now + Span::from_millis(millis.into());
                server.handle_timeout(now);
            }
        }
        while server.poll_output().is_some() {}
    }
    fall_quiet(server);
}

/// Somebody asks the register of the first model's fleet, twice: the answer is the same.
fn ask_fleet(server: &mut Server, about: u8, which: u8) {
    let first = server.snapshot(Time(0)).models.into_keys().next();
    let model = first.unwrap_or_else(|| "policy".to_owned());
    let state = server.ask_fleet(&model, FleetQuestion::State);
    let (number, driver) = (u64::from(about), state.as_ref().map_or(0, |state| state.driver));
    let question = match which / 16 % 5 {
        0 => FleetQuestion::Number { key: number, heard: None },
        1 => FleetQuestion::Number { key: number, heard: Some(driver) },
        4 => FleetQuestion::PushNumber { key: number, heard: Some(driver) },
        kind => FleetQuestion::Verdict {
            transaction: FleetTransaction { driver, number },
            wanted: if kind == 2 { FleetVerdict::Commit } else { FleetVerdict::Abort },
            version: Version { epoch: Epoch(0), number },
        },
    };
    let answer = server.ask_fleet(&model, question);
    assert_eq!(answer, server.ask_fleet(&model, question));
    assert_eq!(answer.is_ok(), state.is_ok());
}

/// A worker of an engine says what it serves, and a router asks: the engine is there.
fn ask_routing(server: &mut Server, now: Time, about: u8, which: u8) {
    let first = server.snapshot(Time(0)).models.into_keys().next();
    let model = first.unwrap_or_else(|| "policy".to_owned());
    let notice = ServingNotice {
        engine: format!("engine-{}", about % 4),
        life: u64::from(which % 4),
        worker: u32::from(which / 4 % 3),
        workers: u32::from(about % 3),
        count: u64::from(about / 8),
        serves: (about % 8 > 2).then_some(Version { epoch: Epoch(0), number: u64::from(about) }),
    };
    let taken = server.ask_routing(now, &model, RoutingQuestion::Serves(notice));
    let engines = server.ask_routing(now, &model, RoutingQuestion::Engines);
    assert!(engines.is_ok() || taken.is_err());
    if let (Ok(_), Ok(told)) = (taken, engines) {
        assert!(!told.engines.is_empty() && told.engines.iter().all(|of| of.left <= told.lease));
    }
}

/// With nobody there any more, every session's lease runs out and nothing is left to wait for.
fn fall_quiet(mut server: Server) {
    for _ in 0..1_000 {
        let Some(due) = server.next_timeout() else { break };
        server.handle_timeout(due);
        while server.poll_output().is_some() {}
    }
    assert_eq!(server.next_timeout(), None, "timers without end");
    assert_eq!(server.snapshot(Time(u64::MAX)).sessions, 0);
}
