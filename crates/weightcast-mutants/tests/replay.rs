//! The story of a mutant for people, and the same story for programs.

use std::process::Command;

use serde_json::Value;

fn mutants(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weightcast-mutants")).args(arguments).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&mutants(&[arguments, &["--json"]].concat())).expect("JSON")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect("text")
}

/// A line as people are told it.
fn told(line: &Value) -> String {
    let mark = line["invariant"].as_str().map_or(String::new(), |name| format!("!! {name}: "));
    let (step, seconds) = (line["step"].as_u64(), line["seconds"].as_f64().expect("seconds"));
    let step = step.expect("a step");
    let (who, what) = (text(line, "who"), text(line, "what"));
    format!("{step:>7} {seconds:>9.4} s  {who:<14} {mark}{what}")
}

#[test]
fn both_stories_say_the_same() {
    let mutant = "no_group_transaction";
    let caught = json(&["hunt", mutant]);
    let (seed, step) = (caught["seed"].to_string(), caught["step"].as_u64().expect("a step"));
    let (near, at) = ((step - 1).to_string(), step.to_string());
    let all = ["replay", mutant, &seed];
    for window in [&[][..], &["--from", &near, "--to", &at], &["--from", &at], &["--to", &near]] {
        let arguments = [&all[..], window].concat();
        let (story, text) = (json(&arguments), mutants(&arguments));
        let lines: Vec<String> =
            story["lines"].as_array().expect("lines").iter().map(told).collect();
        let (options, events) = (self::text(&story, "options"), &story["events"]);
        let violations = story["violations"].as_array().expect("violations");
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let end = format!("\n{events} events, {} violations\n", violations.len());
        assert_eq!(text, format!("seed {seed}\n{options}\n{body}{end}"));
        assert!(violations.iter().any(|v| v["step"] == step && v["detail"] == caught["detail"]));
        let steps = || story["lines"].as_array().expect("lines").iter().map(|l| l["step"].as_u64());
        let number = |option: &str, usual: u64| {
            let at = window.iter().position(|word| *word == option);
            at.map_or(usual, |at| window[at + 1].parse().expect("a number"))
        };
        let (from, to) = (number("--from", 0), number("--to", u64::MAX));
        assert!(steps().flatten().all(|step| (from..=to).contains(&step)), "{window:?}");
        let marked = steps().flatten().any(|found| found == step);
        assert_eq!(marked, (from..=to).contains(&step), "{window:?}");
    }
}
