//! Options of the benches: what is taken where nothing is given.

use std::process::Command;

/// What the help says of one option, in one line.
fn help(bench: &str, option: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast-bench"));
    let output = command.args([bench, "--help"]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let is_option = |line: &&str| line.trim_start().starts_with('-');
    let mut lines = text.lines().skip_while(|line| {
        let mut words = line.split_ascii_whitespace();
        !words.any(|word| word == option) || !is_option(line)
    });
    let first = lines.next().unwrap_or_else(|| panic!("{option} is not in {text}"));
    let rest = lines.take_while(|line| !is_option(line));
    let words = std::iter::once(first).chain(rest).flat_map(str::split_ascii_whitespace);
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_not_given_is_as_the_help_says() {
    for (bench, option, default) in [
        ("offload", "--bytes", "1073741824"),
        ("offload", "--runs", "5"),
        ("transfer", "--runs", "5"),
    ] {
        let said = help(bench, option);
        assert!(said.contains(&format!("[default: {default}]")), "{bench} {said}");
    }
}
