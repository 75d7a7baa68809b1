//! Options of the benches: what is taken where nothing is given.

use std::process::Command;

#[path = "../../weightcast-cli/tests/support/help.rs"]
mod help;

/// What the help of a bench says of one option, in one line.
fn help(bench: &str, option: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast-bench"));
    let output = command.args([bench, "--help"]).output().expect("it runs");
    help::of_option(&String::from_utf8(output.stdout).expect("text"), option)
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
