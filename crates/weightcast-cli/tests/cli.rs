//! `serve` and `status`, as a user runs them.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

fn weightcast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast")).args(arguments).output().unwrap()
}

/// A server in a process of its own; killed when the test ends.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, Stdio::inherit())
    }

    fn start_with(arguments: &[&str], stderr: Stdio) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weightcast"))
            .env("WEIGHTCAST_LOG", "info")
            .args(["serve", "--address", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Self { child, address }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn status_of_a_running_server() {
    let server = Running::start(&[]);
    let status = weightcast(&["status", "--json", "--server", &server.address]);
    assert!(status.status.success(), "{status:?}");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["sessions"], 0);
    assert_eq!(status["models"], serde_json::json!([]));
    let table = weightcast(&["status", "--server", &server.address]);
    assert!(String::from_utf8_lossy(&table.stdout).starts_with("0 sessions"));
}

#[test]
fn an_idle_server_leaves() {
    let mut server = Running::start(&["--idle-exit", "0.1"]);
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_server_without_a_secret_of_its_own_says_what_keys_tickets() {
    let file = std::env::temp_dir().join(format!("weightcast-keys-{}", std::process::id()));
    std::fs::write(&file, "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let path = file.to_str().unwrap();
    let said = |arguments: &[&str]| {
        let arguments = [&["--idle-exit", "0.1"], arguments].concat();
        let mut server = Running::start_with(&arguments, Stdio::piped());
        assert!(server.child.wait().unwrap().success());
        let mut said = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said.lines().filter(|line| line.contains("are keyed with")).map(str::to_owned).collect()
    };
    let said: [Vec<String>; 3] =
        [&["--token-file", path][..], &["--insecure-no-auth"], &["--ticket-secret-file", path]]
            .map(said);
    std::fs::remove_file(&file).unwrap();
    let [token, nothing, secret] = &said;
    let one = |lines: &[String], part: &str| {
        lines.len() == 1 && lines[0].contains("INFO") && lines[0].contains(part)
    };
    assert!(one(token, "keyed with the token: whoever holds it"), "{token:?}");
    assert!(one(nothing, "keyed with nothing secret: anybody"), "{nothing:?}");
    assert_eq!(secret, &[""; 0]);
}

#[test]
fn a_server_that_gives_up_ends_and_says_so() {
    let told = std::env::temp_dir().join(format!("weightcast-gives-up-{}", std::process::id()));
    let path = told.to_str().unwrap().to_owned();
    let mut server = Running::start_with(&["--gives-up-at", &path], Stdio::piped());
    let healthy = weightcast(&["status", "--server", &server.address]);
    assert!(healthy.status.success(), "{healthy:?}");
    std::fs::write(&told, "").unwrap();
    let last = weightcast(&["status", "--server", &server.address]);
    std::fs::remove_file(&told).unwrap();
    assert_eq!(last.status.code(), Some(1), "{last:?}");
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
    let mut message = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert!(message.contains("the reference server gave up"), "{message}");
}

#[test]
fn off_means_off() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = weightcast(&["serve", "--address", address]);
        assert_eq!(refused.status.code(), Some(1));
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(message.contains("token") && message.contains("--insecure-no-auth"), "{message}");
    }
}

#[test]
fn no_server_is_said_plainly() {
    let refused = weightcast(&["status", "--server", "http://127.0.0.1:9"]);
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("127.0.0.1:9") && message.contains("unreachable"), "{message}");
}

/// A file with a token, removed when the test ends.
struct TokenFile(std::path::PathBuf);

impl TokenFile {
    fn new(name: &str, token: &str) -> Self {
        let file = format!("weightcast-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, token).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_server_lets_in_who_is_given_its_token() {
    let right = TokenFile::new("right", "0123456789abcdef0123456789abcdef");
    let wrong = TokenFile::new("wrong", "fedcba9876543210fedcba9876543210");
    let server = Running::start(&["--token-file", right.path()]);
    let asked = |command: &[&str], file: &TokenFile| {
        weightcast(&[command, &["--server", &server.address, "--token-file", file.path()]].concat())
    };
    let verify = ["verify", "a", "--model", "policy"];
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(asked(&["status"], &right).status.success());
    // It is let in, and told that there is nothing.
    let nothing = asked(&verify, &right);
    assert_eq!(nothing.status.code(), Some(2));
    assert!(said(&nothing).contains("no server acts"), "{nothing:?}");
    for command in [&["status"][..], &verify] {
        let refused = asked(command, &wrong);
        assert!(!refused.status.success() && said(&refused).contains("wrong token"), "{refused:?}");
    }
}

#[test]
fn a_job_without_a_server_is_named() {
    for command in [&["status"][..], &["verify", "a", "--model", "policy"]] {
        let job = ["--job", "nobody-has-this-one"];
        let refused = weightcast(&[command, &job].concat());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("none started by job nobody-has-this-one"), "{said}");
    }
}

#[test]
fn wrong_usage_is_status_2() {
    for wrong in [&["frobnicate"][..], &["serve", "--lease", "-1"], &["serve", "--fanout", "0"]] {
        assert_eq!(weightcast(wrong).status.code(), Some(2), "{wrong:?}");
    }
    for help in [&["--help"][..], &["serve", "--help"], &["status", "--help"]] {
        assert!(weightcast(help).status.success(), "{help:?}");
    }
}

/// Lines come until nobody reads them; a server that is gone is asked again.
#[test]
fn a_watched_status_goes_on_while_it_is_read() {
    let mut server = Running::start(&[]);
    let watch = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast"));
        command.args(["status", "--server", &server.address, "--watch", "0.05"]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut json = watch(&["--json"]);
    let mut lines = BufReader::new(json.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let status: serde_json::Value =
            serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(status["sessions"], 0);
    }
    drop(lines);
    assert!(json.wait().unwrap().success(), "nobody reads any more");
    let mut table = watch(&[]);
    let mut lines = BufReader::new(table.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(
        next().starts_with("0 sessions") && next().is_empty(),
        "no escape codes, an empty line"
    );
    server.child.kill().unwrap();
    let unreachable = (0..10_000).map(|_| next()).find(|line| line.starts_with("weightcast: "));
    assert!(
        unreachable.is_some_and(|line| line.contains(server.address.trim_start_matches("http://")))
    );
    drop(lines);
    assert!(table.wait().unwrap().success());
}

#[test]
fn top_says_what_to_do_without_a_terminal() {
    let output = weightcast(&["top", "--server", "http://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("status --watch"), "{said}");
}
