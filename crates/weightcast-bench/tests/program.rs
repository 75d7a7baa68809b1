//! How `weightcast bench` comes to the benches, and that nobody else's program contains them.

use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_weightcast-bench");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("it runs")
}

/// The command line inside this program finds the benches beside it: in this program.
#[test]
fn the_command_line_becomes_the_benches_with_all_arguments() {
    let passed_on = |arguments: &[&str]| run(&[&["weightcast", "bench"], arguments].concat());
    for (arguments, status) in [
        (&["--help"][..], 0),
        (&["transfer", "--help"], 0),
        (&["transfer", "--case", "huge"], 2),
        (&["plan", "--data", "nowhere"], 1),
    ] {
        let (direct, by_command) = (run(arguments), passed_on(arguments));
        assert_eq!(by_command.status.code(), Some(status), "{by_command:?}");
        assert_eq!(by_command, direct, "{arguments:?}");
    }
    let help = String::from_utf8(run(&["transfer", "--help"]).stdout).expect("text");
    assert!(help.contains("Usage: weightcast bench transfer"), "{help}");
}

/// What is in the JSON of `transfer` stands nowhere else for users.
#[test]
fn the_help_of_transfer_names_the_fields_of_its_rows() {
    let help = String::from_utf8(run(&["transfer", "--help"]).stdout).expect("text");
    for field in ["rows", "way", "median_s", "limit", "of_limit", "socket_pairs"] {
        assert!(help.contains(&format!("`{field}`")), "{field} is not in {help}");
    }
}

/// Built of the same sources, it says the build that the command line asks for.
#[test]
fn the_benches_say_which_build_they_are() {
    let said = String::from_utf8(run(&["--version"]).stdout).expect("text");
    assert_eq!(said, format!("weightcast-bench {}\n", weightcast_cli::BUILD));
}

/// `python/tests/test_build.py` looks for the same words in what users install.
#[test]
fn a_program_with_benches_has_their_words() {
    let program = std::fs::read(PROGRAM).expect("the program");
    for words in
        ["emulated hosts need root and iproute2", "without faults some rollout still fails"]
    {
        assert!(program.windows(words.len()).any(|found| found == words.as_bytes()), "{words}");
    }
}
