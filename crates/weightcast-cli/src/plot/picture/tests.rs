//! What is shown is what the files say: results of real benches, by the names that people see.

use serde_json::{Value, json};

use super::{Bar, Chart, Curve, Ink, Mark, Period, Picture, PicturePanel};
use crate::plot::kinds;

/// A result that is kept in docs/results.
fn result(name: &str) -> (Value, Picture) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let text = std::fs::read_to_string(format!("{path}/{name}.json")).expect("a result");
    (serde_json::from_str(&text).expect("JSON"), drawn(&text))
}

fn drawn(text: &str) -> Picture {
    kinds::picture(text).expect("a file that can be drawn")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn panel<'a>(picture: &'a Picture, title: &str) -> &'a PicturePanel {
    let mut panels = picture.rows.iter().flatten();
    panels.find(|panel| panel.title == title).unwrap_or_else(|| panic!("no {title} in {picture:?}"))
}

fn curve<'a>(picture: &'a Picture, title: &str, name: &str) -> &'a Curve {
    let Chart::Curves(chart) = &panel(picture, title).chart else {
        panic!("{title} has no curves")
    };
    chart.curves.iter().find(|curve| curve.name == name).expect("a curve")
}

fn bar<'a>(picture: &'a Picture, title: &str, category: &str, series: &str) -> &'a Bar {
    let Chart::Bars(chart) = &panel(picture, title).chart else { panic!("{title} has no bars") };
    let place = chart.categories.iter().position(|name| name == category);
    let place = place.unwrap_or_else(|| panic!("{category}: {:?}", chart.categories));
    let series = chart.series.iter().find(|one| one.name == series).expect("a series");
    series.bars[place].as_ref().expect("a bar")
}

#[test]
fn a_fan_out_shows_stalls_beside_the_ideal_and_the_naive() {
    let (file, picture) = result("fanout");
    for (what, measured, ideal) in
        [("Total stall", "sum_s", "ideal_sum_s"), ("Slowest reader", "max_s", "ideal_max_s")]
    {
        for (shards, plural) in [(1, ""), (2, "s")] {
            let title = format!("{what}, {shards} shard{plural}");
            let spreads = file["spreads"].as_array().expect("spreads").iter();
            let spreads: Vec<&Value> = spreads.filter(|s| s["shards"] == shards).collect();
            let of = |value: &dyn Fn(&Value) -> f64| -> Vec<(f64, f64)> {
                spreads.iter().map(|s| (number(&s["readers"]), value(s))).collect()
            };
            assert_eq!(spreads.len(), 5);
            for (name, ink, wanted) in [
                ("weightcast", Ink::Weightcast, of(&|s| number(&s["stack"][measured]))),
                ("ideal", Ink::Limit, of(&|s| number(&s[ideal]))),
                (
                    "all read from the trainer",
                    Ink::Compared,
                    of(&|s| number(&s["naive"][measured])),
                ),
            ] {
                let curve = curve(&picture, &title, name);
                assert_eq!((&curve.points, curve.ink), (&wanted, ink), "{title}");
            }
        }
    }
    assert_eq!(picture.notes[0], "AMD EPYC, 2 CPUs, Linux 6.18.44-fc-v669");
    assert!(picture.notes[1].starts_with("33.6 MB a replica, 200 Mbit/s a host"), "{picture:?}");
}

#[test]
fn one_number_of_readers_deaths_and_seeds_are_bars() {
    let (file, picture) = result("fanout-two-datacentres");
    let spread = &file["spreads"][0];
    let title = "Total stall, 1 shard, 2 datacentres";
    let shown = bar(&picture, title, "8 readers", "weightcast").value;
    assert_eq!(shown, number(&spread["stack"]["sum_s"]));

    let (file, picture) = result("fanout-killed");
    let title = "A source is killed part-way: the last of the others";
    for killed in file["killed"].as_array().expect("deaths") {
        let category = format!("4 readers, 1 shard: killed at {} %", killed["percent"]);
        for (series, field) in
            [("ideal", "ideal_s"), ("undisturbed", "undisturbed_s"), ("a source killed", "max_s")]
        {
            assert_eq!(bar(&picture, title, &category, series).value, number(&killed[field]));
        }
    }
    assert_eq!(picture.rows.len(), 1, "panels without content are left out");

    let (file, picture) = result("fanout-seeding");
    let title = "Offload seeding: 4 readers of 1 shard, half of them far away";
    for (category, series, field) in [
        ("the copy crosses", "ideal", "ideal_crossing_s"),
        ("the copy crosses", "weightcast", "crossing_s"),
        ("a far update reads the seed", "ideal", "ideal_s"),
        ("a far update reads the seed", "weightcast", "consume_s"),
        ("longest poll meanwhile", "weightcast", "longest_poll_s"),
    ] {
        let wanted = number(&file["seeded"][0][field]);
        assert_eq!(bar(&picture, title, category, series).value, wanted, "{category}");
    }
}

