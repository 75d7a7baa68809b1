//! The doctor, as a user runs it: in jobs that are well, and in jobs of which one thing is wrong.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use weightcast::plan::{DType, LayoutBuilder, Part};
use weightcast::transport::Region;
use weightcast::{LayoutSource, Options, Replica, Role, ShardHandle};

const PROGRAM: &str = env!("CARGO_BIN_EXE_weightcast");
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba9876543210fedcba9876543210";

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("weightcast-doctor-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    /// A file with a token.
    fn token(&self, name: &str, token: &str, mode: u32) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, token).expect("a token");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode");
        path.to_str().expect("text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server in a process of its own; killed when the test ends.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn start(address: &str, arguments: &[&str]) -> Self {
        let mut command = plain();
        command.args(["serve", "--address", address]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("ready");
        let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
        Self { child, address }
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The program without a variable of weightcast.
fn plain() -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIGHTCAST_") {
            command.env_remove(name);
        }
    }
    command
}

/// What the doctor says, and its exit status.
struct Examined {
    checks: Vec<Value>,
    verdict: Value,
    status: Option<i32>,
    text: String,
}

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Examined {
    let mut command = plain();
    command.args(["doctor", "--json"]).args(arguments).envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let checks = all["checks"].as_array().expect("a list").clone();
    let status = output.status.code();
    Examined { checks, verdict: all["verdict"].clone(), status, text }
}

impl Examined {
    /// The first check of this id, about this if anything is named.
    fn check(&self, id: &str, of: Option<&str>) -> &Value {
        let wanted =
            |check: &&Value| check["id"] == id && (of.is_none() || check["of"] == of.unwrap());
        self.checks.iter().find(wanted).unwrap_or_else(|| panic!("no {id} {of:?}: {}", self.text))
    }

    #[track_caller]
    fn says(&self, id: &str, verdict: &str, words: &[&str]) {
        let check = self.check(id, None);
        assert_eq!(check["verdict"], verdict, "{check}");
        for word in words {
            assert!(check.to_string().contains(word), "{word:?} is not in {check}");
        }
    }

    /// All that are a problem.
    fn problems(&self) -> Vec<&str> {
        let wrong = self.checks.iter().filter(|check| check["verdict"] == "problem");
        wrong.map(|check| check["id"].as_str().expect("text")).collect()
    }
}

#[test]
fn a_job_that_is_well_has_no_problem() {
    let folder = Folder::new("well");
    let socket = format!("unix:{}", folder.0.join("s").display());
    let token = folder.token("token", TOKEN, 0o600);
    for address in ["127.0.0.1:0", &socket] {
        let server = Running::start(address, &["--token-file", &token]);
        let found = doctor(&["--server", &server.address], &[("WEIGHTCAST_TOKEN_FILE", &token)]);
        assert_eq!(found.problems(), [""; 0], "{}", found.text);
        assert_eq!(found.status, Some(0));
        found.says("way.tcp", "ok", &["GB/s"]);
        // A kernel may forbid it, and says so.
        assert_ne!(found.check("way.direct", None)["verdict"], "not applicable");
        found.says("way.shared-memory", "ok", &["GB/s", "empty_like", "pages"]);
        for id in ["way.rdma", "way.cuda"] {
            found.says(id, "not applicable", &["this build has no"]);
        }
        found.says("server", "ok", &[&server.address, "as given"]);
        found.says("server.reach", "ok", &["ms"]);
        found.says("server.role", "ok", &["passive"]);
        found.says("server.version", "ok", &[env!("CARGO_PKG_VERSION")]);
        found.says("token", "ok", &[&token]);
        found.says("token.accepted", "ok", &["yes"]);
        found.says("data-port.bind", "ok", &["127.0.0.1:0"]);
        found.says("data-port.address", "ok", &["127.0.0.1:"]);
        found.says("data-port.reached", "not applicable", &["on this host"]);
        found.says("environment", "ok", &[&token]);
        assert!(!found.text.contains(TOKEN), "{}", found.text);
    }
}

#[test]
fn a_server_that_is_stopped_is_a_problem_and_a_backup_that_is_stopped_a_warning() {
    let mut stopped = Running::start("127.0.0.1:0", &["--insecure-no-auth"]);
    stopped.stop();
    let alone = doctor(&["--server", &stopped.address], &[]);
    assert_eq!((alone.problems(), alone.status), (vec!["server.reach"], Some(1)));
    assert_eq!(alone.verdict, "problem");
    alone.says("server.reach", "problem", &["refused", "weightcast serve"]);
    let running = Running::start("127.0.0.1:0", &[]);
    let list = format!("{},{}", stopped.address, running.address);
    let both = doctor(&[], &[("WEIGHTCAST_SERVER", &list)]);
    assert_eq!((both.problems(), both.status), (vec![], Some(0)), "{}", both.text);
    both.says("server", "ok", &["of WEIGHTCAST_SERVER"]);
    let of = |address: &str| &both.check("server.reach", Some(address))["verdict"];
    assert_eq!((of(&stopped.address), of(&running.address)), (&"warning".into(), &"ok".into()));
}

