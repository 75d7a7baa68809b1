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
    assert_eq!(without_time(report), without_time(json(&arguments).0));
}

#[test]
fn a_point_that_was_not_reached_fails_where_coverage_is_required() {
    let few = weightcast(&["sim", "--seeds", "1", "--require-coverage"]);
    assert_eq!(few.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&few.stderr).contains("no world reached"));
}

#[test]
fn a_mutant_is_caught_and_its_story_shows_it() {
    let (caught, status) = json(&["sim", "--mutant", "no_group_transaction", "--json"]);
    assert_eq!((caught["caught"].as_bool(), status), (Some(true), Some(0)), "{caught}");
    let (seed, step) = (caught["seed"].to_string(), caught["step"].to_string());
    let story = ["replay", &seed, "--mutant", "no_group_transaction", "--json"];
    let (story, status) = json(&[&story[..], &["--from", &step, "--to", &step]].concat());
    assert_eq!(status, Some(0));
    let invariant = &caught["invariant"];
    let lines = story["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["invariant"] == *invariant), "{story}");
}

#[test]
fn a_mutant_that_is_not_found_is_a_failure() {
    // The weakest one does not show in a single world.
    let missed =
        weightcast(&["sim", "--mutant", "no_commit_fence", "--seeds", "1", "--first-seed", "3"]);
    assert_eq!(missed.status.code(), Some(1), "{missed:?}");
    assert!(String::from_utf8_lossy(&missed.stdout).starts_with("NOT CAUGHT"));
}

#[test]
fn mutants_are_listed_by_the_names_that_play_them() {
    let (list, _) = json(&["sim", "--list-mutants", "--json"]);
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    let table = weightcast(&["sim", "--list-mutants"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.lines().map(|line| line.split(' ').next().unwrap()).eq(names));
    let unknown = weightcast(&["sim", "--mutant", "no_such"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no_digest"));
}

#[test]
fn a_story_is_told_line_by_line() {
    let story = weightcast(&["replay", "1", "--to", "500"]);
    let story = String::from_utf8(story.stdout).unwrap();
    assert!(story.starts_with("seed 1\n") && story.contains("trainer-0/0"), "{story}");
    assert!(story.contains("opens") && story.contains("register"), "{story}");
}
