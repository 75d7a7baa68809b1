//! The reference server at the edge: gRPC in, the protocol's state machine inside, gRPC out.
//!
//! One task owns the machine ([`actor`]); every stream is two bounded queues to and from it.

mod actor;
mod address;
mod admission;
mod dial_back;
mod incoming;
mod listener;
mod metrics;
mod outbox;
mod queue;
mod service;
mod spans;
mod status;
mod transfers;
mod visitor;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use weightcast_protocol::limits::SERVER_REEL;
pub use weightcast_protocol::server::HOST_FANOUT;
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{Span, Term, TicketKey};
use weightcast_transport::Secret;

use self::address::{BindAddress, Guard};
use self::listener::ControlListener;
use self::metrics::MetricsPort;
use crate::auth;
use crate::error::Error;
use crate::recordings::{FlightRecorder, RecordingFiles};
use crate::telemetry;

pub(crate) use self::dial_back::{DialNonce, proof};
pub(crate) use self::queue::BUSY;
pub use crate::wire::StatusReply as Status;

/// Most replicas from which one reader draws at once, by default.
pub const STRIPES: u32 = 8;

/// Bytes of a shard from which a read that runs goes on with replicas that publish a moment later: some two MiB of
/// each source are on their way then, and asked for again.
pub const JOINS_FROM: u64 = 128 << 20;

/// How to run a reference server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Where to listen: `127.0.0.1:0`, `[::1]:7700`, `unix:/run/weightcast.sock`.
    pub address: String,
    /// The token that every client must show. Without a token, a server of this host asks for the
    /// token of this user ([`Server::token_file`]); a server that other hosts can reach does not
    /// start.
    pub token: Option<Secret>,
    /// The secret that keys tickets, by which the servers of one job prove to each other what was.
    /// The same on all servers, after a restart too, and kept from clients. Without the secret the
    /// token serves, which clients have as well.
    pub ticket_secret: Option<Secret>,
    /// Starts without `token` too, and then asks nobody for one; the log says so loudly.
    pub insecure: bool,
    /// This server's place in its clients' list, from 0; at most 1,023. All servers differ.
    pub index: u32,
    /// How long a silent client keeps its place.
    pub lease: Duration,
    /// How long `unpublish` waits for readers before it cuts them off.
    pub drain_deadline: Duration,
    /// How long the last copy of a retained version is held back until it is offloaded; then it is
    /// lost.
    pub offload_deadline: Duration,
    /// How many readers one replica serves at a time in its datacentre, and as many that cross to another.
    pub fanout: u32,
    /// How many readers one holder of a version serves at a time on its own host, where no link is used.
    pub host_fanout: u32,
    /// Most replicas from which one reader draws at once, where several have nothing else to do and nobody
    /// else is behind; 1: never more than one.
    pub stripes: u32,
    /// See [`JOINS_FROM`].
    pub joins_from: u64,
    /// Stop when nobody has been connected for this long.
    pub idle_exit: Option<Duration>,
    /// Where to serve metrics to Prometheus, under the path `/metrics`: `127.0.0.1:9464`,
    /// `unix:/run/metrics.sock`. Scrapers from other hosts show the server's token.
    pub metrics: Option<String>,
    /// A file to which this process adds the spans of groups' calls, for Perfetto, Chrome and `weightcast
    /// trace`; `WEIGHTCAST_TRACE` if none is given. A process has one such file.
    pub trace: Option<PathBuf>,
    /// An OpenTelemetry collector, `http://HOST:PORT`, to which this process sends the same spans, over
    /// OTLP/gRPC; `WEIGHTCAST_OTLP` if none is given. A process has one.
    pub otlp: Option<String>,
    /// Check every invariant after every event.
    pub paranoid: bool,
    /// Where recordings go; by default into a directory that only this user can enter.
    pub record_dir: Option<PathBuf>,
    /// For tests: once this file exists, the server panics at the next thing that happens to it.
    #[doc(hidden)]
    pub gives_up_at: Option<PathBuf>,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:0".to_owned(),
            token: None,
            ticket_secret: None,
            insecure: false,
            index: 0,
            lease: Duration::from_secs(5),
            drain_deadline: Duration::from_secs(30),
            offload_deadline: Duration::from_secs(60),
            fanout: 1,
            host_fanout: HOST_FANOUT,
            stripes: STRIPES,
            joins_from: JOINS_FROM,
            idle_exit: None,
            metrics: None,
            trace: None,
            otlp: None,
            paranoid: false,
            record_dir: None,
            gives_up_at: None,
        }
    }
}

/// A running reference server; stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: String,
    metrics: Option<String>,
    token_file: Option<PathBuf>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Server {
    /// What clients connect to: `http://127.0.0.1:41235` or `unix:/run/weightcast.sock`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it serves metrics, if it does: `http://127.0.0.1:9464/metrics` or
    /// `unix:/run/metrics.sock`.
    pub fn metrics_address(&self) -> Option<&str> {
        self.metrics.as_deref()
    }

    /// The file with the token, if the server asks for the token of this user. Clients of the same
    /// user on this host find the file by themselves.
    pub fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Stops it and waits until it has.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stop.take();
        self.wait()
    }

    /// Waits until it stops by itself (`idle_exit`), or for ever.
    ///
    /// # Errors
    /// The server could not go on. Its clients turn to another server of their list.
    pub fn wait(mut self) -> Result<(), Error> {
        let ended = self.thread.take().map(JoinHandle::join);
        telemetry::flush_spans();
        match ended {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::Bug("the server's thread panicked".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
            telemetry::flush_spans();
        }
    }
}

