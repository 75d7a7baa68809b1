//! `weightcast bench transfer` on small sizes: what it reports, not how fast it was.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast-bench"))
        .args(["transfer", "--quick", "--runs", "2"])
        .args(arguments)
        .output()
        .expect("the command starts")
}

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// `plot` knows what was printed, and shows it under these names.
fn assert_drawn(report: &Value, names: &[&str]) {
    let svg = weightcast_cli::svg_of(&report.to_string()).expect("a report that can be drawn");
    for name in names {
        assert!(svg.contains(&format!(">{name}</text>")), "{name} is not in {svg}");
    }
}

/// The ways that were possible here: at least TCP.
fn measured(transfer: &Value) -> Vec<&Value> {
    let ways = transfer["ways"].as_array().expect("ways");
    assert_eq!(ways.len(), 3);
    let names: Vec<_> = ways.iter().map(|way| &way["way"]).collect();
    assert_eq!(names, ["direct", "tcp", "shared"]);
    assert!(ways[1]["stack"].is_object());
    ways.iter().filter(|way| way["stack"].is_object()).collect()
}

/// The rows say of each way beside each limit what `ways` says at length.
fn assert_rows(transfer: &Value) {
    let limits = |way: &Value| way["limits"].as_array().expect("limits").clone();
    let long = measured(transfer).into_iter().flat_map(|way| {
        let of = |limit: &Value| {
            let median = &way["stack"]["median_s"];
            json!({"way": way["way"], "median_s": median, "limit": limit["limit"], "of_limit": limit["ratio"]})
        };
        limits(way).iter().map(of).collect::<Vec<_>>()
    });
    assert_eq!(transfer["rows"], Value::Array(long.collect()));
}

fn assert_tcp_is_set_beside_the_best_sockets(report: &Value) {
    let tried = report["socket_pairs"].as_array().expect("shapes");
    let medians: Vec<_> = tried.iter().map(|pair| pair["median_s"].as_f64().unwrap()).collect();
    assert!(tried.len() == 9 && medians.is_sorted(), "{tried:?}");
    let best = format!("best socket pair ({})", tried[0]["shape"].as_str().unwrap());
    let tcp = &report["transfers"][0]["ways"][1]["limits"];
    assert_eq!(
        (&tcp[0]["limit"], &tcp[1]["limit"]),
        (&json!(best), &json!(best + " with digests"))
    );
}

#[test]
fn tiny_tensors_are_measured_and_verified() {
    let report = json(&bench(&["--json", "--case", "tiny"]));
    assert_eq!(report["verified"], true);
    assert_eq!((&report["quick"], &report["runs"]), (&true.into(), &2.into()));
    assert!(report["machine"]["cpus"].as_u64().unwrap() > 0);
    let transfer = &report["transfers"][0];
    let bytes = 5_000 * 4_096;
    assert_eq!(transfer["case"], "tiny");
    assert_eq!((&transfer["tensors"], &transfer["bytes"]), (&5_000.into(), &bytes.into()));
    for way in measured(transfer) {
        let stack = &way["stack"];
        assert_eq!(stack["content_ok"], true);
        assert_eq!(stack["verified_bytes"], bytes);
        assert_eq!(stack["all_s"].as_array().unwrap().len(), 2);
        for field in ["median_s", "gb_per_s", "read_median_s", "first_s", "cpu_s"] {
            assert!(stack[field].as_f64().unwrap() >= 0.0, "{field}: {stack}");
        }
        for limit in way["limits"].as_array().unwrap() {
            let number = |field: &str| limit[field].as_f64().unwrap();
            assert!(number("ratio_min") <= number("ratio_max"), "{limit}");
            assert!(number("ratio") > 0.0 && number("gb_per_s") > 0.0, "{limit}");
        }
        let memcpy = if way["way"] == "shared" { "memcpy of shared pages x2" } else { "memcpy x2" };
        assert!(way["limits"].as_array().unwrap().iter().any(|l| l["limit"] == memcpy));
        let seconds = if way["way"] == "shared" { 0.005 } else { 0.015 };
        assert_eq!(way["floors"][0]["wanted"], seconds);
        assert!(way["floors"][0]["pass"].is_boolean());
    }
    assert_rows(transfer);
    assert_tcp_is_set_beside_the_best_sockets(&report);
    assert_drawn(&report, &["Way: tcp", "tiny, 20.5 MB", "memcpy x2"]);
}

#[test]
fn a_reshard_moves_two_shards_into_two_and_every_byte_is_there() {
    let report = json(&bench(&["--json", "--case", "qwen2.5-0.5b-reshard"]));
    let transfer = &report["transfers"][0];
    assert_eq!((&transfer["source_shards"], &transfer["target_shards"]), (&2.into(), &2.into()));
    for way in measured(transfer) {
        assert_eq!(way["stack"]["content_ok"], true);
        assert_eq!(way["stack"]["verified_bytes"], transfer["bytes"]);
    }
}

#[test]
fn sizes_and_publish_make_a_table() {
    let cases = ["--case", "publish", "--case", "sweep", "--sizes", "2,3"];
    let output = bench(&cases);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout);
    for row in ["1 MiB, 32 tensors", "64 MiB, 32 tensors", "\n2MiB: 1 tensor,", "\n3MiB: 1 tensor,"]
    {
        assert!(table.contains(row), "{row:?} is not in\n{table}");
    }
    assert!(table.contains("every byte verified"), "{table}");
}

#[test]
fn wrong_usage_says_what_is_right() {
    let output = bench(&["--case", "huge"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("qwen2.5-0.5b-reshard"));
    assert_eq!(bench(&["--sizes", "0"]).status.code(), Some(2));
}

#[test]
fn a_small_control_plane_is_measured_and_no_group_split() {
    let output = Command::new(env!("CARGO_BIN_EXE_weightcast-bench"))
        .args(["control", "--sessions", "32", "--shards", "4", "--rate", "200"])
        .args(["--seconds", "1", "--herd", "8", "--json"])
        .output()
        .expect("the command starts");
    let report = json(&output);
    assert_eq!(report["connected"]["sessions"], 32);
    let kinds = report["mixed"][1]["kinds"].as_object().unwrap();
    assert!(kinds.contains_key("heartbeat") && kinds.contains_key("update"), "{report}");
    for herd in report["herds"].as_array().unwrap() {
        assert_eq!((&herd["split"], &herd["failed"]), (&0.into(), &0.into()));
    }
    let names = ["Latency at 200 operations a second", "heartbeat", "update, 8 groups"];
    assert_drawn(&report, &names);
}
