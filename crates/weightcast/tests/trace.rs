//! The spans of a server, a trainer and a rollout, in the file of their process.

#[allow(dead_code, reason = "every test file uses another part of it")]
mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::Value;
use support::{columns, group, rows, run_group};
use weightcast::{Options, Replica, Role, Selector, ServeConfig, ShardHandle, serve};

const SOON: Duration = Duration::from_secs(20);

/// One test: the file is that of the whole process.
#[test]
fn the_spans_of_a_call_have_one_trace_wherever_they_are() {
    let path = std::env::temp_dir().join(format!("weightcast-spans-{}.json", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let config = ServeConfig { trace: Some(path.clone()), ..ServeConfig::default() };
    let server = serve(config).unwrap();
    let trainers = group(server.address(), "trainer", Role::Trainer, 2, |at| rows(at, 2, 1));
    let rollouts = group(server.address(), "rollout", Role::Rollout, 2, |at| columns(at, 2));
    let published = run_group(&trainers, |shard| shard.handle.publish(1, SOON).unwrap());
    let version: Value = published[0].to_string().into();
    run_group(&trainers, |shard| shard.handle.wait_sealed(SOON).unwrap());
    run_group(&rollouts, |shard| shard.handle.update(Selector::Latest, false, SOON).unwrap());
    run_group(&trainers, |shard| shard.handle.unpublish(SOON).unwrap());

    // Another file in the same process would leave one of the two incomplete.
    let other = path.with_extension("other");
    let options = Options {
        trace: Some(other.clone()),
        server: Some(server.address().to_owned()),
        ..Options::new(Role::Rollout)
    };
    let refused = ShardHandle::open("model", Replica::new("late", 0, 1), &options).err().unwrap();
    assert!(refused.to_string().contains("one trace file"), "{refused}");
    assert!(!other.exists());
    run_group(&rollouts, |shard| shard.handle.close(SOON));
    run_group(&trainers, |shard| shard.handle.close(SOON));
    drop((rollouts, trainers));
    server.stop().unwrap();

    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "for this user alone");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let closed = text.trim_end().trim_end_matches(',').to_owned() + "]";
    let events: Vec<Value> = serde_json::from_str(&closed).unwrap();
    let spans = |name: &str| -> Vec<&Value> {
        events.iter().filter(|e| e["ph"] == "X" && e["name"] == name).collect()
    };
    let traces = |name: &str, call: &str| -> BTreeSet<&str> {
        let of_call = |span: &&Value| {
            call.is_empty() || span["args"]["call"].as_str().unwrap().starts_with(call)
        };
        let told = spans(name).into_iter().filter(of_call);
        told.map(|span| span["args"]["trace"].as_str().unwrap()).collect()
    };
    for call in ["publish", "update", "unpublish", "register"] {
        let (here, there) = (traces("call", call), traces("group call", call));
        let groups = if call == "register" { 2 } else { 1 };
        assert_eq!((here.len(), &here), (groups, &there), "{call}");
    }
    let update = traces("call", "update");
    for name in ["read", "plan", "connect", "source", "digest", "shards read"] {
        assert_eq!(traces(name, ""), update, "{name}");
    }
    assert_eq!(spans("read").len(), 2, "each shard reads once");
    let read = spans("read")[0];
    assert_eq!((&read["args"]["version"], &read["args"]["source"]), (&version, &"trainer".into()));
    let call =
        spans("call").into_iter().find(|span| span["args"]["trace"] == read["args"]["trace"]);
    let args = &call.unwrap()["args"];
    assert_eq!(
        (&args["outcome"], &args["source"], &args["version"]),
        (&"ok".into(), &"trainer".into(), &version)
    );
    assert_eq!(spans("seal").len(), 2);
    // What lies within lies within in time too, on the track of the handle.
    let track = |span: &Value| (span["pid"].as_u64(), span["tid"].as_u64());
    let times = |span: &Value| {
        let start = span["ts"].as_u64().unwrap() as f64;
        (start, start + span["dur"].as_f64().unwrap())
    };
    for one in spans("call") {
        let ((start, _), here) = (times(one), track(one));
        let later = spans("call").into_iter().filter(|call| track(call) == here);
        let before = later.filter(|call| times(call).0 < start);
        assert!(
            before.clone().all(|call| times(call).1 <= start + 2.0),
            "a call ends with its answer"
        );
    }
    for read in spans("read") {
        let above = |call: &&Value| {
            track(call) == track(read)
                && call["args"]["call"].as_str().unwrap().starts_with("update")
        };
        let call = spans("call").into_iter().find(above).expect("on one track");
        let ((start, end), (begun, done)) = (times(call), times(read));
        // Starts are whole microseconds.
        assert!(start <= begun && done <= end + 2.0, "{call} {read}");
    }
}
