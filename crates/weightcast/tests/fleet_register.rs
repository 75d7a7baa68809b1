//! The register of a fleet, over real connections: one for all clients of a model, and another after each takeover.

use std::time::Duration;

use weightcast::engine_update::{FleetAnswer, FleetQuestion, FleetTransaction, FleetVerdict};
use weightcast::{
    CallError, Error, Options, Replica, Role, ServeConfig, Server, ShardHandle, Version, serve,
};

const SOON: Duration = Duration::from_secs(20);
const VERSION: Version = Version { epoch: weightcast_protocol::Epoch(0), number: 4 };

fn server(address: &str, index: u32) -> Server {
    let (address, lease) = (address.to_owned(), Duration::from_secs(1));
    let config = ServeConfig { address, index, lease, paranoid: true, ..ServeConfig::default() };
    serve(config).unwrap()
}

fn client(servers: &str, model: &str, name: &str) -> ShardHandle {
    let options = Options { server: Some(servers.to_owned()), ..Options::new(Role::Rollout) };
    ShardHandle::open(model, Replica::new(name, 0, 1), &options).unwrap()
}

fn number(key: u64) -> FleetQuestion {
    FleetQuestion::Number { key, heard: None }
}

fn verdict(driver: u64, wanted: FleetVerdict) -> FleetQuestion {
    let transaction = FleetTransaction { driver, number: 1 };
    FleetQuestion::Verdict { transaction, wanted, version: VERSION }
}

#[test]
fn the_first_write_counts_for_all_clients_of_a_model() {
    let server = server("127.0.0.1:0", 0);
    let open = |model, name| client(server.address(), model, name);
    let (one, two, other) = (open("policy", "a"), open("policy", "b"), open("critic", "a"));
    let ask = |of: &ShardHandle, question| of.ask_fleet(question, SOON).unwrap();
    assert_eq!(ask(&one, FleetQuestion::State), FleetAnswer::default());
    let driver = ask(&one, number(1)).driver;
    assert_eq!(ask(&one, number(1)).driver, driver, "whoever asks again");
    let told = ask(&two, verdict(driver, FleetVerdict::Abort));
    assert_eq!(told.verdict, Some(FleetVerdict::Abort));
    assert_eq!(ask(&one, verdict(driver, FleetVerdict::Commit)), told, "it came second");
    let later = ask(&two, number(2)).driver;
    assert!(later > driver);
    let committed = ask(&two, verdict(later, FleetVerdict::Commit));
    assert_eq!((committed.driver, committed.version), (later, Some(VERSION)));
    let heard = FleetQuestion::Number { key: 3, heard: Some(later) };
    assert!(ask(&one, heard).superseded);
    assert_eq!(ask(&one, FleetQuestion::State).driver, later, "no number was given for that");
    assert_eq!(ask(&other, FleetQuestion::State), FleetAnswer::default(), "another fleet");
}

/// Each shard asks by itself, and so do both at once.
#[test]
fn of_many_that_write_at_once_one_is_first() {
    let server = server("127.0.0.1:0", 0);
    let clients: Vec<ShardHandle> =
        (0..4).map(|n| client(server.address(), "policy", &format!("r-{n}"))).collect();
    let driver = clients[0].ask_fleet(number(1), SOON).unwrap().driver;
    for number in 0..20 {
        let ask = |(client, handle): (usize, &ShardHandle)| {
            let wanted = [FleetVerdict::Commit, FleetVerdict::Abort][client % 2];
            let transaction = FleetTransaction { driver, number };
            let question = FleetQuestion::Verdict { transaction, wanted, version: VERSION };
            handle.ask_fleet(question, SOON).unwrap().verdict
        };
        let told: Vec<_> = std::thread::scope(|scope| {
            let asking: Vec<_> =
                clients.iter().enumerate().map(|of| scope.spawn(move || ask(of))).collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(told[0].is_some() && told.iter().all(|one| *one == told[0]), "{told:?}");
    }
}

#[test]
fn a_server_that_was_restarted_does_not_know_what_was_decided_before() {
    let first = server("127.0.0.1:0", 0);
    let address = first.address().to_owned();
    let client = client(&address, "policy", "driver");
    let ask = |question| client.ask_fleet(question, SOON).unwrap();
    let before = ask(number(1)).driver;
    assert_eq!(ask(verdict(before, FleetVerdict::Commit)).verdict, Some(FleetVerdict::Commit));
    first.stop().unwrap();
    let _second = server(address.trim_start_matches("http://"), 0);
    let told = ask(verdict(before, FleetVerdict::Abort));
    assert_eq!((told.verdict, told.version), (None, None), "and nothing was written");
    assert_eq!(ask(verdict(before, FleetVerdict::Commit)).verdict, None);
    let after = ask(FleetQuestion::Number { key: 2, heard: Some(before) }).driver;
    assert!(after > before && after as u32 != before as u32);
    assert_eq!(ask(verdict(after, FleetVerdict::Commit)).verdict, Some(FleetVerdict::Commit));
}

#[test]
fn a_backup_has_a_register_of_its_own_and_the_same_handle_asks_it() {
    let (first, second) = (server("127.0.0.1:0", 0), server("127.0.0.1:0", 1));
    let servers = format!("{},{}", first.address(), second.address());
    let client = client(&servers, "policy", "driver");
    let before = client.ask_fleet(number(1), SOON).unwrap().driver;
    first.stop().unwrap();
    let told = client.ask_fleet(verdict(before, FleetVerdict::Commit), SOON).unwrap();
    assert_eq!(told, FleetAnswer::default());
}

#[test]
fn whoever_asks_ends_by_the_deadline_or_is_told_that_the_handle_is_closed() {
    let server = server("127.0.0.1:0", 0);
    let client = client(server.address(), "policy", "driver");
    client.ask_fleet(FleetQuestion::State, SOON).unwrap();
    server.stop().unwrap();
    let error = client.ask_fleet(FleetQuestion::State, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, Error::Call(CallError::ServerUnreachable { .. })), "{error}");
    client.close(Duration::ZERO);
    let error = client.ask_fleet(FleetQuestion::State, SOON).unwrap_err();
    assert!(matches!(error, Error::Call(CallError::Misuse { .. })), "{error}");
}
