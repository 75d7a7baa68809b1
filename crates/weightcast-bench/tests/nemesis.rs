//! Real processes under seeded faults: whatever they say that they hold, they hold.
//!
//! `make test` runs the small suite over loopback: kills and stops. `make nemesis` runs the large
//! one over network namespaces, with cut and slow links; it needs root.

use std::process::Command;

use serde_json::Value;

fn nemesis(seed: u64, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_weightcast-bench"))
        .args(["nemesis", "--seed", &seed.to_string()])
        .args(arguments)
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {seed}: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn loopback() {
    let report = nemesis(6, &["--loopback", "--steps", "8", "--rollouts", "2", "--size", "16"]);
    assert!(report["commits"].as_u64().unwrap() >= 2, "{report}");
    assert!(report["faults"]["kill"].as_u64().unwrap() > 0, "{report}");
    assert!(report["faults"]["stop"].as_u64().unwrap() > 0, "{report}");
}

#[test]
#[ignore = "needs root and minutes: make nemesis"]
fn namespaces() {
    for seed in 1..=10 {
        let report = nemesis(seed, &["--steps", "30"]);
        println!("{report}");
    }
}
