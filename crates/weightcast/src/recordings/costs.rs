//! What recording costs a server, printed: `cargo test --release -p weightcast --lib recordings::costs -- --ignored
//! --nocapture`.

use std::time::{Duration, Instant};

use weightcast_protocol::limits::{ReelLimits, SERVER_REEL};
use weightcast_protocol::message::{ClientMessage, EpochPolicy, Open, Role};
use weightcast_protocol::recording::{RecordedMachine, RecordingCause};
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{ConnectionId, PROTOCOL, SessionId, Span, Time};

const SESSIONS: u64 = 1_000;
const ROUNDS: u64 = 200;

fn open(session: u64) -> Open {
    Open {
        protocol: PROTOCOL,
        session: SessionId(u128::from(session + 1) << 64),
        model: "policy".into(),
        replica: format!("rollout-{}", session / 8),
        shard: (session % 8) as u32,
        num_shards: 8,
        role: Role::Rollout,
        epoch: EpochPolicy::Current,
        retain: 0,
        offload_seeding: false,
        location: Default::default(),
        data_address: "10.0.0.17:43210".into(),
        rejoins: false,
        activate: true,
        ticket: None,
    }
}

fn hears(server: &mut RecordedMachine<Server>, at: Time, from: u64, message: ClientMessage) {
    server.handle(at, ConnectionId(from), Box::new(message));
    while server.poll_output().is_some() {}
}

/// How long heartbeats of a thousand sessions take.
fn heartbeats(server: &mut RecordedMachine<Server>) -> Duration {
    for session in 0..SESSIONS {
        hears(server, Time(session), session, ClientMessage::Open(open(session)));
    }
    let started = Instant::now();
    for number in 0..ROUNDS * SESSIONS {
        let at = Time(1_000_000_000 + number * 10_000);
        hears(server, at, number % SESSIONS, ClientMessage::Heartbeat { sent_at: at.0 });
    }
    started.elapsed()
}

#[test]
#[ignore = "prints what recording costs"]
fn what_recording_costs() {
    let server = || Server::new(ServerConfig::default());
    let limits = ReelLimits { bytes: usize::MAX, span: Span(u64::MAX) };
    let events = (ROUNDS * SESSIONS) as f64;
    for turn in 1..=5 {
        let without = heartbeats(&mut RecordedMachine::unrecorded(server()));
        let mut recorded = RecordedMachine::new(server(), limits);
        let with = heartbeats(&mut recorded);
        let bytes = recorded.recording(RecordingCause::Asked, 0).expect("events").encode().len();
        // The first event comes after the second reel has begun: what is left of it is the image.
        let mut tired = RecordedMachine::new(server(), ReelLimits { bytes: 1, ..SERVER_REEL });
        for session in 0..SESSIONS {
            hears(&mut tired, Time(session), session, ClientMessage::Open(open(session)));
        }
        let started = Instant::now();
        hears(&mut tired, Time(SESSIONS), 0, ClientMessage::Heartbeat { sent_at: 0 });
        let turned = started.elapsed();
        let image = tired.recording(RecordingCause::Asked, 0).expect("events").encode().len();
        let ns = |took: Duration| took.as_nanos() as f64 / events;
        println!(
            "turn {turn}: {:.0} ns a heartbeat without, {:.0} ns with, {:.1} bytes; an image of {SESSIONS} sessions \
             {image} bytes, {turned:?}",
            ns(without),
            ns(with),
            bytes as f64 / events,
        );
    }
}
