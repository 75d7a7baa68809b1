//! The spans of a server, a trainer and a rollout, at a collector and in a file at once.

#[path = "support/collector.rs"]
mod collector;
#[allow(dead_code, reason = "every test file uses another part of it")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;

use collector::{SpanSeen, collect};
use serde_json::{Value, json};
use support::{columns, group, rows, run_group};
use weightcast::{Error, Options, Replica, Role, Selector, ServeConfig, ShardHandle, serve};

const SOON: Duration = Duration::from_secs(20);

/// One test: the collector is that of the whole process.
#[test]
fn the_spans_of_a_call_are_one_tree_wherever_they_are() {
    let path = std::env::temp_dir().join(format!("weightcast-otlp-{}.json", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let come = collect(listener);
    let (trace, otlp) = (Some(path.clone()), Some(url));
    let server = serve(ServeConfig { trace, otlp, ..ServeConfig::default() }).unwrap();
    let trainers = group(server.address(), "trainer", Role::Trainer, 2, |at| rows(at, 2, 1));
    let rollouts = group(server.address(), "rollout", Role::Rollout, 2, |at| columns(at, 2));
    run_group(&trainers, |shard| shard.handle.publish(1, SOON).unwrap());
    run_group(&trainers, |shard| shard.handle.wait_sealed(SOON).unwrap());
    run_group(&rollouts, |shard| shard.handle.update(Selector::Latest, false, SOON).unwrap());
    refuses_others(server.address());
    run_group(&rollouts, |shard| shard.handle.close(SOON));
    run_group(&trainers, |shard| shard.handle.close(SOON));
    drop((rollouts, trainers));
    server.stop().unwrap();

    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let closed = text.trim_end().trim_end_matches(',').to_owned() + "]";
    let mut events: Vec<Value> = serde_json::from_str(&closed).unwrap();
    events.retain(|event| event["ph"] == "X");
    // Whoever ends has waited until its spans were taken; on a machine that is busy, not long enough.
    let one = || come.recv_timeout(SOON).expect("as many as in the file");
    let seen: Vec<SpanSeen> = events.iter().map(|_| one()).collect();
    is_what_the_file_has(&seen, &events);
    is_one_tree_a_call(&seen);
    tells_the_process(&seen);
    holds_the_update(&seen);
}

/// What is no collector, and a second one.
fn refuses_others(server: &str) {
    for (url, problem) in
        [("collector:4317", "begin with http://"), ("http://127.0.0.1:1", "has one collector")]
    {
        let options = Options {
            otlp: Some(url.to_owned()),
            server: Some(server.to_owned()),
            ..Options::new(Role::Rollout)
        };
        match ShardHandle::open("model", Replica::new("late", 0, 1), &options).err().unwrap() {
            Error::Config { what, problem: told } => {
                assert_eq!(what, "otlp");
                assert!(told.contains(problem), "{told}");
            }
            other => panic!("{other}"),
        }
    }
}

/// Names, attributes, starts and ends.
fn is_what_the_file_has(seen: &[SpanSeen], events: &[Value]) {
    let in_file: BTreeSet<String> = events
        .iter()
        .map(|event| json!([event["name"], event["ts"], event["args"]]).to_string())
        .collect();
    let at_collector = seen.iter().map(|SpanSeen { attributes, span, .. }| {
        json!([span.name, span.start_time_unix_nano / 1_000, attributes]).to_string()
    });
    assert_eq!(at_collector.collect::<BTreeSet<_>>(), in_file);
    for SpanSeen { span, .. } in seen {
        let took = (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e3;
        let start = Value::from(span.start_time_unix_nano / 1_000);
        let same = |event: &&Value| event["name"] == span.name.as_str() && event["ts"] == start;
        let times = events.iter().filter(same).map(|event| event["dur"].as_f64().unwrap());
        assert!(times.into_iter().any(|dur| (dur - took).abs() < 0.01), "{span:?}");
    }
}

/// All spans of a trace have one root, the call of shard 0, and their trace is the one that they name.
fn is_one_tree_a_call(seen: &[SpanSeen]) {
    let numbers: BTreeMap<_, _> = seen.iter().map(|seen| (&seen.span.span_id, seen)).collect();
    assert_eq!(numbers.len(), seen.len(), "each has a number of its own");
    for SpanSeen { attributes, span, resource } in seen {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
        let Some(Value::String(trace)) = attributes.get("trace") else {
            assert!(["seal", "digest"].contains(&span.name.as_str()), "{span:?}");
            continue;
        };
        let hexadecimal: String = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(*trace, hexadecimal);
        let is_root = span.name == "call" && attributes["shard"] == 0;
        assert_eq!(span.parent_span_id.is_empty(), is_root, "{span:?}");
        if is_root {
            continue;
        }
        let above = numbers.get(&span.parent_span_id).expect("its parent came too");
        assert_eq!(above.span.trace_id, span.trace_id, "{span:?}");
        let lies_in = match span.name.as_str() {
            "call" | "group call" | "read" | "install" => "call",
            "plan" | "connect" | "source" | "digest" => "read",
            _ => "group call",
        };
        assert_eq!(above.span.name, lies_in, "{span:?}");
        let at_server = span.name == "group call" || lies_in == "group call";
        assert_eq!(resource["weightcast.role"], if at_server { "server" } else { "client" });
    }
}

fn tells_the_process(seen: &[SpanSeen]) {
    for SpanSeen { resource, .. } in seen {
        assert_eq!(resource["service.name"], "weightcast");
        assert_eq!(resource["process.pid"], std::process::id());
        assert_eq!(resource["host.name"], Replica::new("r", 0, 1).host);
    }
}

/// The update of two shards: both calls, both reads, and what the server saw, in one trace.
fn holds_the_update(seen: &[SpanSeen]) {
    let is_update = |seen: &&SpanSeen| {
        seen.span.name == "group call"
            && seen.attributes["call"].as_str().unwrap().starts_with("update")
    };
    let [update]: [_; 1] = seen.iter().filter(is_update).collect::<Vec<_>>().try_into().unwrap();
    let within = seen.iter().filter(|seen| seen.span.trace_id == update.span.trace_id);
    let mut names: Vec<_> = within.map(|seen| seen.span.name.as_str()).collect();
    names.sort_unstable();
    for (name, times) in [("call", 2), ("read", 2), ("shards read", 1), ("group call", 1)] {
        assert_eq!(names.iter().filter(|other| **other == name).count(), times, "{names:?}");
    }
    let call = (&update.attributes["model"], &update.attributes["replica"]);
    assert_eq!(call, (&"model".into(), &"rollout".into()));
}
