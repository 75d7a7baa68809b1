//! What a job configures, from arguments first and the environment second.

use std::path::PathBuf;
use std::time::Duration;

use weightcast_protocol::message::Location;
use weightcast_transport::Secret;

use crate::environment::environment;
use crate::error::Error;
use crate::{auth, lazy};

pub use weightcast_protocol::message::{EpochPolicy, Role};

/// Who and where a shard is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Name of the replica; the same on all its shards.
    pub name: String,
    /// Which of its shards this is, from 0.
    pub shard: u32,
    /// How many shards it has.
    pub num_shards: u32,
    /// Datacentre, empty if there is only one.
    pub datacentre: String,
    /// Host; the machine's name by default.
    pub host: String,
    /// May be taken away at any time.
    pub spot: bool,
}

impl Replica {
    /// One shard of a replica on this host.
    pub fn new(name: impl Into<String>, shard: u32, num_shards: u32) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = name.into();
        Self { name, shard, num_shards, datacentre: String::new(), host, spot: false }
    }

    pub(crate) fn location(&self) -> Location {
        Location { datacentre: self.datacentre.clone(), host: self.host.clone(), spot: self.spot }
    }
}

/// What the job wants, and how to reach the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the handle may do.
    pub role: Role,
    /// Whether the handle starts a new epoch.
    pub epoch: EpochPolicy,
    /// For a trainer: how many of the newest versions are retained. The last copy of a retained
    /// version is given up only when it was copied to CPU memory.
    pub retain: u32,
    /// Whether `update` leaves a version of another datacentre to a seed replica: `update` is
    /// answered as unchanged, the version crosses into CPU memory in the background, and a later
    /// `update` reads it from there. The same on all shards of a replica.
    pub offload_seeding: bool,
    /// The most bytes that copies and seed replicas of this handle may take; any number by default.
    /// Without room for a seed, the next `update` crosses by itself.
    pub offload_bytes: Option<u64>,
    /// The most bytes that a staged update may take beside the registered memory; any number by
    /// default.
    pub staging_bytes: Option<u64>,
    /// A directory in which plans stay, for handles that are opened later with the same layouts: they
    /// need not plan. Made if it is not there; any number of handles may share it. Its newest 128
    /// plans are kept, each a few bytes a copy. By default plans last as long as the handle.
    pub plan_cache: Option<PathBuf>,
    /// A file to which this process adds the spans of its calls from now on, for Perfetto, Chrome and
    /// `weightcast trace`; `WEIGHTCAST_TRACE` if none is given. Processes of one host may share the file.
    /// A process has one such file.
    pub trace: Option<PathBuf>,
    /// An OpenTelemetry collector, `http://HOST:PORT`, to which this process sends the same spans from now on,
    /// over OTLP/gRPC; `WEIGHTCAST_OTLP` if none is given. A process has one.
    pub otlp: Option<String>,
    /// A directory into which each failed call writes what the session did in the last minutes, for `weightcast replay`;
    /// `WEIGHTCAST_RECORD_DIR`. By default failed calls write nothing, and a panic writes into a directory of this user.
    pub record_dir: Option<PathBuf>,
    /// `http://HOST:PORT` or `unix:/PATH`; several with commas between them are the reference
    /// server and its backups, in the same order for all. `WEIGHTCAST_SERVER` if none is given.
    pub server: Option<String>,
    /// File with the token; `WEIGHTCAST_TOKEN_FILE` if none is given. If that is not set either,
    /// servers of this host use the token file of this user, which they make.
    pub token_file: Option<PathBuf>,
    /// Address that the data port binds; `WEIGHTCAST_DATA_BIND`, or loopback.
    pub data_bind: Option<String>,
    /// Address that peers use for the data port, if it is another; `WEIGHTCAST_DATA_ADVERTISE`.
    pub data_advertise: Option<String>,
    /// Networks whose data ports this handle connects to, `ADDRESS/BITS` with commas between them;
    /// `WEIGHTCAST_DATA_NETWORKS`. By default all but link-local ones; loopback only if the server
    /// or this handle's own data port is there.
    pub data_networks: Option<String>,
    /// Goes without a token where none is configured: anyone who reaches the data port is served.
    pub insecure: bool,
    /// Command that starts a server when none is configured. Empty: fail instead.
    pub lazy_server: Vec<String>,
    /// Names the server that is shared by the processes of one job on one host; `WEIGHTCAST_JOB`,
    /// else the Slurm job, else the directory that the process is in.
    pub job: Option<String>,
    /// How long to try to reach the server, or to wait for a shard that is still taken.
    pub deadline: Duration,
    /// How long a handle that has lost its server keeps what it holds and looks for a server that
    /// takes its group over: the same one, restarted, or a backup. Zero: the handle ends with its
    /// server.
    pub reconnect: Duration,
    /// Which way to read: chosen by itself, or forced for tests and benchmarks.
    pub way: weightcast_transport::Way,
}

