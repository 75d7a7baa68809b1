//! The scenario files that come with the repository: each parses, plays, and always plays the same.

use std::path::PathBuf;

use weightcast_sim::scenario::{CaseComparison, Measure, Outcome, Scenario, ScenarioError};

fn read(name: &str) -> Scenario {
    let path = directory().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Plays the cases that are chosen; none may have a call that failed, but for what a killed
/// source's readers see.
fn compare(name: &str, chosen: impl Fn(&str) -> bool) -> Vec<CaseComparison> {
    let scenario = read(name);
    let cases = scenario.cases.iter().filter(|case| chosen(&case.name));
    let compared: Vec<CaseComparison> = cases
        .map(|case| scenario.compare(case).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect();
    for comparison in &compared {
        assert_eq!(comparison.outcome.failures.len(), 0, "{name}: {:?}", comparison.outcome);
    }
    compared
}

fn ratios(comparisons: &[CaseComparison]) -> impl Iterator<Item = f64> {
    comparisons.iter().flat_map(|c| &c.rows).filter(|row| !row.formula).filter_map(|row| row.ratio)
}

fn total(outcome: &Outcome) -> f64 {
    outcome.measure(Measure::TotalStallS, None, None).expect("somebody waited")
}

#[test]
fn every_file_parses_and_every_case_makes_sense() {
    let mut files: Vec<String> = std::fs::read_dir(directory())
        .expect("the directory is there")
        .map(|entry| entry.expect("it can be listed").file_name().into_string().expect("ASCII"))
        .collect();
    files.sort();
    let figures = ["11-elastic", "12-cross-datacentre", "7b-burst", "7c-failure", "9-standalone"];
    assert_eq!(files, figures.map(|figure| format!("figure-{figure}.json")));
    for file in files {
        assert!(!read(&file).cases.is_empty(), "{file}");
    }
}

#[test]
fn a_burst_costs_every_replica_the_same_with_relays_and_its_number_without() {
    let all = compare("figure-7b-burst.json", |name| !name.starts_with("18"));
    let stall = |case: &str| {
        let of = all.iter().find(|c| c.case == case).expect("the case is there");
        total(&of.outcome)
    };
    assert!(ratios(&all).all(|ratio| (0.95..1.15).contains(&ratio)), "{all:#?}");
    assert!(stall("9 rollout groups") < 9.5 * stall("1 rollout group"));
    assert!(
        stall("9 rollout groups, no pipeline: all read from the trainer")
            > 80.0 * stall("1 rollout group")
    );
}

#[test]
fn a_reader_of_a_relay_that_fails_goes_on_where_it_was() {
    for comparison in compare("figure-7c-failure.json", |_| true) {
        let longest = comparison.outcome.measure(Measure::LongestStallS, Some("b"), None);
        let longest = longest.expect("B has waited");
        let undisturbed = 2.2..2.5;
        let fails = ["2.5", "no failure"].iter().all(|name| !comparison.case.contains(name));
        assert!(undisturbed.contains(&longest) != fails, "{}: {longest}", comparison.case);
        assert_eq!(comparison.outcome.counters.resumes, u64::from(fails), "{}", comparison.case);
    }
}

#[test]
fn standalone_rollouts_wait_for_their_own_bytes_only() {
    let all = compare("figure-9-standalone.json", |name| !name.starts_with("1T"));
    for comparison in &all {
        let longest = comparison.outcome.measure(Measure::LongestStallS, None, None);
        let mean = comparison.outcome.measure(Measure::MeanStallS, None, None);
        assert!(longest.expect("they waited") < 1.1 * mean.expect("they waited"));
    }
}

#[test]
fn the_stall_of_elastic_rollouts_does_not_depend_on_their_number() {
    let all = compare("figure-11-elastic.json", |_| true);
    assert!(ratios(&all).all(|ratio| (0.95..1.15).contains(&ratio)), "{all:#?}");
}

#[test]
fn one_copy_of_a_version_crosses_to_a_datacentre() {
    for comparison in compare("figure-12-cross-datacentre.json", |_| true) {
        let crossed = &comparison.outcome.crossed;
        assert_eq!(crossed.len(), 2, "two versions, one datacentre: {crossed:?}");
        for ((version, to), gb) in crossed {
            assert!((gb - 20.0).abs() < 1e-6, "version {version} to {to}: {gb} GB");
        }
    }
}

#[test]
fn with_offload_seeding_nobody_waits_for_the_other_datacentre() {
    let all = compare("figure-12-cross-datacentre.json", |name| !name.ends_with("fitted"));
    let longest = |case: &str| {
        let of = all.iter().find(|c| c.case == case).expect("the case is there");
        of.outcome.measure(Measure::LongestStallS, None, None).expect("they waited")
    };
    let near = all[0].outcome.measure(Measure::MedianStallS, None, None).expect("they waited");
    assert!(longest("offload seeding") < 1.2 * near, "{all:#?}");
    assert!(longest("smart skipping") > 2.0 * near);
    let counters = &all[1].outcome.counters;
    assert_eq!((counters.seeds, counters.seeds_released, counters.seeds_failed), (1, 1, 0));
}

#[test]
fn a_scenario_always_plays_the_same() {
    for (file, case) in [("figure-12-cross-datacentre.json", 1), ("figure-7c-failure.json", 2)] {
        let scenario = read(file);
        let play = || scenario.compare(&scenario.cases[case]).expect("it ends").outcome;
        assert_eq!(play(), play(), "{file}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let setting = |change: &str| {
        let text = std::fs::read_to_string(directory().join("figure-7b-burst.json")).unwrap();
        let mut file: serde_json::Value = serde_json::from_str(&text).unwrap();
        file["cases"][0]["change"] = serde_json::from_str(change).unwrap();
        Scenario::parse(&file.to_string()).expect_err("it makes no sense").to_string()
    };
    let reason = setting(r#"{"groups": {"rollout": {"datacentre": "mars"}}}"#);
    assert!(reason.contains("mars"), "{reason}");
    let reason = setting(r#"{"shard_gb": -1}"#);
    assert!(reason.contains("shard_gb is -1"), "{reason}");
    let reason = setting(r#"{"shards": 4000000}"#);
    assert!(reason.contains("at most"), "{reason}");
    let reason = setting(r#"{"script": [{"at_s": 0, "do": "publish", "group": "trainer"}]}"#);
    assert!(reason.contains("needs a version"), "{reason}");
    assert!(matches!(Scenario::parse("{}"), Err(ScenarioError::Syntax { .. })));
}

#[test]
fn a_script_that_waits_for_ever_is_given_up() {
    let text = std::fs::read_to_string(directory().join("figure-9-standalone.json")).unwrap();
    let scenario =
        Scenario::parse(&text.replace(r#""version": 2, "every_s""#, r#""version": 3, "every_s""#));
    let scenario = scenario.expect("it makes sense by itself");
    let error = scenario.compare(&scenario.cases[0]).expect_err("nobody publishes version 3");
    assert!(matches!(error, ScenarioError::Unfinished { .. }), "{error}");
}
