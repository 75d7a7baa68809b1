//! Benches of one process on few bytes: figures that have to agree with each other.

use std::process::Command;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast-bench"));
    command.args(arguments).arg("--json");
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(of: &Value, field: &str) -> f64 {
    of[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {of}"))
}

fn alike(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{a} {b}");
}

#[test]
fn an_offload_is_set_beside_bare_copies() {
    let report = bench(&["offload", "--bytes", "65536", "--runs", "3"]);
    assert_eq!(report["verified"], true);
    assert_eq!((&report["bytes"], &report["runs"]), (&65_536.into(), &3.into()));
    let median = |times: &Value| {
        let all = times["all_s"].as_array().expect("all");
        let mut all: Vec<f64> = all.iter().filter_map(Value::as_f64).collect();
        assert_eq!(all.len(), 3, "the first turn does not count");
        all.sort_by(f64::total_cmp);
        alike(number(times, "median_s"), all[1]);
        alike(number(times, "gb_per_s"), 65_536.0 / all[1] / 1e9);
        all[1]
    };
    let unpublish = median(&report["unpublish"]);
    let limits = report["limits"].as_array().expect("limits");
    for limit in limits {
        alike(number(limit, "ratio"), unpublish / median(&limit["times"]));
    }
    let mut names: Vec<&str> = limits.iter().filter_map(|limit| limit["limit"].as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), 5, "{names:?}");
}

#[test]
fn quantising_is_set_beside_memcpy() {
    let report = bench(&["quantise", "--bytes", "200000", "--runs", "1", "--threads", "2"]);
    let rows = report.as_array().expect("rows");
    let memcpy = number(&rows[0], "seconds");
    assert_eq!(rows[0]["what"], "memcpy");
    // Thirteen rows of 7,168 numbers of two bytes fit.
    let bytes = 13.0 * 7_168.0 * 2.0;
    for row in rows {
        let seconds = number(row, "seconds");
        alike(number(row, "gb_per_s"), bytes / seconds / 1e9);
        alike(number(row, "of_memcpy"), memcpy / seconds);
    }
    let mut both = 0;
    for three in rows[1..rows.len() - 2].chunks(3) {
        let [amax, codes, sum] = three else { panic!("{three:?}") };
        alike(number(amax, "seconds") + number(codes, "seconds"), number(sum, "seconds"));
        assert!(sum["what"].as_str().expect("a name").ends_with(": both"));
        both += 1;
    }
    assert!(both > 0);
}