#[test]
fn the_control_plane_shows_latencies_and_processor_time() {
    let (file, picture) = result("control");
    for (load, rate) in [(0, "10,000"), (1, "20,000")] {
        let mixed = &file["mixed"][load];
        let title = format!("Latency at {rate} operations a second");
        for (series, field) in [("p50", "p50_ms"), ("p99", "p99_ms")] {
            let shown = |category| bar(&picture, &title, category, series).value;
            assert_eq!(shown("all"), number(&mixed["all"][field]));
            assert_eq!(shown("update"), number(&mixed["kinds"]["update"][field]));
        }
        for (series, field) in [("server", "server_cpu"), ("load generator", "load_cpu")] {
            let shown = bar(&picture, "Processor time", &format!("{rate} a second"), series);
            assert_eq!(shown.value, number(&mixed[field]) * 100.0);
        }
    }
    let herd = &file["herds"][1];
    let shown = |series| {
        bar(&picture, "All groups ask within 100 ms", "update, 1,024 groups", series).value
    };
    assert_eq!(shown("p99"), number(&herd["latency"]["p99_ms"]));
    assert_eq!(shown("all answered"), number(&herd["seconds"]) * 1e3);
    assert_eq!(picture.notes[2], "4,096 sessions, connected in 1.25 s, 38 KiB each");

    let (file, picture) = result("control-sweep");
    let of = |value: &dyn Fn(&Value) -> f64| -> Vec<(f64, f64)> {
        let steps = file["sweep"].as_array().expect("steps").iter();
        steps.map(|step| (number(&step["connected"]["sessions"]), value(step))).collect()
    };
    for (title, name, wanted) in [
        (
            "Processor time of an operation",
            "server",
            of(&|step| number(&step["mixed"]["server_us_per_op"])),
        ),
        ("Latency", "p99", of(&|step| number(&step["mixed"]["all"]["p99_ms"]))),
        ("Latency", "p50", of(&|step| number(&step["mixed"]["all"]["p50_ms"]))),
        ("All connected", "server", of(&|step| number(&step["connected"]["connect_s"]))),
        (
            "Memory of the server",
            "server",
            of(&|step| number(&step["connected"]["bytes_per_session"]) / 1024.0),
        ),
    ] {
        assert_eq!(curve(&picture, title, name).points, wanted, "{title}");
    }
}

#[test]
fn a_failover_shows_who_is_back_after_how_long() {
    let file = json!({
        "machine": {"cpu": "c", "cpus": 2, "kernel": "k"},
        "load_threads": 1, "connected": null, "mixed": [], "herds": [], "sweep": [],
        "failover": {"sessions": 4096, "lease_s": 5.0, "first_s": 2.5, "most_s": 4.25, "all_s": 4.5},
    });
    let picture = drawn(&file.to_string());
    let shown =
        |category| bar(&picture, "4,096 sessions lose their server", category, "backup").value;
    let categories = ["first session turns", "95 % in whole groups", "all in whole groups"];
    assert_eq!(categories.map(shown), [2.5, 4.25, 4.5]);
}

#[test]
fn joiners_are_shown_beside_the_ideal() {
    let (file, picture) = result("elastic");
    let stalls: Vec<f64> = file["cdf_s"].as_array().expect("stalls").iter().map(number).collect();
    let (stack, ideal) = ("weightcast", number(&file["ideal_s"]));
    let ups = |name| -> Vec<f64> {
        curve(&picture, "Stall of 20 joiners", name).points.iter().map(|p| p.1).collect()
    };
    assert_eq!((ups(stack), ups("ideal")), (stalls, vec![ideal; 20]));
    let shown = bar(&picture, "Median stall", "2 at once", stack).value;
    assert_eq!(shown, number(&file["by_number"]["2"]));
}