impl Options {
    /// Everything by default, for this role.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            offload_bytes: None,
            staging_bytes: None,
            plan_cache: None,
            trace: None,
            otlp: None,
            record_dir: None,
            server: None,
            token_file: None,
            data_bind: None,
            data_advertise: None,
            data_networks: None,
            insecure: false,
            lazy_server: Vec::new(),
            job: None,
            deadline: Duration::from_secs(30),
            reconnect: Duration::from_secs(60),
            way: weightcast_transport::Way::Auto,
        }
    }

    /// The configured server, if there is one.
    pub(crate) fn configured_server(&self) -> Option<String> {
        self.server.clone().or_else(|| environment("WEIGHTCAST_SERVER"))
    }

    /// The configured token file, if there is one.
    pub(crate) fn configured_token_file(&self) -> Option<PathBuf> {
        let given = self.token_file.clone();
        given.or_else(|| environment("WEIGHTCAST_TOKEN_FILE").map(PathBuf::from))
    }

    /// The file of the token to show these servers and to ask of peers: the configured one; else, if all
    /// servers are of this host, this user's own. None for other servers, or if `insecure`.
    pub(crate) fn token_file_for(&self, servers: &str) -> Result<Option<PathBuf>, Error> {
        match self.configured_token_file() {
            Some(file) => Ok(Some(file)),
            None if self.insecure || !servers.split(',').all(is_of_this_host) => Ok(None),
            None => auth::own_token_file().map(Some),
        }
    }

    /// The token of that file.
    pub(crate) fn token(&self, servers: &str) -> Result<Option<Secret>, Error> {
        self.token_file_for(servers)?.map(|file| auth::read_token(&file)).transpose()
    }

    pub(crate) fn record_dir(&self) -> Option<PathBuf> {
        let given = self.record_dir.clone();
        given.or_else(|| environment("WEIGHTCAST_RECORD_DIR").map(PathBuf::from))
    }

    pub(crate) fn data_bind(&self) -> String {
        let given = self.data_bind.clone().or_else(|| environment("WEIGHTCAST_DATA_BIND"));
        given.unwrap_or_else(|| "127.0.0.1:0".to_owned())
    }

    pub(crate) fn data_advertise(&self) -> Option<String> {
        self.data_advertise.clone().or_else(|| environment("WEIGHTCAST_DATA_ADVERTISE"))
    }

    pub(crate) fn data_networks(&self) -> Option<String> {
        self.data_networks.clone().or_else(|| environment("WEIGHTCAST_DATA_NETWORKS"))
    }

    /// Name of the job whose processes share a lazily started server.
    pub(crate) fn job(&self) -> Result<String, Error> {
        let given = self.job.clone().or_else(|| environment("WEIGHTCAST_JOB"));
        given.map_or_else(lazy::of_this_process, Ok)
    }

    /// The running server and its token: the configured server, or the server that the job's
    /// processes on this host have started.
    pub(crate) fn running_server(&self) -> Result<(String, Option<Secret>), Error> {
        if let Some(server) = self.configured_server() {
            let token = self.token(&server)?;
            return Ok((server, token));
        }
        let job = self.job()?;
        if let Some((server, token)) = lazy::find(&job)? {
            return Ok((server, Some(token)));
        }
        let others = match lazy::served_jobs()?.join(", ") {
            none if none.is_empty() => "no job of this user has one here".to_owned(),
            others => format!("these jobs of this user have one here: {others}"),
        };
        Err(Error::Config {
            what: "server".to_owned(),
            problem: format!(
                "none given and none started by job {job}; {others}: name the job \
                 (WEIGHTCAST_JOB), or give the server's address (WEIGHTCAST_SERVER)"
            ),
        })
    }
}

