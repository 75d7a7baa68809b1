//! The text of a server that is made up, read back.

use std::collections::BTreeSet;

use weightcast_protocol::limits::NAME_BYTES;
use weightcast_protocol::message::Role;
use weightcast_protocol::server::ReplicaState;

use super::super::by_model::tests::{busy, model, replica, snapshot, version};
use super::*;
use crate::metrics::exposition::tests::{ReadFamily, read};
use crate::metrics::model_label::MODEL_LABELS;
use crate::metrics::page;

const USAGE: ProcessUsage =
    ProcessUsage { cpu_seconds: 7.5, resident_bytes: Some(8), open_descriptors: Some(9) };

fn told() -> Snapshot {
    let mut snapshot = snapshot([("m".to_owned(), busy())]);
    snapshot.counters = Counters { publishes: 11, held_back: 12, ..Counters::default() };
    snapshot.durations.add("update", "ok", Span::from_secs(2));
    snapshot
}

fn values(family: &ReadFamily) -> Vec<(Vec<&str>, f64)> {
    family.values().into_iter().collect()
}

#[test]
fn each_family_has_its_own_numbers() {
    let families = read(&text(&told(), USAGE));
    for (name, value) in [
        ("acting", 1.0),
        ("term", 3.0),
        ("recovering", 1.0),
        ("sessions", 4.0),
        ("models", 1.0),
        ("manifests", 5.0),
        ("manifest_bytes", 6.0),
        ("publishes_total", 11.0),
        ("held_back_total", 12.0),
        ("timeouts_total", 0.0),
        ("process_cpu_seconds_total", 7.5),
        ("process_resident_memory_bytes", 8.0),
        ("process_open_fds", 9.0),
    ] {
        assert_eq!(values(&families[&format!("weightcast_{name}")]), [(vec![], value)], "{name}");
    }
    for (name, value) in [
        ("readers", 3.0),
        ("versions", 5.0),
        ("newest_version", 9.0),
        ("newest_version_age_seconds", 30.0),
        ("rollouts_behind", 3.0),
        ("versions_behind", 5.0),
        ("version_lag_max", 4.0),
        ("staleness_seconds", 30.0),
    ] {
        assert_eq!(
            values(&families[&format!("weightcast_{name}")]),
            [(vec!["m"], value)],
            "{name}"
        );
    }
    let replicas = families["weightcast_replicas"].values();
    assert_eq!(replicas[&vec!["m", "rollout", "sealed"]], 4.0);
    let pending = values(&families["weightcast_pending_calls"]);
    assert_eq!(pending, [(vec!["update", "m"], 2.0), (vec!["wait", "m"], 1.0)]);
    let oldest = values(&families["weightcast_oldest_pending_call_seconds"]);
    assert_eq!(oldest, [(vec!["update", "m"], 7.0), (vec!["wait", "m"], 90.0)]);
    let calls = &families["weightcast_call_seconds"].samples;
    let sum = calls.iter().find(|sample| sample.name.ends_with("_sum")).unwrap();
    assert_eq!((sum.labels["call"].as_str(), sum.labels["outcome"].as_str()), ("update", "ok"));
    assert_eq!(sum.value, 2.0);
}

#[test]
fn a_passive_server_says_so_and_what_is_not_known_is_left_out() {
    let mut passive = snapshot([("m".to_owned(), model(Vec::new()))]);
    (passive.term.0, passive.recovers) = (0, false);
    let none = passive.models.get_mut("m").unwrap();
    (none.versions, none.latest_for) = (BTreeMap::new(), None);
    let families = read(&text(&passive, ProcessUsage::default()));
    for name in ["acting", "term", "recovering"] {
        assert_eq!(values(&families[&format!("weightcast_{name}")]), [(vec![], 0.0)], "{name}");
    }
    for name in ["newest_version", "newest_version_age_seconds", "process_open_fds"] {
        assert_eq!(families[&format!("weightcast_{name}")].samples, [], "{name}");
    }
    assert_eq!(values(&families["weightcast_staleness_seconds"]), [(vec!["m"], 0.0)]);
}

/// A scraper is told of models, and of nobody by name.
#[test]
fn labels_are_models_and_words_of_the_protocol() {
    let text = text(&told(), USAGE);
    assert!(!text.contains("secret"), "{text}");
    let labels: BTreeSet<String> = read(&text).values().flat_map(ReadFamily::labels).collect();
    let known = ["call", "model", "outcome", "role", "state", "version"].map(str::to_owned);
    assert_eq!(labels, BTreeSet::from(known));
}

#[test]
fn the_largest_text_is_bounded() {
    use ReplicaState::*;
    let held = Some(version(1, 5));
    let roles =
        [Role::Trainer, Role::Rollout, Role::Offload(version(1, 5)), Role::Seed(version(1, 5))];
    let states = [
        Opening, Recovering, Empty, Reading, Published, Sealed, Draining, Installing, Fenced,
        Closing, Broken,
    ];
    let all = || {
        let of = |role| states.into_iter().map(move |state| replica(role, state, held));
        let mut model = model(roles.into_iter().flat_map(of).collect());
        model.replicas.extend(busy().replicas);
        model
    };
    // Each character of the longest names needs escaping.
    let named =
        (0..2 * MODEL_LABELS).map(|at| (format!("{at:03}{}", "\"".repeat(NAME_BYTES - 3)), all()));
    let text = text(&snapshot(named), USAGE);
    assert!(text.len() > 3 << 20 && text.len() < 5 << 20, "{}", text.len());
    read(&text);
}

#[test]
fn the_page_lists_each_metric_and_no_other() {
    page::lists_metrics(&text(&told(), USAGE), |name| !name.starts_with("weightcast_client_"));
}
