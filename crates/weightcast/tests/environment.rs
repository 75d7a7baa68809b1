//! What a job configures by arguments and by the environment. A process cannot safely change its own, so
//! each scene is this program again, in an environment of its own.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use weightcast::{
    Error, Options, Replica, Role, ServeConfig, ShardHandle, read_token, serve, status,
};

const NAMES: [&str; 6] =
    ["SERVER", "TOKEN_FILE", "DATA_BIND", "DATA_ADVERTISE", "DATA_NETWORKS", "JOB"];

/// Runs a scene with these variables, and none of the others.
fn play(scene: &str, variables: &[(&str, &str)]) {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", scene, "--ignored", "--nocapture"]);
    for name in NAMES {
        program.env_remove(format!("WEIGHTCAST_{name}"));
    }
    for (name, value) in variables {
        program.env(name, value);
    }
    assert!(program.status().unwrap().success(), "{scene}");
}

fn open(options: &Options) -> Result<ShardHandle, Error> {
    ShardHandle::open("model", Replica::new("one", 0, 1), options)
}

/// A token of its own, in a file that is removed in the end.
struct OwnToken(PathBuf);

impl OwnToken {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("wc-environment-{name}-{}", std::process::id()));
        std::fs::write(&path, "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self(path)
    }

    fn server(&self) -> weightcast::Server {
        let token = Some(read_token(&self.0).unwrap());
        serve(ServeConfig { token, ..ServeConfig::default() }).unwrap()
    }
}

impl Drop for OwnToken {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn arguments_come_before_the_environment() {
    play(
        "given_by_arguments",
        &[
            ("WEIGHTCAST_SERVER", "unix:/nowhere"),
            ("WEIGHTCAST_TOKEN_FILE", "/nowhere"),
            ("WEIGHTCAST_DATA_BIND", "nowhere"),
            ("WEIGHTCAST_DATA_ADVERTISE", "nowhere:1"),
            ("WEIGHTCAST_DATA_NETWORKS", "nowhere"),
            ("WEIGHTCAST_JOB", "no job"),
        ],
    );
}

#[test]
fn the_environment_comes_before_what_is_usual() {
    let token = OwnToken::new("second");
    let server = token.server();
    play(
        "given_by_the_environment",
        &[
            ("WEIGHTCAST_SERVER", server.address()),
            ("WEIGHTCAST_TOKEN_FILE", token.0.to_str().unwrap()),
            ("WEIGHTCAST_DATA_BIND", "127.0.0.3:0"),
            ("WEIGHTCAST_DATA_ADVERTISE", "localhost:1"),
        ],
    );
}

#[test]
fn what_is_empty_is_not_given() {
    play(
        "given_as_nothing",
        &[
            ("WEIGHTCAST_SERVER", ""),
            ("WEIGHTCAST_TOKEN_FILE", ""),
            ("WEIGHTCAST_DATA_BIND", ""),
            ("WEIGHTCAST_DATA_ADVERTISE", ""),
            ("WEIGHTCAST_DATA_NETWORKS", ""),
            ("WEIGHTCAST_JOB", ""),
        ],
    );
}

/// Where the only shard's data port is, as its server says.
fn data_address(options: &Options) -> String {
    status(options).unwrap().models[0].replicas[0].shards[0].data_address.clone()
}

#[test]
#[ignore = "a scene"]
fn given_by_arguments() {
    let token = OwnToken::new("first");
    let server = token.server();
    let options = Options {
        server: Some(server.address().to_owned()),
        token_file: Some(token.0.clone()),
        data_bind: Some("127.0.0.2:0".to_owned()),
        data_advertise: Some("localhost:2".to_owned()),
        data_networks: Some("127.0.0.0/8".to_owned()),
        ..Options::new(Role::Rollout)
    };
    let _handle = open(&options).unwrap();
    assert_eq!(data_address(&options), "localhost:2");
    let job = Options { server: None, job: Some("a".to_owned()), ..options };
    let nobody = status(&job).map(drop);
    // The server of the environment comes before any job's.
    assert!(nobody.unwrap_err().to_string().contains("nowhere"));
}

#[test]
#[ignore = "a scene"]
fn given_by_the_environment() {
    let options = Options::new(Role::Rollout);
    let _handle = open(&options).unwrap();
    assert_eq!(data_address(&options), "localhost:1");
}

#[test]
#[ignore = "a scene"]
fn given_as_nothing() {
    let server = serve(ServeConfig::default()).unwrap();
    let options =
        Options { server: Some(server.address().to_owned()), ..Options::new(Role::Rollout) };
    let _handle = open(&options).unwrap();
    assert!(data_address(&options).starts_with("127.0.0.1:"));
    let lazy = Options { job: Some("nobody-has-this-one".to_owned()), server: None, ..options };
    let refused = status(&lazy).unwrap_err().to_string();
    assert!(refused.contains("none started by job nobody-has-this-one"), "{refused}");
}