/// Each way is a panel; a case that has no time by a way has no bar there.
#[test]
fn a_transfer_shows_speeds_beside_the_limits() {
    let speed =
        |limit: &str, s: f64, gb: f64| json!({"limit": limit, "median_s": s, "gb_per_s": gb});
    let case = |name: &str, bytes: u64, direct: Value| {
        let tcp = json!({"way": "tcp", "stack": {"median_s": 0.25, "gb_per_s": 4.0},
            "limits": [speed("socket pair x2", 0.2, 5.0)]});
        json!({"case": name, "bytes": bytes, "ways": [direct, tcp]})
    };
    let fast = json!({"way": "direct", "stack": {"median_s": 0.0041, "gb_per_s": 12.5},
        "limits": [speed("memcpy x2", 0.05, 20.0), speed("process_vm_readv x2", 1.5, 16.0)]});
    let none = json!({"way": "direct", "stack": null, "limits": []});
    let file = json!({
        "machine": {"cpu": "c", "cpus": 2, "kernel": "k"}, "quick": true, "runs": 9, "publish": [],
        "transfers": [case("small", 20_480_000, fast), case("large", 2_147_483_648, none)],
    });
    let picture = drawn(&file.to_string());
    let at = |value: f64, remark: &str| Bar { value, remark: remark.to_owned() };
    for (way, category, series, wanted) in [
        ("direct", "small, 20.5 MB", "update", at(12.5, "4.10 ms")),
        ("direct", "small, 20.5 MB", "memcpy x2", at(20.0, "50 ms")),
        ("direct", "small, 20.5 MB", "process_vm_readv x2", at(16.0, "1.50 s")),
        ("tcp", "small, 20.5 MB", "update", at(4.0, "250 ms")),
        ("tcp", "large, 2.15 GB", "socket pair x2", at(5.0, "200 ms")),
    ] {
        assert_eq!(*bar(&picture, &format!("Way: {way}"), category, series), wanted);
    }
    let Chart::Bars(direct) = &panel(&picture, "Way: direct").chart else { panic!("no bars") };
    assert!(direct.series.iter().all(|series| series.bars[1].is_none()), "{direct:?}");
    assert!(picture.notes[1].contains("9 runs; quick: too small"), "{picture:?}");
}

#[test]
fn of_many_limits_the_first_are_shown() {
    let limit = |n: usize| json!({"limit": format!("limit {n}"), "median_s": 1.0, "gb_per_s": 1.0});
    for (limits, series) in [(7, 8), (8, 9), (9, 9)] {
        let limits: Vec<Value> = (0..limits).map(limit).collect();
        let way =
            json!({"way": "tcp", "stack": {"median_s": 1.0, "gb_per_s": 1.0}, "limits": limits});
        let file = json!({
            "machine": {"cpu": "c", "cpus": 2, "kernel": "k"}, "quick": false, "runs": 1, "publish": [],
            "transfers": [{"case": "c", "bytes": 1, "ways": [way]}],
        });
        let picture = drawn(&file.to_string());
        let Chart::Bars(chart) = &panel(&picture, "Way: tcp").chart else { panic!("no bars") };
        assert_eq!(chart.series.len(), series);
    }
}

#[test]
fn a_scenario_shows_waits_predictions_and_busy_links() {
    let row = |what: &str, predicted: f64, reported: Option<f64>| -> Value {
        json!({"what": what, "predicted": predicted, "reported": reported})
    };
    let case = |name: &str, stalls: &[f64], links: &[(&str, f64)]| {
        let stalls: Vec<Value> = stalls.iter().map(|s| json!({"stall_s": s})).collect();
        let links: Vec<Value> =
            links.iter().map(|(name, gb)| json!({"name": name, "gb": gb})).collect();
        let rows = [
            row("total stall (s)", 18.0, Some(17.5)),
            row("mean stall (s)", 2.0, None),
            row("crossed (GB), version 2", 20.0, Some(20.0)),
        ];
        json!({"case": name, "rows": rows, "outcome": {"stalls": stalls, "links": links}})
    };
    let cases = [case("a", &[3.0, 1.0, 2.0], &[("x", 1.0), ("y", 5.0)]), case("b", &[], &[])];
    let file = json!({"figure": "Figure 7: a burst", "cases": cases});
    let picture = drawn(&file.to_string());
    assert_eq!((&*picture.title, &*picture.notes[0]), ("Simulated: a burst", "Figure 7"));
    let wait = |series| bar(&picture, "Waits for weights", "a", series).value;
    assert_eq!((wait("median of all shards"), wait("longest")), (2.0, 3.0));
    let stall = |series| bar(&picture, "Predicted beside reported", "total stall: b", series).value;
    assert_eq!((stall("predicted"), stall("reported")), (18.0, 17.5));
    let Chart::Bars(chart) = &panel(&picture, "Predicted beside reported").chart else {
        panic!("no bars")
    };
    assert_eq!(chart.categories, ["total stall: a", "total stall: b"]);
    let Chart::Bars(chart) = &panel(&picture, "Use of the busiest links").chart else {
        panic!("no bars")
    };
    assert_eq!(chart.categories, ["y: a", "x: a"], "the busiest comes first");
}

