//! `weightcast-mutants`, as a developer runs it. The words of the JSON are fixed.

use std::process::{Command, Output};

use serde_json::Value;

fn mutants(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast-mutants")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = mutants(arguments);
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

#[test]
fn a_mutant_is_caught_and_its_story_shows_it() {
    let (caught, status) = json(&["hunt", "no_group_transaction", "--json"]);
    assert_eq!((caught["caught"].as_bool(), status), (Some(true), Some(0)), "{caught}");
    let (seed, step) = (caught["seed"].to_string(), caught["step"].to_string());
    let story = ["replay", "no_group_transaction", &seed, "--json"];
    let (story, status) = json(&[&story[..], &["--from", &step, "--to", &step]].concat());
    assert_eq!(status, Some(0));
    let invariant = &caught["invariant"];
    let lines = story["lines"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["invariant"] == *invariant), "{story}");
}

#[test]
fn a_mutant_that_is_not_found_is_a_failure() {
    // The weakest one does not show in a single world.
    let arguments = ["hunt", "no_commit_fence", "--seeds", "1", "--first-seed", "3"];
    let missed = mutants(&arguments);
    assert_eq!(missed.status.code(), Some(1), "{missed:?}");
    assert!(String::from_utf8_lossy(&missed.stdout).starts_with("NOT CAUGHT"));
    let (report, status) = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!((report["caught"].as_bool(), status), (Some(false), Some(1)), "{report}");
}

#[test]
fn mutants_are_listed_by_the_names_that_play_them() {
    let (list, _) = json(&["list", "--json"]);
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    let table = mutants(&["list"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.lines().map(|line| line.split(' ').next().unwrap()).eq(names));
    let unknown = mutants(&["hunt", "no_such"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no_digest"));
}

/// `python/tests/test_build.py` looks for the same words in what users install.
#[test]
fn a_program_whose_safeguards_can_be_switched_off_says_so() {
    let words = weightcast_protocol::SWITCHABLE.as_bytes();
    assert_eq!(words, b"weightcast: safeguards can be switched off");
    let program = std::fs::read(env!("CARGO_BIN_EXE_weightcast-mutants")).unwrap();
    assert!(program.windows(words.len()).any(|found| found == words));
}
