//! The register of a fleet, as the server keeps it: one for each model, for as long as the model and the term last.

use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, FleetTransaction, FleetVerdict,
};
use weightcast_protocol::limits::SERVER_REEL;
use weightcast_protocol::message::{ClientMessage, EpochPolicy, Open, Role, ServerMessage};
use weightcast_protocol::recording::{PlayedEvent, RecordedMachine, RecordingCause};
use weightcast_protocol::server::{FleetError, Server, ServerConfig, ServerInput, ServerOutput};
use weightcast_protocol::{ConnectionId, Epoch, PROTOCOL, SessionId, Span, Ticket, Time, Version};

const NOW: Time = Time(1_000_000_000);
const LATER: Time = Time(60_000_000_000);
const VERSION: Version = Version { epoch: Epoch(0), number: 7 };

fn server(life: u64) -> Server {
    Server::new(ServerConfig { life, paranoid: true, ..ServerConfig::default() })
}

fn open(model: &str, number: u64, ticket: Option<Ticket>) -> Open {
    Open {
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
        ticket,
        rejoins: false,
        activate: true,
    }
}

/// Somebody opens a model; the ticket that is given for it.
fn opened(server: &mut Server, model: &str, number: u64, shown: Option<Ticket>) -> Ticket {
    let open = ClientMessage::Open(open(model, number, shown));
    server.handle(NOW, ConnectionId(number), open);
    std::iter::from_fn(|| server.poll_output())
        .find_map(|output| match output {
            ServerOutput::Send { message: ServerMessage::Opened { ticket, .. }, .. } => {
                Some(ticket)
            }
            _ => None,
        })
        .expect("it acts")
}

fn close(server: &mut Server, number: u64) {
    let message = ClientMessage::Close { deadline: Span::from_secs(1) };
    server.handle(NOW, ConnectionId(number), message);
    while server.poll_output().is_some() {}
}

fn number(key: u64) -> FleetQuestion {
    FleetQuestion::Number { key, heard: None }
}

fn verdict(driver: u64, wanted: FleetVerdict) -> FleetQuestion {
    let transaction = FleetTransaction { driver, number: 1 };
    FleetQuestion::Verdict { transaction, wanted, version: VERSION }
}

fn asked(server: &mut Server, model: &str, question: FleetQuestion) -> FleetAnswer {
    server.ask_fleet(model, question).expect("it acts, and somebody is in the model")
}

#[test]
fn each_model_has_a_register_of_its_own() {
    let mut server = server(1);
    for (model, session) in [("policy", 1), ("critic", 2)] {
        opened(&mut server, model, session, None);
        assert_eq!(asked(&mut server, model, FleetQuestion::State), FleetAnswer::default());
    }
    let first = asked(&mut server, "policy", number(1)).driver;
    let second = asked(&mut server, "policy", number(2)).driver;
    assert!(second > first);
    assert_eq!(asked(&mut server, "critic", FleetQuestion::State), FleetAnswer::default());
    let other = asked(&mut server, "critic", number(1)).driver;
    assert_ne!(first as u32, other as u32, "they have different lives");
    let answer = asked(&mut server, "policy", verdict(second, FleetVerdict::Commit));
    assert_eq!((answer.verdict, answer.version), (Some(FleetVerdict::Commit), Some(VERSION)));
    // The same update, asked of the other fleet's register, which does not know its driver.
    let answer = asked(&mut server, "critic", verdict(second, FleetVerdict::Abort));
    assert_eq!((answer.verdict, answer.version), (None, None));
}

#[test]
fn a_server_that_does_not_act_knows_no_fleet() {
    let mut server = server(1);
    let passive = Err(FleetError::Passive);
    assert_eq!(server.ask_fleet("policy", number(1)), passive, "nobody has come yet");
    let ticket = opened(&mut server, "policy", 1, None);
    asked(&mut server, "policy", number(1));
    let mut second = Server::new(ServerConfig { index: 1, life: 2, ..ServerConfig::default() });
    let later = opened(&mut second, "policy", 1, Some(ticket));
    server.handle_probe(NOW, later.proof);
    assert_eq!(server.ask_fleet("policy", FleetQuestion::State), passive, "it has stepped down");
}