#[test]
fn of_many_categories_the_first_are_shown_and_the_title_says_so() {
    let case = |n: usize| {
        let outcome = json!({"stalls": [{"stall_s": n}], "links": []});
        json!({"case": n.to_string(), "rows": [], "outcome": outcome})
    };
    for (cases, title, shown) in
        [(40, "Waits for weights", 40), (41, "Waits for weights (the first 40 of 41)", 40)]
    {
        let cases: Vec<Value> = (0..cases).map(case).collect();
        let picture = drawn(&json!({"figure": "f", "cases": cases}).to_string());
        let Chart::Bars(chart) = &panel(&picture, title).chart else { panic!("no bars") };
        assert_eq!(chart.categories.len(), shown);
        assert!(chart.series.iter().all(|series| series.bars.len() == shown));
    }
}

/// A job on Ray of four steps, which loses a node before its third, or none.
fn ray_run(lost: Option<&str>, behind: u32) -> Value {
    let step = |n: u32| {
        json!({"step": n, "version": n + 1, "reward": f64::from(n) / 8.0, "staleness": 0.0,
            "stalest": n / 3, "furthest": n / 2 * behind, "ended_s": f64::from(n) * 0.5 + 4.0})
    };
    let event = |what: &str, step: u32, at_s: f64| json!({"what": what, "step": step, "detail": "server", "at_s": at_s});
    let events = [
        event("node lost", 2, 4.75),
        event("rollouts behind", 2, 5.0),
        event("rollouts behind", 3, 9.0),
        event("server moved", 3, 6.0),
    ];
    let events = if lost.is_some() { &events[..] } else { &[] };
    json!({"lost": lost, "steps": [step(0), step(1), step(2), step(3)], "events": events})
}

#[test]
fn a_job_on_ray_that_loses_a_node_is_shown_beside_one_that_loses_none() {
    let runs = [ray_run(None, 0), ray_run(Some("rollout"), 1), ray_run(Some("server"), 3)];
    let machine = json!({"cpu": "c", "cpus": 2, "kernel": "k"});
    let file = json!({"weightcast": "ray-loss/1", "machine": machine, "runs": runs});
    let picture = drawn(&file.to_string());
    for (name, ink, furthest) in [
        ("no loss", Ink::Limit, 0.0),
        ("node of the rollout lost", Ink::Other(1), 1.0),
        ("node of the server lost", Ink::Weightcast, 3.0),
    ] {
        for (title, ups) in [
            ("Reward", [0.0, 0.125, 0.25, 0.375]),
            ("The worst batch learnt from", [0.0, 0.0, 0.0, 1.0]),
            ("The rollout furthest behind", [0.0, 0.0, furthest, furthest]),
            ("When steps ended", [4.0, 4.5, 5.0, 5.5]),
        ] {
            let shown = curve(&picture, title, name);
            let points: Vec<(f64, f64)> = [0.0, 1.0, 2.0, 3.0].into_iter().zip(ups).collect();
            assert_eq!((&shown.points, shown.ink), (&points, ink), "{title}, {name}");
            let Chart::Curves(chart) = &panel(&picture, title).chart else { panic!("no curves") };
            // Both runs lost it at the same step: between the second and the third.
            assert_eq!(chart.marks, [Mark { x: 1.5, name: "node lost".to_owned() }], "{title}");
        }
    }
    let told = "node of the server lost: 4 steps; node lost before step 2 (server); \
                rollouts behind after 0.2 s; server moved after 1.2 s";
    assert_eq!(
        picture.notes,
        [
            "c, 2 CPUs, Linux k",
            "no loss: 4 steps",
            &told.replace("the server lost:", "the rollout lost:"),
            told
        ]
    );
}

/// A run of three steps, whose rollout has two shards and takes two of the three versions.
fn run(no_sync: bool) -> Value {
    let step = |n: u32| {
        let start = f64::from(n) * 2.0 + 1.0;
        json!({"step": n, "reward": f64::from(n) / 8.0, "staleness": n, "drift": 0.0,
            "published_s": start, "unpublished_s": start + 1.5})
    };
    let update = |worker: &str, version: u64, asked_s: f64, committed_s: f64| {
        let times = (asked_s, committed_s);
        json!({"worker": worker, "version": version, "asked_s": times.0, "committed_s": times.1})
    };
    let updates = [
        update("rollout-0/0", 0, 0.5, 1.25),
        update("rollout-0/1", 0, 0.5, 1.25),
        update("rollout-0/1", 2, 5.0, 5.125),
        update("rollout-0/0", 2, 5.0, 5.25),
    ];
    json!({
        "settings": {"trainers": 2, "rollouts": "2", "no_sync": no_sync, "steps": 3},
        "steps": [step(0), step(1), step(2)], "updates": updates, "seconds": 7.0,
        "total": {"bytes": 2_000_000, "verified": 1_999_999},
    })
}