/// Whether an address leads to this host alone, as far as its text says.
pub(crate) fn is_of_this_host(server: &str) -> bool {
    let server = server.trim();
    let rest = server.strip_prefix("http://").unwrap_or(server);
    let host = rest.trim_end_matches('/').rsplit_once(':').map_or(rest, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = |ip: std::net::IpAddr| ip.to_canonical().is_loopback();
    server.starts_with("unix:") || host == "localhost" || host.parse().is_ok_and(loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_this_host() {
        for (server, local) in [
            ("http://127.0.0.1:7700", true),
            (" 127.9.9.9:7700", true),
            ("http://[::1]:7700/", true),
            ("http://[::ffff:127.0.0.1]:7700", true),
            ("localhost:1", true),
            ("unix:/run/x.sock", true),
            ("http://10.0.0.1:7700", false),
            ("http://127.0.0.1.example.org:7700", false),
            ("http://localhost.example.org:7700", false),
            ("http://127.0.0.1@example.org:7700", false),
            ("https://example.org:7700", false),
            ("example.org", false),
            ("", false),
        ] {
            assert_eq!(is_of_this_host(server), local, "{server}");
        }
    }

    #[test]
    fn no_token_goes_to_another_host_unless_it_is_given() {
        let options = Options::new(Role::Rollout);
        assert!(options.token("http://192.0.2.1:7700").unwrap().is_none());
        assert!(options.token("http://127.0.0.1:1,http://192.0.2.1:7700").unwrap().is_none());
        assert!(options.token("http://127.0.0.1:1,unix:/x").unwrap().is_some());
        let insecure = Options { insecure: true, ..options };
        assert!(insecure.token("unix:/x").unwrap().is_none());
    }

    #[test]
    fn what_is_said_of_a_shard_is_told_of_it() {
        for (datacentre, host, spot) in [("", "h", false), ("paris", "i", true)] {
            let (datacentre, host) = (datacentre.to_owned(), host.to_owned());
            let told = Location { datacentre: datacentre.clone(), host: host.clone(), spot };
            let replica = Replica { datacentre, host, spot, ..Replica::new("r", 1, 2) };
            assert_eq!(replica.location(), told);
            assert_eq!((replica.shard, replica.num_shards), (1, 2));
        }
    }

    #[test]
    fn a_job_that_is_named_is_that_job() {
        let options = Options { job: Some("mine".to_owned()), ..Options::new(Role::Rollout) };
        assert_eq!(options.job().unwrap(), "mine");
    }

    /// A configured server comes with the token that is configured.
    #[test]
    fn the_server_that_runs_is_the_configured_one_with_its_token() {
        let token = auth::new_token().unwrap();
        let name = format!("wc-config-{}", token.expose()[..12].escape_ascii());
        let file = std::env::temp_dir().join(name);
        auth::write_token(&file, &token).unwrap();
        let options = Options {
            server: Some("http://192.0.2.1:7".to_owned()),
            token_file: Some(file.clone()),
            ..Options::new(Role::Rollout)
        };
        let (server, shown) = options.running_server().unwrap();
        assert_eq!(server, "http://192.0.2.1:7");
        assert_eq!(shown.unwrap().expose(), token.expose());
        std::fs::remove_file(file).unwrap();
    }
}
