//! A story for people and the same story for programs.

use std::process::Command;

use serde_json::Value;

fn weightcast(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weightcast")).args(arguments).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&weightcast(&[arguments, &["--json"]].concat())).expect("JSON")
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
    let middle = json(&["replay", "1"])["events"].as_u64().expect("a number") / 2;
    let (from, to) = (middle.to_string(), (middle + 200).to_string());
    for window in [&[][..], &["--from", &from, "--to", &to], &["--from", &from], &["--to", &to]] {
        let arguments = [&["replay", "1"], window].concat();
        let (story, text) = (json(&arguments), weightcast(&arguments));
        let lines = story["lines"].as_array().expect("lines");
        let body: String = lines.iter().map(|line| format!("{}\n", told(line))).collect();
        let (options, events) = (self::text(&story, "options"), &story["events"]);
        assert_eq!(text, format!("seed 1\n{options}\n{body}\n{events} events, 0 violations\n"));
        let number = |option: &str, usual: u64| {
            let at = window.iter().position(|word| *word == option);
            at.map_or(usual, |at| window[at + 1].parse().expect("a number"))
        };
        let wanted = number("--from", 0)..=number("--to", u64::MAX);
        let steps = lines.iter().map(|line| line["step"].as_u64().expect("a step"));
        assert!(steps.clone().all(|step| wanted.contains(&step)), "{window:?}");
        assert!(steps.count() > 0, "{window:?}");
    }
}