/// Starts a reference server on a thread of its own.
///
/// # Errors
/// An address cannot be bound, or reaches beyond loopback without a token.
pub fn serve(mut config: ServeConfig) -> Result<Server, Error> {
    telemetry::trace_if_asked(config.trace.as_deref())?;
    telemetry::otlp_if_asked(config.otlp.as_deref())?;
    let address = BindAddress::parse("server address", &config.address)?;
    let token_file = match address.guard(config.token.is_some(), config.insecure)? {
        Guard::OwnToken => Some(auth::own_token_file()?),
        Guard::Given | Guard::Nothing => None,
    };
    if let Some(file) = &token_file {
        config.token = Some(auth::read_token(file)?);
    }
    if u64::from(config.index) >= Term::SERVERS {
        let problem = format!("{} is none: a list has at most {}", config.index, Term::SERVERS);
        return Err(Error::Config { what: "server's index".to_owned(), problem });
    }
    say_what_keys_tickets(&config);
    let recordings = RecordingFiles::within(config.record_dir.as_deref())?;
    let listener = ControlListener::bind(&address)?;
    let address = listener.address();
    let metrics = config.metrics.as_deref();
    let metrics = metrics.map(|text| MetricsPort::bind(text, config.token.as_ref())).transpose()?;
    let metrics_address = metrics.as_ref().map(MetricsPort::address);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start the server's runtime", e))?;
    let life = random_life()?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("weightcast-server".to_owned())
        .spawn(move || runtime.block_on(run(listener, metrics, config, recordings, life, stopped)))
        .map_err(|e| Error::io("start the server's thread", e))?;
    let (stop, thread) = (Some(stop), Some(thread));
    Ok(Server { address, metrics: metrics_address, token_file, stop, thread })
}

/// Logs who can make tickets, unless the servers have a secret of their own.
fn say_what_keys_tickets(config: &ServeConfig) {
    let key = match (&config.ticket_secret, &config.token) {
        (Some(_), _) => return,
        (None, Some(_)) => "the token: whoever holds it",
        (None, None) => "nothing secret: anybody",
    };
    tracing::info!(
        "tickets, which prove what was before a failover, are keyed with {key} can make them; \
         --ticket-secret-file gives servers a secret that no client has"
    );
}

async fn run(
    listener: ControlListener,
    metrics: Option<MetricsPort>,
    config: ServeConfig,
    recordings: RecordingFiles,
    life: u64,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Error> {
    let machine =
        weightcast_protocol::server::Server::new(machine_config(&config, life, random_secret()?));
    let machine = FlightRecorder::new(machine, SERVER_REEL, recordings.clone());
    let (inputs, queue) = mpsc::channel(actor::QUEUE);
    let actor = actor::run(machine, queue, config.idle_exit, config.gives_up_at);
    let mut actor = tokio::spawn(actor);
    let scrapes = metrics.map(|port| tokio::spawn(port.serve(inputs.clone())));
    let service = service::service(inputs, config.token.as_ref(), recordings);
    let mut died = None;
    let until = async {
        tokio::select! {
            _ = stopped => {}
            ended = &mut actor => died = ended.err(),
        }
    };
    listener.serve(service, until).await?;
    actor.abort();
    scrapes.inspect(tokio::task::JoinHandle::abort);
    match died {
        // A server that went on answering without its machine would keep its clients for ever.
        Some(bug) => Err(Error::Bug(format!("the reference server gave up: {}", reason(bug)))),
        None => Ok(()),
    }
}

fn reason(died: tokio::task::JoinError) -> String {
    let Ok(panic) = died.try_into_panic() else { return "it was cancelled".to_owned() };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

/// A number that a restarted server does not repeat.
fn random_life() -> Result<u64, Error> {
    random("draw a server's number").map(u64::from_le_bytes)
}

/// A secret from which challenges are drawn, so that nobody can foresee them.
fn random_secret() -> Result<[u64; 2], Error> {
    let number = u128::from_le_bytes(random("draw a server's secret")?);
    Ok([number as u64, (number >> 64) as u64])
}

fn random<const N: usize>(what: &'static str) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::io(what, std::io::Error::other(e.to_string())))?;
    Ok(bytes)
}

fn machine_config(config: &ServeConfig, life: u64, drawn_with: [u64; 2]) -> ServerConfig {
    let secret = config.ticket_secret.as_ref().or(config.token.as_ref());
    let span = |d: Duration| Span(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    ServerConfig {
        life,
        ticket_key: TicketKey::of_secret(secret.map_or(&[], Secret::expose)),
        index: config.index,
        lease: span(config.lease),
        drain_deadline: span(config.drain_deadline),
        offload_deadline: span(config.offload_deadline),
        fanout: config.fanout,
        host_fanout: config.host_fanout,
        stripes: config.stripes,
        joins_from: config.joins_from,
        tell_stages: spans::are_wanted(),
        paranoid: config.paranoid,
        secret: drawn_with,
        ..ServerConfig::default()
    }
}

#[cfg(test)]
mod tests;