#[test]
fn nobody_asks_for_the_fleet_of_a_model_that_is_not_there() {
    let mut server = server(1);
    opened(&mut server, "policy", 1, None);
    let refused = server.ask_fleet("critic", FleetQuestion::State).unwrap_err();
    assert_eq!(refused, FleetError::NoModel { model: "critic".into() });
    assert!(refused.to_string().contains("model critic is open"), "{refused}");
}

#[test]
fn a_model_that_is_forgotten_takes_its_register_with_it() {
    let mut server = server(1);
    opened(&mut server, "policy", 1, None);
    let before = asked(&mut server, "policy", number(1)).driver;
    asked(&mut server, "policy", verdict(before, FleetVerdict::Commit));
    close(&mut server, 1);
    assert!(matches!(
        server.ask_fleet("policy", FleetQuestion::State),
        Err(FleetError::NoModel { .. })
    ));
    opened(&mut server, "policy", 2, None);
    assert_eq!(asked(&mut server, "policy", FleetQuestion::State), FleetAnswer::default());
    let after = asked(&mut server, "policy", number(1)).driver;
    assert_ne!(after as u32, before as u32, "in the same term, and another life all the same");
    // There was a commit: nothing may be said, and nothing written.
    let answer = asked(&mut server, "policy", verdict(before, FleetVerdict::Abort));
    assert_eq!(answer.verdict, None);
}

#[test]
fn a_server_that_takes_over_says_what_it_does_not_know() {
    let mut first = server(1);
    let ticket = opened(&mut first, "policy", 1, None);
    let before = asked(&mut first, "policy", number(1)).driver;
    asked(&mut first, "policy", verdict(before, FleetVerdict::Commit));
    for mut second in [server(1), server(2)] {
        // Restarted, by chance with the same drawn number or not; in its recovery window.
        opened(&mut second, "policy", 1, Some(ticket));
        let answer = asked(&mut second, "policy", verdict(before, FleetVerdict::Abort));
        assert_eq!(answer, FleetAnswer::default(), "it does not know");
        let question = FleetQuestion::Number { key: 2, heard: Some(before) };
        let after = asked(&mut second, "policy", question).driver;
        assert!(after > before && after as u32 != before as u32);
    }
}

#[test]
fn servers_that_know_nothing_of_each_other_give_no_number_twice() {
    let given = |life| {
        let mut server = server(life);
        opened(&mut server, "policy", 1, None);
        asked(&mut server, "policy", number(1)).driver
    };
    // Their terms are equal but for what a term has of the life: 16 bits.
    let lives = [0, 1, 1 << 16, 1 << 63];
    let numbers: std::collections::BTreeSet<u64> = lives.map(given).into();
    assert_eq!(numbers.len(), lives.len());
    assert_eq!(given(1), given(1), "nothing is drawn here");
}

#[test]
fn a_server_that_is_played_back_gives_the_same_answers() {
    let mut server = RecordedMachine::new(server(1), SERVER_REEL);
    let open = Box::new(ClientMessage::Open(open("policy", 1, None)));
    server.take(LATER, ServerInput::Message { from: ConnectionId(1), message: open });
    while server.poll_output().is_some() {}
    let mut ask = |model: &str, question| {
        let answer = server.ask_fleet(LATER, model, question);
        while server.poll_output().is_some() {}
        answer
    };
    let driver = ask("policy", number(1)).unwrap().driver;
    ask("policy", verdict(driver, FleetVerdict::Commit)).unwrap();
    ask("critic", FleetQuestion::State).unwrap_err();
    let newest = ask("policy", number(2)).unwrap().driver;
    let recording = server.recording(RecordingCause::Asked, 0).unwrap();
    let mut playback = recording.play::<Server>().unwrap();
    let mut asked_for = 0;
    while let Some(event) = playback.next().unwrap() {
        asked_for += usize::from(matches!(event.input, ServerInput::AskFleet { .. }));
        let came = playback.play(event);
        assert!(matches!(came, PlayedEvent::Settled { as_recorded: true, .. }), "{came:?}");
    }
    assert_eq!(asked_for, 4, "those that were refused too");
    let mut played = playback.machine().clone();
    for question in
        [FleetQuestion::State, verdict(driver, FleetVerdict::Abort), number(2), number(3)]
    {
        let answer = asked(&mut played, "policy", question);
        assert_eq!(answer, server.ask_fleet(LATER, "policy", question).unwrap());
    }
    let said = asked(&mut played, "policy", number(3));
    assert!(said.driver > newest && said.version == Some(VERSION));
}
