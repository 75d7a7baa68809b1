//! Routing leases, as the server keeps them: beside the register of each model's fleet, and as short-lived.

use crate::cluster::{Cluster, RUN};
use weightcast_protocol::engine_update::{
    FleetQuestion, FleetTransaction, FleetVerdict, RoutingError, RoutingQuestion, RoutingState,
    ServingNotice,
};
use weightcast_protocol::limits::{ROUTING_LEASE, SERVER_REEL};
use weightcast_protocol::message::{Call, ClientMessage, EpochPolicy, Open, Role};
use weightcast_protocol::recording::{PlayedEvent, RecordedMachine, RecordingCause};
use weightcast_protocol::server::{FleetError, Server, ServerConfig, ServerInput};
use weightcast_protocol::{ConnectionId, Epoch, PROTOCOL, SessionId, Span, Time, Version};

const NOW: Time = Time(60_000_000_000);

fn open(model: &str, number: u64) -> ClientMessage {
    ClientMessage::Open(Open {
        protocol: PROTOCOL,
        session: SessionId(u128::from(number)),
        model: model.into(),
        replica: format!("r-{number}"),
        shard: 0,
        num_shards: 1,
        role: Role::Rollout,
        epoch: EpochPolicy::Current,
        retain: 0,
        offload_seeding: false,
        location: Default::default(),
        data_address: String::new(),
        ticket: None,
        rejoins: false,
        activate: true,
    })
}

fn server_of(models: &[&str]) -> Server {
    let mut server = Server::new(ServerConfig { paranoid: true, ..ServerConfig::default() });
    for (number, model) in (1..).zip(models) {
        server.handle(NOW, ConnectionId(number), open(model, number));
        while server.poll_output().is_some() {}
    }
    server
}

fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

fn notice(engine: &str, serves: u64) -> RoutingQuestion {
    RoutingQuestion::Serves(ServingNotice {
        engine: engine.to_owned(),
        life: 1,
        worker: 0,
        workers: 1,
        count: serves,
        serves: Some(version(serves)),
    })
}

fn states(server: &mut Server, now: Time, model: &str) -> Vec<(String, RoutingState)> {
    let told = server.ask_routing(now, model, RoutingQuestion::Engines).expect("it acts");
    told.engines.into_iter().map(|lease| (lease.engine, lease.state)).collect()
}

fn is(engine: &str, state: RoutingState) -> (String, RoutingState) {
    (engine.to_owned(), state)
}

#[test]
fn what_the_register_says_is_the_fleets_version_and_another_model_has_a_table_of_its_own() {
    let mut server = server_of(&["policy", "critic"]);
    for (engine, serves) in [("a", 1), ("b", 2)] {
        server.ask_routing(NOW, "policy", notice(engine, serves)).expect("it is taken");
    }
    let newest = [is("a", RoutingState::Behind), is("b", RoutingState::Admitted)];
    assert_eq!(states(&mut server, NOW, "policy"), newest, "nothing was committed");
    let asked = server.ask_fleet("policy", FleetQuestion::Number { key: 1, heard: None }).unwrap();
    let transaction = FleetTransaction { driver: asked.driver, number: 1 };
    let wanted = FleetVerdict::Commit;
    let decided = FleetQuestion::Verdict { transaction, wanted, version: version(1) };
    server.ask_fleet("policy", decided).unwrap();
    let committed = [is("a", RoutingState::Admitted), is("b", RoutingState::Behind)];
    assert_eq!(states(&mut server, NOW, "policy"), committed, "a fleet may go back");
    assert_eq!(states(&mut server, NOW, "critic"), []);
    let late = NOW + ROUTING_LEASE;
    assert_eq!(states(&mut server, late, "policy"), []);
}

/// Engines are brought to what has been published one after the other.
#[test]
fn a_publication_puts_no_engine_behind() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let admitted = [is("a", RoutingState::Admitted), is("b", RoutingState::Admitted)];
    for number in [1, 2] {
        cluster.publish(&trainer, number, number);
        for engine in ["a", "b"] {
            let serves = Some(Version { epoch: RUN, number: 1 });
            let (engine, life, worker, workers) = (engine.to_owned(), 1, 0, 1);
            let notice = ServingNotice { engine, life, worker, workers, count: number, serves };
            let told = RoutingQuestion::Serves(notice);
            cluster.server.ask_routing(cluster.now, "policy", told).expect("it is taken");
        }
        assert_eq!(states(&mut cluster.server, cluster.now, "policy"), admitted, "{number}");
        cluster.call_all(&trainer, |_| Call::Unpublish);
    }
}

#[test]
fn a_server_that_does_not_act_or_knows_no_such_model_takes_no_notice() {
    let mut passive = Server::new(ServerConfig::default());
    assert_eq!(passive.ask_routing(NOW, "policy", notice("a", 1)), Err(FleetError::Passive));
    let mut server = server_of(&["policy"]);
    let none = Err(FleetError::NoModel { model: "critic".to_owned() });
    assert_eq!(server.ask_routing(NOW, "critic", notice("a", 1)), none);
    let wrong = ServingNotice {
        engine: "a".to_owned(),
        life: 1,
        worker: 1,
        workers: 1,
        count: 1,
        serves: None,
    };
    let refused = server.ask_routing(NOW, "policy", RoutingQuestion::Serves(wrong));
    let why = RoutingError::NoSuchWorker { worker: 1, workers: 1 };
    assert_eq!(refused, Err(FleetError::Routing(why)));
}

#[test]
fn a_model_that_is_forgotten_takes_its_table_with_it() {
    let mut server = server_of(&["policy"]);
    server.ask_routing(NOW, "policy", notice("a", 1)).expect("it is taken");
    let close = ClientMessage::Close { deadline: Span::from_secs(1) };
    server.handle(NOW, ConnectionId(1), close);
    server.handle(NOW, ConnectionId(2), open("policy", 2));
    while server.poll_output().is_some() {}
    assert_eq!(states(&mut server, NOW, "policy"), []);
}

#[test]
fn a_server_that_is_played_back_knows_the_same_engines() {
    let config = ServerConfig { paranoid: true, ..ServerConfig::default() };
    let mut server = RecordedMachine::new(Server::new(config), SERVER_REEL);
    let message = Box::new(open("policy", 1));
    server.take(NOW, ServerInput::Message { from: ConnectionId(1), message });
    while server.poll_output().is_some() {}
    for question in [notice("a", 1), notice("b", 2), RoutingQuestion::Engines] {
        server.ask_routing(NOW, "policy", question).expect("it acts");
        while server.poll_output().is_some() {}
    }
    let recording = server.recording(RecordingCause::Asked, 0).unwrap();
    let mut playback = recording.play::<Server>().unwrap();
    while let Some(event) = playback.next().unwrap() {
        let came = playback.play(event);
        assert!(matches!(came, PlayedEvent::Settled { as_recorded: true, .. }), "{came:?}");
    }
    let mut played = playback.machine().clone();
    let expected = [is("a", RoutingState::Behind), is("b", RoutingState::Admitted)];
    assert_eq!(states(&mut played, NOW, "policy"), expected);
}