#[test]
fn the_demo_shows_what_sync_is_worth_and_costs() {
    let file = json!({"weightcast": "demo/1", "runs": [run(true), run(false)]});
    let picture = drawn(&file.to_string());
    for (name, ink) in [("with sync", Ink::Weightcast), ("without sync", Ink::Compared)] {
        let reward = curve(&picture, "Reward", name);
        assert_eq!(
            (&reward.points[..], reward.ink),
            (&[(0.0, 0.0), (1.0, 0.125), (2.0, 0.25)][..], ink)
        );
        let staleness = curve(&picture, "Staleness of the samples", name);
        assert_eq!(staleness.points, [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]);
    }
    // Of the run with sync, though the file has the other one first.
    let stalls = curve(&picture, "Stall of an update, with sync", "rollout-0");
    assert_eq!(stalls.points, [(2.0, 250.0)], "the slowest shard counts, the first wait does not");
    assert!(picture.notes[0].contains("without sync: 3 steps in 7 s"), "{:?}", picture.notes);
    assert!(picture.notes[1].ends_with("2.0 MB moved, 1 bytes unverified"), "{:?}", picture.notes);
}

#[test]
fn the_demo_shows_who_held_which_version_when() {
    let file = json!({"weightcast": "demo/1", "runs": [run(false)]});
    let picture = drawn(&file.to_string());
    let title = "Who held which version when, with sync: the last 3 of 3 versions";
    let Chart::Timeline(timeline) = &panel(&picture, title).chart else { panic!("no timeline") };
    assert_eq!((timeline.from_s, timeline.to_s), (1.0, 6.5));
    let tracks: Vec<(&str, &[Period])> =
        timeline.tracks.iter().map(|track| (&*track.name, &*track.periods)).collect();
    let period = |version, from_s, to_s| Period { version, from_s, to_s };
    let trainers = [period(0, 1.0, 2.5), period(1, 3.0, 4.5), period(2, 5.0, 6.5)];
    let first = [period(0, 1.25, 5.0), period(2, 5.25, 7.0)];
    let second = [period(0, 1.25, 5.0), period(2, 5.125, 7.0)];
    let wanted: [(&str, &[Period]); 3] =
        [("trainers", &trainers), ("rollout-0/0", &first), ("rollout-0/1", &second)];
    assert_eq!(tracks, wanted);
}

#[test]
fn of_many_workers_the_first_are_shown() {
    for (workers, said) in [(32, ""), (33, ", the first 32 of 33 workers")] {
        let mut run = run(false);
        let update = |n: usize| {
            let worker = format!("rollout-{n}/0");
            json!({"worker": worker, "version": 0, "asked_s": 0.0, "committed_s": 1.0})
        };
        run["updates"] = (0..workers).map(update).collect();
        let picture = drawn(&json!({"weightcast": "demo/1", "runs": [run]}).to_string());
        let title =
            format!("Who held which version when, with sync: the last 3 of 3 versions{said}");
        let Chart::Timeline(timeline) = &panel(&picture, &title).chart else {
            panic!("no timeline")
        };
        assert_eq!(timeline.tracks.len(), 1 + 32);
    }
}

/// Numbers have room for a dozen versions: of more the last are shown.
#[test]
fn of_many_versions_the_last_are_shown() {
    for (steps, shown, from_s) in [(12_u32, 12, 0.0), (13, 12, 1.0)] {
        let mut run = run(false);
        let step = |n: u32| {
            let end = f64::from(n) + 0.5;
            json!({"step": n, "reward": 0, "staleness": 0, "published_s": n, "unpublished_s": end})
        };
        run["steps"] = (0..steps).map(step).collect();
        let picture = drawn(&json!({"weightcast": "demo/1", "runs": [run]}).to_string());
        let title =
            format!("Who held which version when, with sync: the last {shown} of {steps} versions");
        let Chart::Timeline(timeline) = &panel(&picture, &title).chart else {
            panic!("no timeline")
        };
        assert_eq!((timeline.from_s, timeline.tracks[0].periods.len()), (from_s, shown));
    }
}
