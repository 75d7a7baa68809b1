//! Collectors that are not what they should be: calls go on, and the log says it once.

#[path = "support/collector.rs"]
#[allow(dead_code, reason = "every test file uses another part of it")]
mod collector;
#[allow(dead_code, reason = "every test file uses another part of it")]
mod support;

use std::net::TcpListener;
use std::time::Duration;

use support::{columns, group, rows, run_group};
use weightcast::{LogLevel, Role, Selector, ServeConfig, log_lines, log_to_queue, serve};

const SOON: Duration = Duration::from_secs(20);

/// A server, a trainer and a rollout, from the first call to the last.
fn work(url: &str) {
    let config = ServeConfig { otlp: Some(url.to_owned()), ..ServeConfig::default() };
    let server = serve(config).unwrap();
    let trainers = group(server.address(), "trainer", Role::Trainer, 1, |at| rows(at, 1, 1));
    let rollouts = group(server.address(), "rollout", Role::Rollout, 1, |at| columns(at, 1));
    run_group(&trainers, |shard| shard.handle.publish(1, SOON).unwrap());
    run_group(&rollouts, |shard| shard.handle.update(Selector::Latest, false, SOON).unwrap());
    run_group(&rollouts, |shard| shard.handle.close(SOON));
    run_group(&trainers, |shard| shard.handle.close(SOON));
    server.stop().unwrap();
}

/// One test: the collector is that of the whole process. Nothing but a hang takes as long as is waited here.
#[test]
fn no_call_needs_the_collector() {
    log_to_queue();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let url = format!("http://{address}");
    // Connections are made, and nothing is ever read from them.
    work(&url);
    // Then the connections break, and nobody listens.
    drop(silent);
    work(&url);
    // At last there is one, to which spans come that were not dropped before.
    let come = collector::collect(TcpListener::bind(address).unwrap());
    let taken = loop {
        work(&url);
        if let Ok(seen) = come.recv_timeout(SOON) {
            break seen;
        }
    };
    assert_eq!(taken.resource["service.name"], "weightcast");
    let lines = log_lines(Duration::ZERO);
    let warned = lines.iter().filter(|line| line.message.contains("missing at the collector"));
    let levels: Vec<_> = warned.map(|line| line.level).collect();
    assert_eq!(levels, [LogLevel::Warn], "{lines:?}");
}
