//! `sim` and `replay`, as a user runs them. The words of the JSON are fixed.

use std::process::{Command, Output};

use serde_json::Value;

fn weightcast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = weightcast(arguments);
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

/// All that may differ between two runs is how long they took.
fn without_time(mut report: Value) -> Value {
    report.as_object_mut().unwrap().remove("wall_seconds");
    report
}

#[test]
fn a_campaign_says_what_it_did_and_does_it_again() {
    let arguments = ["sim", "--seeds", "10", "--first-seed", "40", "--json"];
    let (report, status) = json(&arguments);
    assert_eq!(status, Some(0), "{report}");
    assert_eq!(report["seeds"], 10);
    assert!(report["cluster_hours"].as_f64().unwrap() > 0.02);
    assert!(report["events"].as_u64().unwrap() > 10_000);
    assert!(report["faults"].as_object().unwrap().values().all(|count| count.is_u64()));
    let coverage = &report["coverage"];
    let missed = coverage["missed"].as_array().unwrap().len() as u64;
    assert_eq!(coverage["hit"].as_u64().unwrap() + missed, coverage["total"].as_u64().unwrap());
    assert_eq!(report["violations"], serde_json::json!([]));
    assert_eq!(report["repeated"], 1);
    let prints = report["fingerprints"].as_object().unwrap();
    assert!(prints.keys().eq((40..50).map(|seed| seed.to_string()).collect::<Vec<_>>().iter()));
    let distinct: std::collections::BTreeSet<&str> =
        prints.values().map(|print| print.as_str().unwrap()).collect();
    assert!(distinct.len() == 10 && distinct.iter().all(|print| print.len() == 16), "{prints:?}");
    assert_eq!(without_time(report), without_time(json(&arguments).0));
}

#[test]
fn a_point_that_was_not_reached_fails_where_coverage_is_required() {
    let few = weightcast(&["sim", "--seeds", "1", "--require-coverage"]);
    assert_eq!(few.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&few.stderr).contains("no world reached"));
}

/// Worlds are counted, not the numbers of their seeds; nobody who reads a file is shown progress.
#[test]
fn a_late_first_seed_makes_no_large_campaign() {
    let one = weightcast(&["sim", "--seeds", "1", "--first-seed", "5000", "--json"]);
    assert!(one.status.success() && one.stderr.is_empty(), "{one:?}");
    let report: Value = serde_json::from_slice(&one.stdout).unwrap();
    let calls = report["calls"].as_object().unwrap();
    assert!(calls.values().filter_map(Value::as_u64).sum::<u64>() > 0, "{report}");
    assert!(report["wall_seconds"].as_f64().unwrap() > 1e-4, "{report}");
}

#[test]
fn harsher_worlds_are_told_of_and_played_again_with_the_same_options() {
    let given = ["--servers", "4", "--call-deadline", "1.5", "--fault-rate", "2"];
    let usual = ["sim", "--seeds", "4", "--first-seed", "40", "--json"];
    let (report, status) = json(&[&usual[..], &given].concat());
    assert_eq!(status, Some(0), "{report}");
    let options = serde_json::json!({
        "servers": 4, "call_deadline": 1.5, "fault_rate": 2.0, "harsh": false,
    });
    assert_eq!(report["options"], options);
    let (other, _) = json(&usual);
    let options = serde_json::json!({
        "servers": null, "call_deadline": null, "fault_rate": null, "harsh": false,
    });
    assert_eq!(other["options"], options);
    let faults = |of: &Value| -> u64 {
        of["faults"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
    };
    assert!(faults(&report) > faults(&other), "{report} {other}");

    let replay = |options: &[&str]| json(&[&["replay", "41", "--json"], options].concat()).0;
    let told = replay(&given);
    assert!(told["options"].as_str().unwrap().contains("4 servers"), "{}", told["options"]);
    assert!(told["options"].as_str().unwrap().contains("calls have 1.5 s"));
    assert_eq!(told, replay(&given));
    assert_ne!(told["lines"], replay(&[])["lines"]);
    // What is drawn is drawn for the story as for the campaign.
    let (drawn, _) = json(&["sim", "--seeds", "1", "--first-seed", "41", "--harsh", "--json"]);
    assert_eq!(drawn["events"], replay(&["--harsh"])["events"]);
    assert_eq!(drawn["options"]["harsh"], true);
}

#[test]
fn what_is_no_world_is_refused() {
    for wrong in [
        ["--servers", "0"],
        ["--servers", "9"],
        ["--call-deadline", "0"],
        ["--call-deadline", "nan"],
        ["--fault-rate", "-1"],
        ["--fault-rate", "1e9"],
    ] {
        let refused = weightcast(&[&["sim", "--seeds", "1"], &wrong[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {refused:?}");
    }
}

#[test]
fn a_story_is_told_line_by_line() {
    let story = weightcast(&["replay", "1", "--to", "500"]);
    let story = String::from_utf8(story.stdout).unwrap();
    assert!(story.starts_with("seed 1\n") && story.contains("trainer-0/0"), "{story}");
    assert!(story.contains("opens") && story.contains("register"), "{story}");
}

#[test]
fn worlds_of_pushes_are_played_and_told() {
    let arguments = ["sim", "--pushes", "--seeds", "20", "--first-seed", "7", "--json"];
    let (report, status) = json(&arguments);
    assert_eq!(status, Some(0), "{report}");
    assert_eq!((&report["seeds"], &report["violations"]), (&20.into(), &serde_json::json!([])));
    assert!(report["writes"].as_u64().unwrap() > 1_000, "{report}");
    assert!(report["outcomes"]["ready"].as_u64().unwrap() > 100, "{report}");
    assert_eq!(without_time(report), without_time(json(&arguments).0));
    let told = weightcast(&["replay", "--pushes", "7"]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let story = String::from_utf8_lossy(&told.stdout);
    assert!(["opens", "closes grant", "serves"].iter().all(|step| story.contains(step)), "{story}");
}

#[test]
fn worlds_of_engine_updates_are_played_and_told() {
    let arguments = ["sim", "--updates", "--seeds", "20", "--first-seed", "7", "--json"];
    let (report, status) = json(&arguments);
    assert_eq!(status, Some(0), "{report}");
    assert_eq!((&report["seeds"], &report["violations"]), (&20.into(), &serde_json::json!([])));
    assert!(report["tokens"].as_u64().unwrap() > 10_000, "{report}");
    assert!(report["outcomes"].as_object().unwrap().keys().any(|outcome| outcome.contains("new")));
    assert_eq!(without_time(report), without_time(json(&arguments).0));
    let whole = (7..27)
        .map(told_update)
        .find(|story| ["fetch", "install", "resume"].iter().all(|step| story.contains(step)));
    assert!(whole.is_some(), "no story tells of a whole update");
}

/// The story of a world of engine updates.
fn told_update(seed: u64) -> String {
    let told = weightcast(&["replay", "--updates", &seed.to_string()]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    String::from_utf8_lossy(&told.stdout).into_owned()
}
