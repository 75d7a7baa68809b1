//! `record` and `replay FILE`, as a user runs them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use weightcast_protocol::limits::SERVER_REEL;
use weightcast_protocol::recording::{MachineKind, Recording};
use weightcast_sim::{Harshness, WorldOptions, record};

fn weightcast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weightcast")).args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A directory that is gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wc-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The recordings of a simulated world.
fn recordings() -> Vec<Recording> {
    let options = Harshness::default().options(1);
    record(1, &WorldOptions { recorders: Some(SERVER_REEL), ..options })
}

#[test]
fn the_story_of_a_recording_is_told_and_its_status_is_that_of_its_end() {
    let scratch = Scratch::new("replay");
    let recordings = recordings();
    for kind in [MachineKind::Server, MachineKind::Session] {
        let longest = recordings.iter().filter(|recording| recording.head.kind == kind);
        let recording =
            longest.max_by_key(|recording| recording.head.events).expect("there is one");
        let file = scratch.file(&format!("{kind}.recording"));
        fs::write(&file, recording.encode()).expect("written");
        let told = weightcast(&["replay", &file]);
        assert_eq!(told.status.code(), Some(0), "{told:?}");
        let told = text(&told.stdout);
        let events = recording.head.events;
        assert!(told.starts_with(&format!("recording of a {kind}, asked for\n")), "{told}");
        assert!(told.ends_with(&format!("\n{events} events, all outputs as recorded\n")), "{told}");
        for what in ["call 1: register", "is a member of group", "call 1 ended: registered"] {
            assert!(told.contains(what), "{what} in {told}");
        }
        let json = weightcast(&["replay", &file, "--json", "--from", "3", "--to", "5"]);
        let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
        assert_eq!((&json["end"], &json["events"]), (&"faithful".into(), &events.into()));
        let steps = json["lines"].as_array().expect("lines").iter();
        assert!(steps.clone().all(|line| (3..=5).contains(&line["step"].as_u64().unwrap())));
        assert!(steps.count() > 0);
        assert_eq!(weightcast(&["replay", &file, "--harsh"]).status.code(), Some(2));
        let plotted = weightcast(&["plot", &file, "--output", "-"]);
        match kind {
            MachineKind::Server => {
                let svg = text(&plotted.stdout);
                for title in
                    ["Who held which version when", "Replica furthest behind", "Replicas that read"]
                {
                    assert!(svg.contains(title), "{title} is not in {svg}");
                }
                assert!(svg.contains(&format!("{events} events in ")), "{svg}");
            }
            MachineKind::Session => {
                assert_eq!(plotted.status.code(), Some(1), "{plotted:?}");
                let said = text(&plotted.stderr);
                assert!(
                    said.contains("recording of a session: `weightcast replay` tells"),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn what_is_no_recording_is_refused_with_its_reason() {
    let scratch = Scratch::new("refused");
    let mut bytes = recordings()[0].encode();
    bytes.pop();
    for (name, bytes, why) in [
        ("short", &bytes[..], "damaged or cut short"),
        ("other", b"{}", "no recording"),
        ("empty", b"", "no recording"),
    ] {
        let file = scratch.file(name);
        fs::write(&file, bytes).expect("written");
        let refused = weightcast(&["replay", &file]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = text(&refused.stderr);
        assert!(said.contains(why) && said.contains(&file), "{said}");
    }
    let nowhere = weightcast(&["replay", &scratch.file("nowhere")]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(text(&nowhere.stderr).contains("No such file"));
}

/// A server in a process of its own; killed when the test ends.
struct Running(Child, String);

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weightcast"))
            .args(["serve", "--address", "127.0.0.1:0", "--paranoid"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        Self(child, line.trim().rsplit(' ').next().expect("an address").to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_is_recorded_into_its_directory_and_told_of() {
    let scratch = Scratch::new("record");
    let directory = scratch.file("recordings");
    let server = Running::start(&["--record-dir", &directory]);
    let record = ["record", "--server", &server.1];
    let nothing = weightcast(&record);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("nothing has happened yet"), "{nothing:?}");
    assert!(!Path::new(&directory).exists());

    let options = weightcast::Options {
        server: Some(server.1.clone()),
        record_dir: Some(scratch.file("sessions").into()),
        ..weightcast::Options::new(weightcast::Role::Rollout)
    };
    let replica = weightcast::Replica::new("rollout-7", 0, 1);
    let handle = weightcast::ShardHandle::open("policy", replica, &options).expect("it opens");
    let output = scratch.file("copy.recording");
    let recorded = weightcast(&[&record[..], &["--json", "--output", &output]].concat());
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    let said: Value = serde_json::from_slice(&recorded.stdout).expect("JSON");
    assert_eq!(said["path"], output.as_str());
    assert!(said["events"].as_u64().expect("a number") >= 1);
    let written = files(&directory);
    let [written] = &written[..] else { panic!("{written:?}") };
    assert_eq!(fs::read(written).unwrap(), fs::read(&output).unwrap());
    for file in [written, Path::new(&output)] {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let told = weightcast(&["replay", &output]);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    let told = text(&told.stdout);
    assert!(told.contains("rollout-7/0") && told.contains("opens"), "{told}");

    // The session's own side of it, when it is asked and when a call fails.
    let own = handle.record().expect("it is written").path;
    assert!(own.starts_with(scratch.file("sessions")), "{own:?}");
    let error = handle.replicate(weightcast::Selector::Latest, Duration::from_secs(5));
    let error = error.expect_err("there is no memory to fill").to_string();
    let failed = files(&scratch.file("sessions")).into_iter().find(|file| *file != own);
    for (file, cause) in [
        (own, "asked for".to_owned()),
        (failed.expect("the failed call left one"), format!("written as a call failed: {error}")),
    ] {
        let told = weightcast(&["replay", file.to_str().expect("text")]);
        assert_eq!(told.status.code(), Some(0), "{told:?}");
        let told = text(&told.stdout);
        assert!(told.starts_with(&format!("recording of a session, {cause}\n")), "{told}");
    }
}

fn files(directory: &str) -> Vec<PathBuf> {
    fs::read_dir(directory).expect("made").map(|file| file.expect("a file").path()).collect()
}
