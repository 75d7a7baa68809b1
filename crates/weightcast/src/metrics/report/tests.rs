//! The figures of some models, told in both ways.

use std::time::Duration;

use weightcast_protocol::{Epoch, Version};

use super::super::exposition::tests::{ReadFamily, read};
use super::super::figures::ReadBrought;
use super::super::page;
use super::*;

fn version(number: u64) -> Version {
    Version { epoch: Epoch(0), number }
}

/// One of which each figure is another number.
fn model(now: Instant) -> ModelFigures {
    let second = Duration::from_secs(1);
    let mut model = ModelFigures::default();
    model.handles = BTreeMap::from([(1, Some((version(7), now - 5 * second))), (2, None)]);
    model.heard_of(version(9));
    for (call, outcome, seconds) in [
        ("update", "ok", 2),
        ("update", "unchanged", 4),
        ("replicate", "ok", 8),
        ("update", "timeout", 16),
        ("publish", "ok", 32),
        ("publish", "misuse", 64),
        ("unpublish", "ok", 128),
        ("wait", "ok", 256),
        ("wait_sealed", "ok", 512),
    ] {
        model.call_ended(now, call, outcome, seconds * second);
    }
    let read = ReadBrought {
        shared: 9_000_000_000,
        direct: 6_000_000_000,
        tcp: 3_000_000_000,
        unchanged: 5_000,
        seconds: 3.5,
        plan_seconds: 0.5,
        install_seconds: 0.25,
    };
    model.read_ended(now, &read);
    model.sealed_in(Duration::from_millis(750));
    (model.retries, model.refusals, model.offloads, model.seeds) = (11, 12, 13, 14);
    model
}

#[test]
fn each_figure_has_its_own_number() {
    let now = Instant::now();
    let told = dictionary(vec![model(now)], now);
    let expected = [
        ("handles", 2.0),
        ("version", 7.0),
        ("version_lag", 2.0),
        ("version_age_seconds", 5.0),
        ("updates", 2.0),
        ("update_seconds", 30.0),
        ("last_update_seconds", 8.0),
        ("publishes", 1.0),
        ("publish_seconds", 96.0),
        ("unpublish_seconds", 128.0),
        ("wait_seconds", 256.0),
        ("wait_sealed_seconds", 512.0),
        ("timeouts", 1.0),
        ("errors", 1.0),
        ("bytes_shared", 9e9),
        ("bytes_direct", 6e9),
        ("bytes_tcp", 3e9),
        ("bytes_unchanged", 5e3),
        ("gb_per_s_shared", 3.0),
        ("gb_per_s_direct", 2.0),
        ("gb_per_s_tcp", 1.0),
        ("read_seconds", 3.5),
        ("plan_seconds", 0.5),
        ("install_seconds", 0.25),
        ("seal_seconds", 0.75),
        ("retries", 11.0),
        ("refusals", 12.0),
        ("offloads", 13.0),
        ("seeds", 14.0),
    ];
    let expected = expected.map(|(key, value)| (format!("weightcast/{key}"), value));
    assert_eq!(told, BTreeMap::from(expected));
}

#[test]
fn what_is_not_known_is_left_out() {
    let now = Instant::now();
    assert_eq!(dictionary(Vec::new(), now), BTreeMap::new());
    let told = dictionary(vec![ModelFigures::default()], now);
    for (key, there) in [
        ("handles", true),
        ("update_seconds", true),
        ("version", false),
        ("version_lag", false),
        ("version_age_seconds", false),
        ("last_update_seconds", false),
        ("gb_per_s_tcp", false),
    ] {
        assert_eq!(told.contains_key(&format!("weightcast/{key}")), there, "{key}");
    }
}

#[test]
fn models_are_summed_up_and_the_furthest_behind_is_told() {
    let now = Instant::now();
    let (one, mut other) = (model(now), model(now));
    other.handles = BTreeMap::from([(3, Some((version(3), now)))]);
    other.call_ended(now + Duration::from_secs(1), "update", "ok", Duration::from_secs(1));
    let told = dictionary(vec![one, other], now);
    for (key, value) in [
        ("handles", 3.0),
        ("version", 3.0),
        ("version_lag", 6.0),
        ("version_age_seconds", 5.0),
        ("updates", 5.0),
        ("update_seconds", 61.0),
        ("last_update_seconds", 1.0),
        ("bytes_tcp", 6e9),
        ("gb_per_s_tcp", 1.0),
        ("retries", 22.0),
    ] {
        assert_eq!(told[&format!("weightcast/{key}")], value, "{key}");
    }
}

#[test]
fn the_text_has_each_model_by_its_name() {
    let now = Instant::now();
    let models = BTreeMap::from([
        ("a \"model\"\n".to_owned(), model(now)),
        ("idle".to_owned(), ModelFigures::default()),
    ]);
    let families = read(&text(&models, now));
    let of = |family: &str| families[&format!("weightcast_client_{family}")].values();
    let named = "a \"model\"\n";
    assert_eq!(of("version"), BTreeMap::from([(vec![named], 7.0)]));
    assert_eq!(of("retries_total"), BTreeMap::from([(vec![named], 11.0), (vec!["idle"], 0.0)]));
    let bytes = of("read_bytes_total");
    assert_eq!((bytes[&vec![named, "direct"]], bytes[&vec![named, "tcp"]]), (6e9, 3e9));
    let calls: &ReadFamily = &families["weightcast_client_call_seconds"];
    let sum = calls.samples.iter().find(|sample| {
        sample.name.ends_with("_sum")
            && sample.labels["call"] == "update"
            && sample.labels["outcome"] == "timeout"
    });
    assert_eq!(sum.map(|sample| sample.value), Some(16.0));
}

#[test]
fn the_page_lists_each_figure_and_no_other() {
    let keys = FIGURES.iter().map(|figure| (format!("weightcast/{}", figure.key), figure.meaning));
    page::lists_figures(&keys.collect::<Vec<_>>());
    let now = Instant::now();
    let models = BTreeMap::from([("m".to_owned(), model(now))]);
    page::lists_metrics(&text(&models, now), |name| name.starts_with("weightcast_client_"));
}
