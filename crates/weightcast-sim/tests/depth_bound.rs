//! D6: what becomes of those who would be too deep in a chain. They wait until the first are through,
//! and then read from them: everybody is served in twice the time, and nobody is slowed down.

use serde_json::{Value, json};
use weightcast_sim::scenario::{Measure, Scenario, play};

const GROUPS: u32 = 24;

/// The longest and the total stall, in seconds, of a burst of groups with this bound.
fn burst(depth_limit: u32) -> (f64, f64) {
    let file =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/figure-7b-burst.json").to_owned();
    let text = std::fs::read_to_string(file).unwrap();
    let mut scenario: Value = serde_json::from_str(&text).unwrap();
    scenario["cases"] = json!([{
        "name": "burst",
        "change": {
            "groups": {"rollout": {"replicas": GROUPS}},
            "protocol": {"depth_limit": depth_limit},
        },
        "reported": [],
        "formulas": [],
    }]);
    let scenario = Scenario::parse(&scenario.to_string()).unwrap();
    let case = &scenario.cases[0];
    let outcome = play(&case.name, &scenario.setting(case).unwrap()).unwrap();
    let measure = |what| outcome.measure(what, None, None).unwrap();
    (measure(Measure::LongestStallS), measure(Measure::TotalStallS))
}

#[test]
fn who_would_be_too_deep_waits_once_and_slows_nobody_down() {
    let (one_chain, all_at_once) = burst(64);
    let (longest, total) = burst(GROUPS / 2);
    assert!(longest < 2.1 * one_chain, "{longest} s instead of {one_chain} s");
    // Half wait once for the other half, which is through as early as without a bound.
    assert!(total < 1.55 * all_at_once, "{total} s instead of {all_at_once} s");
}
