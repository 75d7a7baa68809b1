//! The server that starts itself. Where it lies is for the environment to say, so each scene runs in a
//! process of its own, and so does the server: this program again.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weightcast::plan::{DType, LayoutBuilder, Part};
use weightcast::transport::Region;
use weightcast::{
    Error, LayoutSource, Options, Replica, Role, Selector, ServeConfig, ShardHandle, read_token,
    serve, status,
};

const JOB: &str = "lazy-test";
const SOON: Duration = Duration::from_secs(20);

/// Runs a scene in a directory of its own, in which servers are looked for and left.
fn play(scene: &str) {
    let name = format!("wc-lazy-{scene}-{}", std::process::id());
    let directory = Path::new("/tmp").join(name);
    std::fs::create_dir(&directory).unwrap();
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", scene, "--ignored", "--nocapture"]).env("XDG_RUNTIME_DIR", &directory);
    for name in ["SERVER", "TOKEN_FILE", "DATA_BIND", "JOB"] {
        program.env_remove(format!("WEIGHTCAST_{name}"));
    }
    let ended = program.current_dir(&directory).status().unwrap();
    // Nothing but what belongs there is left in the directory that the scene ran in.
    let left: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|of| of.unwrap().file_name()).collect();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(ended.success(), "{scene}");
    assert_eq!(left, ["weightcast"]);
}

#[test]
fn the_first_of_a_job_starts_a_server_and_the_next_finds_it() {
    play("first_and_next");
}

#[test]
fn a_server_that_is_gone_is_started_anew() {
    play("gone_and_anew");
}

#[test]
fn those_who_start_together_have_one_server() {
    play("start_together");
}

#[test]
fn who_only_asks_starts_nothing() {
    play("only_asks");
}

#[test]
fn a_server_that_is_named_is_asked_beside_the_jobs_own() {
    play("named_beside");
}

/// What `weightcast serve` is called with by a client that starts it.
const SCRIPT: &str = r#"WC_TEST_ADDRESS="$3" WC_TEST_TOKEN_FILE="$5" exec "$WC_TEST_PROGRAM" --exact server --ignored"#;

/// Of one job.
fn options(job: &str) -> Options {
    // The only variable that is not inherited is the program's own name.
    let script = SCRIPT.replace("$WC_TEST_PROGRAM", env::current_exe().unwrap().to_str().unwrap());
    Options {
        job: Some(job.to_owned()),
        lazy_server: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        ..Options::new(Role::Rollout)
    }
}

fn open(name: &str, options: &Options) -> Result<ShardHandle, Error> {
    ShardHandle::open("model", Replica::new(name, 0, 1), options)
}

fn files(job: &str) -> PathBuf {
    Path::new(&env::var("XDG_RUNTIME_DIR").unwrap()).join("weightcast").join(job)
}

fn replicas(options: &Options) -> Vec<String> {
    let status = status(options).unwrap();
    status.models.into_iter().flat_map(|m| m.replicas).map(|replica| replica.name).collect()
}

#[test]
#[ignore = "a client starts it"]
fn server() {
    let token = env::var("WC_TEST_TOKEN_FILE").unwrap();
    let config = ServeConfig {
        address: env::var("WC_TEST_ADDRESS").unwrap(),
        token: Some(read_token(Path::new(&token)).unwrap()),
        idle_exit: Some(Duration::from_millis(200)),
        ..ServeConfig::default()
    };
    serve(config).unwrap().wait().unwrap();
}

