//! Many short worlds, with every safeguard on.

use weightcast_protocol::Span;
use weightcast_sim::{Report, WorldOptions, run};

fn reports(seeds: std::ops::Range<u64>, options: &WorldOptions) -> Vec<Report> {
    seeds.map(|seed| run(seed, options)).collect()
}

#[test]
fn the_protocol_holds_in_200_worlds() {
    let reports = reports(0..200, &WorldOptions { datacentres: 2, ..WorldOptions::default() });
    for report in &reports {
        assert!(report.violations.is_empty(), "seed {}: {:?}", report.seed, report.violations);
    }
    // The generator decides what is found: what the worlds must have been through.
    let total = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let ended = |how: &str| {
        reports
            .iter()
            .flat_map(|r| &r.calls)
            .filter(|(k, _)| k.ends_with(how))
            .map(|c| c.1)
            .sum::<u64>()
    };
    assert!(total(|r| r.counters.commits) > 1_500);
    assert!(total(|r| r.counters.evictions) > 100);
    assert!(total(|r| r.counters.drains_cut) > 0);
    assert!(total(|r| r.counters.left_behind) > 0);
    assert!(total(|r| r.counters.digest_mismatches) > 20);
    assert!(total(|r| r.counters.read_failures) > 20);
    assert!(total(|r| r.counters.relays) > 80);
    assert!(total(|r| r.counters.resumes) > 0);
    assert!(total(|r| r.counters.skips) > 0);
    assert!(ended("InDoubt") > 0);
    assert!(ended("ServerUnreachable") > 20);
    assert!(ended("SourceLost") > 0);
    assert!(ended("Unchanged") > 100);
}

/// What shards tell renews leases as heartbeats do, and bars further sources at most.
#[test]
fn the_protocol_holds_where_shards_tell_how_far_they_are() {
    let progress_every = Some(Span::from_millis(20));
    let telling = WorldOptions { progress_every, ..WorldOptions::default() };
    let mut other = 0;
    for seed in 0..60 {
        let report = run(seed, &telling);
        assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
        let silent = run(seed, &WorldOptions::default());
        other += u64::from(report.fingerprint != silent.fingerprint);
    }
    assert!(other > 30, "shards of {other} worlds have told anything");
}

#[test]
fn the_same_seed_is_the_same_world() {
    let options = WorldOptions::default();
    for seed in 0..5 {
        assert_eq!(run(seed, &options), run(seed, &options));
    }
    assert_ne!(run(1, &options).fingerprint, run(2, &options).fingerprint);
}