#[test]
fn a_token_that_is_wrong_or_open_to_others_is_a_problem() {
    let folder = Folder::new("token");
    let right = folder.token("right", TOKEN, 0o600);
    let server = Running::start("127.0.0.1:0", &["--token-file", &right]);
    let with = |file: &str| doctor(&["--server", &server.address, "--token-file", file], &[]);
    let wrong = with(&folder.token("wrong", OTHER, 0o600));
    assert_eq!((wrong.problems(), wrong.status), (vec!["token.accepted"], Some(1)));
    wrong.says("token.accepted", "problem", &["another token"]);
    let open = with(&folder.token("open", TOKEN, 0o644));
    assert_eq!((open.problems(), open.status), (vec!["token"], Some(1)));
    open.says("token", "problem", &["can be read by others", "0644", "run: chmod "]);
    let short = with(&folder.token("short", "x", 0o600));
    assert_eq!(short.problems(), ["token"]);
    // Somebody names the token where its file is asked for.
    let itself = doctor(&["--server", &server.address], &[("WEIGHTCAST_TOKEN_FILE", OTHER)]);
    assert_eq!(itself.problems(), ["token"]);
    itself.says("token", "problem", &["looks like the token itself"]);
    for found in [&wrong, &open, &short, &itself] {
        assert!(!found.text.contains(TOKEN) && !found.text.contains(OTHER), "{}", found.text);
    }
}

#[test]
fn a_variable_that_nobody_reads_is_a_warning() {
    let variables = [("WEIGHTCAST_TOKENFILE", "secret"), ("WEIGHTCAST_LOG", "off")];
    let found = doctor(&["--job", "nobody-has-this-one"], &variables);
    let typo = found.check("environment", Some("WEIGHTCAST_TOKENFILE"));
    assert_eq!(typo["verdict"], "warning", "{typo}");
    assert!(typo.to_string().contains("set WEIGHTCAST_TOKEN_FILE instead"), "{typo}");
    assert!(!found.text.contains("secret"), "{}", found.text);
    assert_eq!(found.check("environment", Some("WEIGHTCAST_LOG"))["verdict"], "ok");
    found.says("server", "not applicable", &["nobody-has-this-one", "starts one"]);
    assert_eq!((found.verdict.as_str(), found.status), (Some("warning"), Some(0)));
}

#[test]
fn a_data_port_on_loopback_is_a_problem_where_the_server_is_elsewhere() {
    let folder = Folder::new("port");
    let token = folder.token("token", TOKEN, 0o600);
    // Of a network that nobody has (RFC 5737): whether it answers does not matter.
    let server = "http://192.0.2.250:7700";
    let found = doctor(&["--server", server, "--token-file", &token], &[]);
    found.says("data-port.address", "problem", &["127.0.0.1", "WEIGHTCAST_DATA_BIND"]);
    assert_eq!(found.status, Some(1));
    let any = [("WEIGHTCAST_DATA_BIND", "0.0.0.0:0")];
    let found = doctor(&["--server", server, "--token-file", &token], &any);
    found.says("data-port.address", "problem", &["WEIGHTCAST_DATA_ADVERTISE"]);
    let elsewhere = [("WEIGHTCAST_DATA_BIND", "192.0.2.251:0")];
    let found = doctor(&["--server", server, "--token-file", &token], &elsewhere);
    found.says("data-port.bind", "problem", &["192.0.2.251"]);
    found.says("way.tcp", "problem", &["192.0.2.251"]);
}

