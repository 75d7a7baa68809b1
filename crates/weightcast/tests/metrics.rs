//! The figures of a server and of a process, after a trainer and a rollout have worked together.

#[allow(dead_code, reason = "every test file uses another part of it")]
mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use support::{columns, group, rows, run_group};
use weightcast::{Condition, Role, Selector, ServeConfig, metrics, metrics_text, serve};

const SOON: Duration = Duration::from_secs(20);

/// What Prometheus would be told.
fn scrape(address: &str) -> String {
    let address = address.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

#[track_caller]
fn says(text: &str, line: &str) {
    assert!(text.lines().any(|said| said == line), "{line} in\n{text}");
}

/// One test: the figures are those of the whole process.
#[test]
fn what_handles_do_is_told_by_their_process_and_by_their_server() {
    let config = ServeConfig { metrics: Some("127.0.0.1:0".to_owned()), ..ServeConfig::default() };
    let server = serve(config).unwrap();
    let scrape = || scrape(server.metrics_address().expect("it was asked to"));
    says(&scrape(), "weightcast_sessions 0");
    assert!(metrics(None).is_empty(), "nobody has opened a handle");

    let trainers = group(server.address(), "trainer", Role::Trainer, 2, |at| rows(at, 2, 1));
    let rollouts = group(server.address(), "rollout", Role::Rollout, 2, |at| columns(at, 2));
    run_group(&trainers, |shard| shard.handle.publish(1, SOON).unwrap());
    run_group(&trainers, |shard| shard.handle.wait_sealed(SOON).unwrap());
    let updated =
        run_group(&rollouts, |shard| shard.handle.update(Selector::Latest, false, SOON).unwrap());
    run_group(&rollouts, |shard| shard.handle.update(Selector::Latest, false, SOON).unwrap());
    run_group(&trainers, |shard| shard.handle.unpublish(SOON).unwrap());
    run_group(&trainers, |shard| shard.handle.publish(4, SOON).unwrap());

    let said = scrape();
    for line in [
        "weightcast_acting 1",
        "weightcast_sessions 4",
        "weightcast_models 1",
        "weightcast_replicas{model=\"model\",role=\"rollout\",state=\"sealed\"} 1",
        "weightcast_newest_version{model=\"model\"} 4",
        "weightcast_version_lag_max{model=\"model\"} 3",
        "weightcast_versions_behind{model=\"model\"} 3",
        "weightcast_rollouts_behind{model=\"model\"} 1",
        "weightcast_publishes_total 2",
        "weightcast_call_seconds_count{call=\"update\",outcome=\"ok\"} 1",
        "weightcast_call_seconds_count{call=\"update\",outcome=\"unchanged\"} 1",
        "weightcast_call_seconds_count{call=\"unpublish\",outcome=\"ok\"} 1",
    ] {
        says(&said, line);
    }

    let told = metrics(Some("model"));
    let moved = |bytes: fn(&weightcast::Transfer) -> u64| -> f64 {
        updated.iter().map(|updated| bytes(&updated.transfer) as f64).sum()
    };
    assert!(moved(|transfer| transfer.bytes) > 0.0);
    for (key, value) in [
        ("handles", 4.0),
        ("version", 1.0),
        ("version_lag", 3.0),
        ("updates", 2.0),
        ("publishes", 4.0),
        ("timeouts", 0.0),
        ("errors", 0.0),
        ("retries", 0.0),
        ("refusals", 0.0),
        // This very process is read over TCP.
        ("bytes_tcp", moved(|transfer| transfer.bytes)),
        ("bytes_direct", 0.0),
        ("bytes_shared", 0.0),
        ("plan_seconds", updated.iter().map(|updated| updated.transfer.plan_seconds).sum()),
    ] {
        assert_eq!(told[&format!("weightcast/{key}")], value, "{key} in {told:?}");
    }
    for key in ["update_seconds", "publish_seconds", "unpublish_seconds", "wait_sealed_seconds"] {
        assert!(told[&format!("weightcast/{key}")] > 0.0, "{key}");
    }
    for key in ["seal_seconds", "read_seconds", "gb_per_s_tcp", "last_update_seconds"] {
        assert!(told[&format!("weightcast/{key}")] > 0.0, "{key}");
    }
    assert!(!told.contains_key("weightcast/gb_per_s_direct"), "{told:?}");
    assert_eq!(moved(|transfer| transfer.tcp), moved(|transfer| transfer.bytes));
    assert!(metrics(Some("another")).is_empty());

    // A wait that comes to nothing, and a call that makes no sense.
    let until = Condition::Available(Selector::Exact(9));
    let late = Duration::from_millis(1);
    run_group(&rollouts, |shard| shard.handle.wait(until, late).unwrap_err());
    run_group(&trainers, |shard| shard.handle.publish(3, SOON).unwrap_err());
    run_group(&rollouts, |shard| shard.handle.close(SOON));
    run_group(&trainers, |shard| shard.handle.close(SOON));
    drop((rollouts, trainers));
    let told = metrics(None);
    assert_eq!((told["weightcast/handles"], told["weightcast/publishes"]), (0.0, 4.0));
    assert_eq!(told["weightcast/timeouts"] + told["weightcast/errors"], 4.0, "{told:?}");
    assert!(told["weightcast/wait_seconds"] > 0.0 && !told.contains_key("weightcast/version"));
    let text = metrics_text();
    says(&text, "weightcast_client_handles{model=\"model\"} 0");
    says(
        &text,
        "weightcast_client_call_seconds_count{model=\"model\",call=\"update\",outcome=\"ok\"} 2",
    );
    says(&scrape(), "weightcast_models 0");
}