#[test]
#[ignore = "a scene"]
fn first_and_next() {
    let options = options(JOB);
    let one = open("one", &options).unwrap();
    let two = open("two", &Options { lazy_server: Vec::new(), ..options.clone() }).unwrap();
    assert_eq!(replicas(&options), ["one", "two"]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let files = files(JOB);
    for (path, right) in
        [(&*files, 0o700), (files.parent().unwrap(), 0o700), (&files.join("token"), 0o600)]
    {
        assert_eq!(mode(path), right, "{}", path.display());
    }
    // Nobody publishes here: it may be that the trainer is one of another job.
    let layout =
        LayoutBuilder::new().add("w", DType::U8, &[8], vec![Part::new("w").shape([8])], 0).build();
    let (layout, region) = (LayoutSource::Known(layout.unwrap()), Region::allocate(8).unwrap());
    one.register(layout, vec![region], SOON).unwrap();
    match one.replicate(Selector::Latest, Duration::from_millis(300)).unwrap_err() {
        Error::NobodyHere { job, .. } => assert_eq!(job, JOB),
        other => panic!("{other}"),
    }
    // Another job has another one.
    let other = self::options("other");
    let three = open("three", &other).unwrap();
    assert_eq!(replicas(&other), ["three"]);
    let nobody = status(&self::options("nobody")).unwrap_err().to_string();
    assert!(nobody.contains("lazy-test, other"), "{nobody}");
    drop((one, two, three));
}

#[test]
#[ignore = "a scene"]
fn gone_and_anew() {
    let options = options(JOB);
    for name in ["one", "two"] {
        let handle = open(name, &options).unwrap();
        assert_eq!(replicas(&options), [name]);
        drop(handle);
        // It ends by itself, and is looked for until it has.
        while status(&options).map_or_else(|e| !e.to_string().contains("none started"), |_| true) {}
        assert!(files(JOB).join("server.log").exists(), "what it said stays");
    }
}

/// How often this process has a file open.
fn opened(file: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    links.filter(|of| std::fs::read_link(of.path()).is_ok_and(|to| to == file)).count()
}

/// All have looked for a server in vain, if they look before their turn: the first starts one, and the
/// others find it.
#[test]
#[ignore = "a scene"]
fn start_together() {
    const NAMES: [&str; 3] = ["one", "three", "two"];
    let options = options(JOB);
    // It makes the job's files.
    let refused = open("nobody", &Options { lazy_server: Vec::new(), ..options.clone() });
    assert!(refused.err().unwrap().to_string().contains("none is configured"));
    let path = files(JOB).join("lock");
    let lock = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let handles = std::thread::scope(|scope| {
        let starting = NAMES.map(|name| {
            let options = &options;
            scope.spawn(move || open(name, options))
        });
        let is_over = || starting.iter().any(std::thread::ScopedJoinHandle::is_finished);
        while opened(&path) < 1 + NAMES.len() && !is_over() {
            std::thread::yield_now();
        }
        assert!(!is_over(), "they wait for their turn");
        drop(lock);
        starting.map(|handle| handle.join().unwrap())
    });
    let handles = handles.map(Result::unwrap);
    assert_eq!(replicas(&options), NAMES);
    drop(handles);
}

#[test]
#[ignore = "a scene"]
fn only_asks() {
    let options = options(JOB);
    let asked = status(&options).unwrap_err().to_string();
    assert!(asked.contains("no job of this user has one here"), "{asked}");
    assert!(!files(JOB).exists());
    let refused = open("one", &Options { lazy_server: Vec::new(), ..options }).err().unwrap();
    assert!(refused.to_string().contains("none is configured"), "{refused}");
    for job in ["", "..", ".token", "a/b", "a b", &"j".repeat(65)] {
        let refused = open("one", &self::options(job)).err().unwrap().to_string();
        assert!(refused.contains("1 to 64 of"), "{refused}");
    }
}

#[test]
#[ignore = "a scene"]
fn named_beside() {
    let own = options(JOB);
    let one = open("one", &own).unwrap();
    let address = "127.0.0.1:0".to_owned();
    let server = serve(ServeConfig { address, ..ServeConfig::default() }).unwrap();
    let named = Options { server: Some(server.address().to_string()), ..own.clone() };
    let elsewhere = open("elsewhere", &named).unwrap();
    assert_eq!(replicas(&named), ["elsewhere"]);
    assert_eq!(replicas(&own), ["one"]);
    drop((one, elsewhere));
}