/// An address of this host that is not loopback, if there is one. Nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.252:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn a_server_beyond_loopback_connects_back_to_the_data_port() {
    let Some(ip) = own_address() else {
        // A host that has loopback alone has nothing to connect back to.
        return eprintln!("skipped: this host has no address but loopback");
    };
    let folder = Folder::new("dial");
    let token = folder.token("token", TOKEN, 0o600);
    let server = Running::start(&format!("{ip}:0"), &["--token-file", &token]);
    let arguments = ["--server", &server.address, "--token-file", &token];
    for bind in [ip.to_string(), "0.0.0.0".to_owned()] {
        let bind = format!("{bind}:0");
        let advertised = format!("{ip}:0");
        let mut variables = vec![("WEIGHTCAST_DATA_BIND", bind.as_str())];
        let found = doctor(&arguments, &variables);
        found.says("data-port.reached", "ok", &["has connected to", &ip.to_string()]);
        // The port that is told is the one that is dialled: here nobody listens.
        variables.push(("WEIGHTCAST_DATA_ADVERTISE", &advertised));
        let found = doctor(&arguments, &variables);
        found.says("data-port.reached", "not applicable", &["port 0 is not dialled"]);
    }
    // On loopback, nobody connects; the server sees another address than that.
    let found = doctor(&arguments, &[]);
    found.says("data-port.reached", "not applicable", &["connects to no other address"]);
    found.says("data-port.address", "problem", &["127.0.0.1", "WEIGHTCAST_DATA_BIND"]);
}

fn open(server: &str, token: &Path, replica: &str, role: Role) -> ShardHandle {
    let options = Options {
        server: Some(server.to_owned()),
        token_file: Some(token.to_owned()),
        ..Options::new(role)
    };
    let handle = ShardHandle::open("policy", Replica::new(replica, 0, 1), &options).expect("open");
    let mut layout = LayoutBuilder::new();
    layout.add("w", DType::U8, &[64], vec![Part::new("w").shape([64])], 0);
    let region = Region::allocate(64).expect("memory");
    let soon = std::time::Duration::from_secs(20);
    handle.register(LayoutSource::Open(layout), vec![region], soon).expect("register");
    handle
}

#[test]
fn what_would_be_chosen_between_two_replicas_is_told() {
    let folder = Folder::new("choice");
    let token = folder.token("token", TOKEN, 0o600);
    let server = Running::start("127.0.0.1:0", &["--token-file", &token]);
    let path = Path::new(&token);
    let trainer = open(&server.address, path, "trainer", Role::Trainer);
    let rollout = open(&server.address, path, "rollout", Role::Rollout);
    let arguments = ["--server", &server.address, "--token-file", &token];
    let between = |from: &str, to: &str| {
        doctor(&[&arguments[..], &["--from", from, "--to", to]].concat(), &[])
    };
    let nothing = between("trainer", "rollout");
    nothing.says("choice.source", "not applicable", &["holds no version"]);
    let soon = std::time::Duration::from_secs(20);
    trainer.publish(1, soon).expect("publish");
    let found = between("trainer", "rollout");
    found.says("choice.source", "ok", &["rollout would read version 1", "from trainer"]);
    found.says("choice.layouts", "ok", &["equal"]);
    // Another process of this host: as the self-test has found.
    let direct = found.check("way.direct", None)["verdict"] == "ok";
    found.says("choice.way", "ok", &[if direct { "by a direct read" } else { "by TCP" }]);
    found.says("server.role", "ok", &["acts in term"]);
    assert_eq!((found.problems(), found.status), (vec![], Some(0)), "{}", found.text);
    // Of several servers the one that acts is asked, wherever it is in the list.
    let passive = Running::start("127.0.0.1:0", &["--token-file", &token]);
    for list in [[&server, &passive], [&passive, &server]] {
        let list = list.map(|server| server.address.as_str()).join(",");
        let pair = ["--from", "trainer", "--to", "rollout"];
        let found =
            doctor(&[&["--server", &list, "--token-file", &token], &pair[..]].concat(), &[]);
        found.says("choice.source", "ok", &["from trainer"]);
        let of = |server: &Running| found.check("server.role", Some(&server.address)).to_string();
        assert!(of(&server).contains("acts in term") && of(&passive).contains("a backup"));
    }
    let missing = between("trainer", "nobody");
    missing.says("choice", "problem", &["nobody", "policy", "weightcast status"]);
    assert_eq!(missing.status, Some(1));
    rollout.close(soon);
    trainer.close(soon);
}

#[test]
fn the_table_fits_a_hundred_columns_and_wrong_usage_is_status_2() {
    let output: Output = plain().args(["doctor", "--job", "nobody-has-this-one"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("way.direct "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.lines().any(|line| line.starts_with("limit.clock ")), "{text}");
    for wrong in [&["--from", "a"][..], &["--to", "a"], &["--model", "m"], &["--frobnicate"]] {
        let output = plain().arg("doctor").args(wrong).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // Its second process takes orders from nobody else.
    let reader = plain().arg("doctor-reader").stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(reader.status.code(), Some(1), "{reader:?}");
}
