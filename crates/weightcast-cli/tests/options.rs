//! Options as the command line shows them: what is taken where nothing is given, and from which
//! variable.

use crate::help;
use std::process::{Command, Output};

fn weightcast(arguments: &[&str], variable: Option<(&str, &str)>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast"));
    for name in ["ADDRESS", "SERVER", "TOKEN_FILE", "TICKET_SECRET_FILE", "JOB"] {
        command.env_remove(format!("WEIGHTCAST_{name}"));
    }
    command.args(arguments).envs(variable).output().expect("it runs")
}

/// What the help of a command says of one option, in one line.
fn help(command: &[&str], option: &str) -> String {
    let output = weightcast(&[command, &["--help"]].concat(), None);
    help::of_option(&String::from_utf8(output.stdout).expect("text"), option)
}

#[test]
fn what_is_not_given_is_as_the_help_says() {
    for (command, option, default) in [
        (&["serve"][..], "--address", "127.0.0.1:7700"),
        (&["serve"], "--index", "0"),
        (&["serve"], "--lease", "5"),
        (&["serve"], "--drain-deadline", "30"),
        (&["serve"], "--offload-deadline", "60"),
        (&["serve"], "--fanout", "1"),
        (&["serve"], "--host-fanout", "8"),
        (&["serve"], "--stripes", "8"),
        (&["top"], "--interval", "1"),
        (&["verify"], "--timeout", "600"),
        (&["layout"], "--rank", "0"),
        (&["plan"], "--replicas", "1"),
        (&["plan"], "--gpus-per-host", "8"),
        (&["plan"], "--machine", "host-tcp"),
        (&["plan"], "--budget", "1073741824"),
        (&["sim"], "--first-seed", "0"),
        (&["replay"], "--from", "0"),
    ] {
        let said = help(command, option);
        assert!(said.contains(&format!("[default: {default}]")), "{command:?} {said}");
    }
}

/// What is wrong is said with what the variable held: the variable was read.
#[test]
fn variables_are_read_by_their_names() {
    let serve = ["serve", "--address", "127.0.0.1:0"];
    let (status, verify) = (["status"], ["verify", "a", "--model", "m"]);
    let to = |command: &[&'static str]| [command, &["--server", "http://127.0.0.1:9"]].concat();
    for (arguments, name, value) in [
        (vec!["serve"], "ADDRESS", "nowhere-at-all"),
        (serve.to_vec(), "TOKEN_FILE", "/nowhere/token"),
        (serve.to_vec(), "TICKET_SECRET_FILE", "/nowhere/secret"),
        (status.to_vec(), "SERVER", "http://127.0.0.1:9"),
        (verify.to_vec(), "SERVER", "http://127.0.0.1:9"),
        (to(&status), "TOKEN_FILE", "/nowhere/token"),
        (to(&verify), "TOKEN_FILE", "/nowhere/token"),
    ] {
        let name = format!("WEIGHTCAST_{name}");
        let output = weightcast(&arguments, Some((&name, value)));
        let said = String::from_utf8_lossy(&output.stderr);
        let told = value.trim_start_matches("http://");
        assert!(!output.status.success() && said.contains(told), "{arguments:?} {name}: {said}");
        let shown = help(&arguments[..1], &option(&name));
        assert!(shown.contains(&format!("[env: {name}=")), "{shown}");
    }
}

/// `--token-file` of `WEIGHTCAST_TOKEN_FILE`.
fn option(variable: &str) -> String {
    variable.replace("WEIGHTCAST_", "--").replace('_', "-").to_lowercase()
}

#[test]
fn numbers_beyond_their_ends_are_wrong_usage() {
    for (arguments, said) in [
        (&["serve", "--stripes", "0"][..], "1..=64"),
        (&["serve", "--stripes", "65"], "1..=64"),
        (&["serve", "--index", "1024"], "0..1024"),
        (&["serve", "--fanout", "1025"], "1..=1024"),
        (&["serve", "--host-fanout", "0"], "1..=1024"),
        (&["sim", "--call-deadline", "0.05"], "between 0.1 and 600"),
        (&["sim", "--fault-rate", "101"], "between 0 and 100"),
        (&["sim", "--seeds", "0"], "1..=100000000"),
    ] {
        let output = weightcast(arguments, None);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(told.contains(said), "{arguments:?}: {told}");
    }
}
