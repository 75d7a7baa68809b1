//! What all commands share: programs of the demo and the benches, the log, standard output, open files.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_weightcast");

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("weightcast-program-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A command of the Python package, beside a `python3` that says how it was called and ends with this status.
fn packaged(folder: &Folder, command: &str, status: i32) -> Output {
    let python = folder.0.join("python3");
    std::fs::write(&python, format!("#!/bin/sh\necho \"$@\"\nexit {status}\n")).expect("a script");
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o700)).expect("a program");
    let mut program = Command::new(PROGRAM);
    program.args([command, "--steps", "3", "--help"]).env("PATH", &folder.0);
    program.output().expect("it runs")
}

#[test]
fn commands_of_the_package_are_called_with_all_arguments() {
    let folder = Folder::new("packaged");
    for (command, module) in [
        ("demo", "weightcast.examples.rl_loop"),
        ("pull", "weightcast.checkpoint pull"),
        ("push", "weightcast.checkpoint push"),
    ] {
        for (status, wanted) in [(0, 0), (3, 1)] {
            let output = packaged(&folder, command, status);
            assert_eq!(output.status.code(), Some(wanted), "{output:?}");
            let called = String::from_utf8_lossy(&output.stdout);
            assert_eq!(called, format!("-m {module} --steps 3 --help\n"));
            let said = String::from_utf8_lossy(&output.stderr);
            let ended = format!("python3 -m {module} ended with");
            assert_eq!(said.contains(&ended), status != 0, "{said}");
        }
    }
    let nothing = Command::new(PROGRAM).arg("demo").env("PATH", folder.0.join("none")).output();
    let nothing = nothing.expect("it runs");
    assert_eq!(nothing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert!(said.contains("pip install weightcast"), "{said}");
}

/// A copy of the program in a folder of its own, where nothing lies beside it that was built with it.
fn copied(folder: &Folder) -> PathBuf {
    let program = folder.0.join("weightcast");
    std::fs::copy(PROGRAM, &program).expect("a copy");
    program
}

/// A program that says which build it is if asked, else its name and how it was called, and ends with
/// status 7.
fn bench_program(folder: &std::path::Path, name: &str, build: &str) {
    std::fs::create_dir_all(folder).expect("a folder");
    let program = folder.join("weightcast-bench");
    let script = format!(
        "#!/bin/sh\n[ \"$*\" = --version ] && echo 'weightcast-bench {build}' && exit\n\
         echo {name} \"$@\"\nexit 7\n"
    );
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("a program");
}

#[test]
fn benches_are_a_program_beside_this_one_or_on_path() {
    let folder = Folder::new("bench");
    let path = folder.0.join("path");
    let program = copied(&folder);
    let bench = || {
        let mut command = Command::new(&program);
        command.args(["bench", "transfer", "--json", "--help"]).env("PATH", &path);
        command.output().expect("it runs")
    };
    let nothing = bench();
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    let said = String::from_utf8_lossy(&nothing.stderr);
    assert!(said.contains("cargo build --release -p weightcast-bench"), "{said}");
    for (place, name) in [(&path, "on-path"), (&folder.0, "beside")] {
        bench_program(place, name, weightcast_cli::BUILD);
        let output = bench();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let called = String::from_utf8_lossy(&output.stdout);
        assert_eq!(called, format!("{name} transfer --json --help\n"));
    }
    let release = env!("CARGO_PKG_VERSION");
    for other in [release, "9.9.9", &format!("{release} (sources 0123456789abcdef)"), ""] {
        bench_program(&folder.0, "stale", other);
        let output = bench();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        for part in ["of another build", weightcast_cli::BUILD, other, "cargo build"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let config = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../weightcast-fleet/tests/data/configs/qwen3-0.6b.json"
    );
    let mut command = Command::new(PROGRAM);
    command.args(["layout", "--config", config, "--spec", "vllm:tp=1"]);
    let output = command.stdout(full).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("weightcast: "), "{output:?}");
}

/// Every session is a socket: a server takes as many as it may. Without a word on logs it warns.
#[test]
fn a_server_may_open_all_files_and_warns_by_default() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", PROGRAM, "serve"]);
    command.args(["--address", "127.0.0.1:0", "--insecure-no-auth", "--idle-exit", "60"]);
    command.env_remove("WEIGHTCAST_LOG").env_remove("WEIGHTCAST_TOKEN_FILE");
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("ready");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id()));
    let _ = server.kill();
    let _ = server.wait();
    let limits = limits.expect("limits");
    let open = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let words: Vec<&str> = open.split_ascii_whitespace().collect();
    assert_eq!(words[3], words[4], "{open}");
    assert_ne!(words[3], "64", "{open}");
    let mut said = String::new();
    server.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("WARN"), "{said}");
}

/// Clients can be started from what the server says; port 0 is told as what it became.
#[test]
fn a_server_says_how_clients_reach_it() {
    let folder = Folder::new("ready");
    let token = folder.0.join("token");
    std::fs::write(&token, "0123456789abcdef0123456789abcdef").expect("a token");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("private");
    let given = ["--token-file", token.to_str().expect("text")];
    for (arguments, file) in [
        (&given[..], Some(format!(" WEIGHTCAST_TOKEN_FILE={}", token.display()))),
        (&[], None),
        (&["--insecure-no-auth"], Some(String::new())),
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--address", "127.0.0.1:0", "--idle-exit", "0.1", "--detached"]);
        command.args(arguments).env_remove("WEIGHTCAST_TOKEN_FILE").env("WEIGHTCAST_LOG", "error");
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        let (first, second) = said.trim_end().split_once('\n').expect("two lines");
        let address = first.strip_prefix("weightcast reference server on ").expect("an address");
        let port = address.strip_prefix("http://127.0.0.1:").expect("loopback");
        assert_ne!(port.parse::<u16>().expect("a port"), 0);
        let start = format!("clients: export WEIGHTCAST_SERVER={address}");
        let rest = second.strip_prefix(start.as_str()).expect("how to reach it");
        match file {
            Some(file) => assert_eq!(rest, file),
            // Of this user: a file that is there.
            None => {
                let own = rest.strip_prefix(" WEIGHTCAST_TOKEN_FILE=").expect("a file");
                assert!(std::path::Path::new(own).is_file(), "{own}");
            }
        }
    }
}
