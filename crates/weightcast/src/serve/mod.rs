//! The reference server at the edge: gRPC in, the protocol's state machine inside, gRPC out.
//!
//! One task owns the machine ([`actor`]); every stream is two bounded queues to and from it.

mod actor;
mod admission;
mod incoming;
mod listener;
mod service;
mod status;
mod visitor;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{Span, Term};
use weightcast_transport::Secret;

use self::listener::Listener;
use crate::Error;

pub use crate::wire::StatusReply as Status;

/// How to run a reference server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// Where to listen: `127.0.0.1:0`, `[::1]:7700`, `unix:/run/weightcast.sock`.
    pub address: String,
    /// What every client must show. Needed for any address beyond loopback.
    pub token: Option<Secret>,
    /// Allows an address beyond loopback without a token. Said loudly in the log.
    pub insecure: bool,
    /// Which server of its clients' list this is, from 0; at most 1,023. All differ.
    pub index: u32,
    /// How long a silent client keeps its place.
    pub lease: Duration,
    /// How long `unpublish` waits for readers before it cuts them off.
    pub drain_deadline: Duration,
    /// How long the last copy of a retained version is held back until it is offloaded; then it is
    /// lost.
    pub offload_deadline: Duration,
    /// How many readers one replica serves at a time.
    pub fanout: u32,
    /// From how many replicas one reader draws at most, where several have nothing else to do; 1:
    /// from one.
    pub stripes: u32,
    /// Stop when nobody has been connected for this long.
    pub idle_exit: Option<Duration>,
    /// Check every invariant after every event.
    pub paranoid: bool,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:0".to_owned(),
            token: None,
            insecure: false,
            index: 0,
            lease: Duration::from_secs(5),
            drain_deadline: Duration::from_secs(30),
            offload_deadline: Duration::from_secs(60),
            fanout: 1,
            stripes: 1,
            idle_exit: None,
            paranoid: false,
        }
    }
}

/// A running reference server; stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Server {
    /// What clients connect to: `http://127.0.0.1:41235` or `unix:/run/weightcast.sock`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Stops it and waits until it has.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stop.take();
        self.wait()
    }

    /// Waits until it stops by itself (`idle_exit`), or for ever.
    pub fn wait(mut self) -> Result<(), Error> {
        match self.thread.take().map(JoinHandle::join) {
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
        }
    }
}

/// Starts a reference server on a thread of its own.
///
/// # Errors
/// The address cannot be bound, or reaches beyond loopback without a token.
pub fn serve(config: ServeConfig) -> Result<Server, Error> {
    let address = BindAddress::parse(&config.address)?;
    address.check(config.token.is_some(), config.insecure)?;
    if u64::from(config.index) >= Term::SERVERS {
        let problem = format!("{} is none: a list has at most {}", config.index, Term::SERVERS);
        return Err(Error::Config { what: "server's index".to_owned(), problem });
    }
    let listener = Listener::bind(&address)?;
    let address = listener.address();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start the server's runtime", e))?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("weightcast-server".to_owned())
        .spawn(move || runtime.block_on(run(listener, config, stopped)))
        .map_err(|e| Error::io("start the server's thread", e))?;
    Ok(Server { address, stop: Some(stop), thread: Some(thread) })
}

async fn run(
    listener: Listener,
    config: ServeConfig,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Error> {
    let machine = weightcast_protocol::server::Server::new(machine_config(&config));
    let (inputs, queue) = mpsc::channel(actor::QUEUE);
    let (idle, when_idle) = oneshot::channel();
    let actor = tokio::spawn(actor::run(machine, queue, config.idle_exit, idle));
    let service = service::service(inputs, config.token.as_ref());
    let until = async move {
        tokio::select! {
            _ = stopped => {}
            // An error means that the actor has no idle time to report: wait for `stop`.
            Ok(()) = when_idle => {}
            else => {}
        }
    };
    listener.serve(service, until).await?;
    actor.abort();
    Ok(())
}

fn machine_config(config: &ServeConfig) -> ServerConfig {
    let span = |d: Duration| Span(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    ServerConfig {
        // Whole milliseconds leave room for the server's number.
        term: Term(crate::clock::boot_time_nanos() / 1_000_000 * Term::SERVERS),
        index: config.index,
        lease: span(config.lease),
        drain_deadline: span(config.drain_deadline),
        offload_deadline: span(config.offload_deadline),
        fanout: config.fanout,
        stripes: config.stripes,
        paranoid: config.paranoid,
        ..ServerConfig::default()
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BindAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl BindAddress {
    fn parse(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let text = text.strip_prefix("http://").unwrap_or(text);
        text.parse().map(Self::Tcp).map_err(|_| Error::Config {
            what: "server address".to_owned(),
            problem: format!("{text:?} is neither IP:PORT nor unix:/PATH"),
        })
    }

    /// Promise 1: off means off.
    fn check(&self, token: bool, insecure: bool) -> Result<(), Error> {
        let Self::Tcp(address) = self else { return Ok(()) };
        if address.ip().is_loopback() || token {
            return Ok(());
        }
        if insecure {
            tracing::warn!(%address, "INSECURE: anyone who reaches this address can read and replace weights");
            return Ok(());
        }
        Err(Error::Config {
            what: "server address".to_owned(),
            problem: format!(
                "{address} is reachable from other hosts: give a token file, listen on loopback, \
                 or allow it with --insecure-no-auth"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_means_off() {
        for (address, token, insecure, allowed) in [
            ("127.0.0.1:0", false, false, true),
            ("[::1]:0", false, false, true),
            ("unix:/tmp/x.sock", false, false, true),
            ("0.0.0.0:0", false, false, false),
            ("0.0.0.0:0", true, false, true),
            ("0.0.0.0:0", false, true, true),
            ("[::]:0", false, false, false),
            ("192.0.2.1:1", false, false, false),
        ] {
            let parsed = BindAddress::parse(address).expect(address);
            assert_eq!(parsed.check(token, insecure).is_ok(), allowed, "{address}");
        }
        assert!(BindAddress::parse("localhost").is_err());
    }
}
