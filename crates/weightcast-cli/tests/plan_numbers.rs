//! Numbers of `plan`, `plan explain` and locks that have to agree with each other.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn weightcast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast")).args(arguments).output().expect("it runs")
}

fn config(name: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weightcast-fleet/tests/data");
    data.join(format!("configs/{name}.json")).to_string_lossy().into_owned()
}

fn parsed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn numbers(of: &Value) -> Vec<u64> {
    of.as_array().expect("a list").iter().map(|n| n.as_u64().expect("a number")).collect()
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = format!("weightcast-numbers-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All routes to a rank are its bytes, and each is told as it is listed.
#[test]
fn routes_are_the_bytes_of_a_plan() {
    let config = config("qwen3-30b-a3b");
    let sides = ["--config", &config, "--source", "hsdp:replicate=2,shard=4"];
    let target = ["--target", "vllm:tp=4,ep=4"];
    let plan = parsed(&weightcast(&[&["plan", "--json"], &sides[..], &target].concat()));
    let explain =
        |more: &[&str]| weightcast(&[&["plan", "explain"], &sides[..], &target, more].concat());
    let routes = parsed(&explain(&["--rank", "2", "--json"]));
    let routes = routes.as_array().expect("routes");
    let bytes: u64 = routes.iter().filter_map(|route| route["bytes"].as_u64()).sum();
    assert_eq!(bytes, numbers(&plan["per_target_bytes"])[2]);
    assert!(routes.iter().all(|route| route["target"] == 2));
    assert!(routes.iter().any(|route| route["expert"].as_u64() > Some(0)));
    assert!(routes.iter().any(|route| route["target_start"].as_u64() > Some(0)));
    for route in routes {
        // Two replicas hold everything.
        let sources = numbers(&route["sources"]);
        assert_eq!(sources.len(), 2, "{route}");
        assert!(sources.contains(&route["source"].as_u64().expect("a rank")), "{route}");
    }
    let told = String::from_utf8(explain(&["--rank", "2"]).stdout).expect("text");
    let lines = routes.iter().map(|route| {
        let text = |field: &str| route[field].as_str().expect("text");
        let slot = route["expert"].as_u64().map_or(String::new(), |slot| format!("[{slot}]"));
        format!(
            "{}{} -> rank {} {}{slot}[{}:], {} bytes from source rank {} of {:?}",
            text("tensor"),
            text("slice"),
            route["target"],
            text("parameter"),
            route["target_start"],
            route["bytes"],
            route["source"],
            numbers(&route["sources"]),
        )
    });
    assert!(told.lines().eq(lines));
    let nothing = explain(&[]);
    assert!(!nothing.status.success() && said(&nothing).contains("--tensor"), "{nothing:?}");
}

/// Hosts, engines, rates and room are those that are asked for.
#[test]
fn a_plan_is_of_the_hardware_that_is_given() {
    let config = config("qwen3-0.6b");
    let plan = |more: &[&str]| {
        let sides = ["--config", &config, "--source", "fsdp2:dp=8,dtype=fp32"];
        let target = ["--target", "vllm:tp=2"];
        parsed(&weightcast(&[&["plan", "--json"], &sides[..], &target, more].concat()))
    };
    for (gpus, engines) in [(2, 4), (4, 4), (8, 4), (2, 1)] {
        let (per_host, replicas) = (gpus.to_string(), engines.to_string());
        let plan = plan(&["--gpus-per-host", &per_host, "--replicas", &replicas]);
        assert_eq!((&plan["gpus_per_host"], &plan["replicas"]), (&json!(gpus), &json!(engines)));
        let into = numbers(&plan["host_bytes_in"]);
        assert_eq!(into.len() as u64, (engines * 2_u64).div_ceil(gpus));
        assert_eq!(numbers(&plan["host_bytes_out"]).len() as u64, 8 / gpus);
        let most = *into.iter().max().expect("a host") as f64;
        let alone = most / (gpus as f64 * 50e9);
        let bound = plan["lower_bound_s"].as_f64().expect("s");
        assert!(bound >= alone * 0.999, "{gpus} {engines}: {alone} {bound}");
    }
    let fast = plan(&["--nic-gbps", "800"])["lower_bound_s"].as_f64().expect("s");
    let usual = plan(&[])["lower_bound_s"].as_f64().expect("s");
    assert!((usual / fast - 2.0).abs() < 1e-9, "{usual} {fast}");
    let staged = |more: &[&str]| plan(more)["peak_staged_bytes"].as_u64().expect("bytes");
    assert!(staged(&[]) > 1_000);
    assert_eq!(staged(&["--budget", "1000"]), 1_000);
}

/// A lock is what the report says, equal neighbours together; it is told on the way in and out.
#[test]
fn a_lock_is_the_report_that_is_printed() {
    let scratch = Scratch::new("numbers");
    let config = config("qwen3-0.6b");
    let plan = |source: &str, engines: &str, lock: &str| {
        let sides = ["--config", &config, "--source", source, "--target", "vllm:tp=2"];
        let more = ["--replicas", engines, "--gpus-per-host", "2", "--lock", lock];
        weightcast(&[&["plan", "--json"], &sides[..], &more].concat())
    };
    let read = |file: &str| -> Value {
        let text = std::fs::read_to_string(file).expect("a lock");
        serde_json::from_str(&text).expect("JSON")
    };
    let (a, b) = (scratch.file("a.lock"), scratch.file("b.lock"));
    let made = plan("hsdp:replicate=2,shard=3", "2", &a);
    assert!(said(&made).contains(&format!("wrote {a}")), "{made:?}");
    let (report, lock) = (parsed(&made), read(&a));
    for field in [
        "source",
        "target",
        "replicas",
        "gpus_per_host",
        "coverage",
        "messages",
        "broadcast_bytes",
        "peak_staged_bytes",
    ] {
        assert_eq!(lock[field], report[field], "{field}");
    }
    for field in ["per_target_bytes", "per_source_bytes", "host_bytes_in", "host_bytes_out"] {
        let runs = lock[field].as_array().expect("runs").iter().map(numbers);
        let all: Vec<u64> = runs.flat_map(|run| vec![run[1]; run[0] as usize]).collect();
        assert_eq!(all, numbers(&report[field]), "{field}");
    }
    assert!(plan("fsdp2:dp=3", "1", &b).status.success());
    let other = read(&b);
    assert_ne!(lock["source_layout"], other["source_layout"]);
    assert_eq!(lock["target_layout"], other["target_layout"]);
    let change = "replicas: 2 -> 1";
    let held = plan("fsdp2:dp=3", "1", &a);
    let compared = weightcast(&["plan", "diff", &a, &b]);
    for refused in [&held, &compared] {
        assert_eq!(refused.status.code(), Some(1));
        assert!(said(refused).contains(change), "{refused:?}");
    }
    assert_eq!(read(&a), lock, "a lock that differs stays");
    let nowhere = scratch.file("none/a.lock");
    let refused = plan("fsdp2:dp=3", "1", &nowhere);
    assert!(said(&refused).contains(&format!("cannot write {nowhere}")), "{refused:?}");
}

#[test]
fn the_side_that_is_wrong_is_named() {
    let config = config("qwen3-0.6b");
    let wrong = "fsdp2:dp=1000000,tp=1000";
    for (source, target, named) in
        [(wrong, "vllm:tp=2", "--source"), ("fsdp2:dp=2", wrong, "--target")]
    {
        let sides = ["plan", "--config", &config, "--source", source, "--target", target];
        let refused = weightcast(&sides);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(said(&refused).starts_with(&format!("weightcast: {named}: ")), "{refused:?}");
    }
}

#[test]
fn a_layout_for_programs_warns_all_the_same() {
    let (odd, none) = (config("qwen2.5-0.5b"), config("no-such-model"));
    let layout =
        |config: &str| weightcast(&["layout", "--config", config, "--spec", "vllm:tp=4", "--json"]);
    let warned = layout(&odd);
    assert!(said(&warned).contains("warning: "), "{warned:?}");
    assert!(warned.stdout.ends_with(b"}\n"), "one line");
    assert!(said(&layout(&none)).contains(&none));
}
