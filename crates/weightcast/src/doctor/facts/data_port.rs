//! Binds the data port that a worker would have, and has a server connect to it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tonic::{Code, Status as Refusal};
use weightcast_transport::{Auth, BindError, DataServer, Secret};

use super::server::AskedServers;
use crate::client::connection::ServerConnection;
use crate::client::data_address::{bind_address, told_address};
use crate::client::reading::networks::Networks;
use crate::client::reading::reach;
use crate::client::reading::route::resolve;
use crate::config::Options;
use crate::doctor::judgement::data_port::{BindOutcome, DataPortFacts, DialOutcome, Dialled};
use crate::serve::{DialNonce, proof};
use crate::wire::{DialBackReply, Reach};

/// How long the server may take to answer: longer than it tries.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection that has come may take to prove itself, and how long the proof may take to come after the
/// server's answer: others may have come before.
const PROOF: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(3);
/// What is read of a connection: a byte more than the proof.
const MOST_SAID: u64 = 33;
/// How long to rest when no connection can be accepted.
const REST: Duration = Duration::from_millis(20);

/// The data port of this host, for workers of these servers.
pub(in crate::doctor) async fn data_port(
    options: &Options,
    asked: &AskedServers,
    token: Option<Secret>,
) -> DataPortFacts {
    let servers = asked.facts.origin.servers().unwrap_or("unix:");
    let bound = bind(options, token);
    let at = match &bound {
        BindOutcome::To(address) => Some(*address),
        BindOutcome::Taken => bind_address(options).ok(),
        BindOutcome::Refused(_) => None,
    };
    let told = match at {
        Some(at) => told_address(options, at).ok(),
        None => Some(options.data_advertise().unwrap_or_else(|| options.data_bind())),
    };
    let unreachable = told.as_ref().and_then(|told| reach::unreachable(servers, told));
    let refused = told.as_ref().zip(at).and_then(|(told, at)| refused(options, servers, told, at));
    let dialled = match (&bound, &asked.connection) {
        (BindOutcome::To(at), Some((connection, server))) => {
            dialled(options, *at, connection, server).await
        }
        (_, None) => Dialled::NotAsked("no server could be asked to connect to it".to_owned()),
        _ => Dialled::NotAsked("the address could not be bound here to be tried".to_owned()),
    };
    DataPortFacts { bind: options.data_bind(), bound, told, unreachable, refused, dialled }
}

fn bind(options: &Options, token: Option<Secret>) -> BindOutcome {
    let auth = Auth { token, insecure: options.insecure };
    let address = match bind_address(options) {
        Ok(address) => address,
        Err(error) => return BindOutcome::Refused(error.to_string()),
    };
    match DataServer::bind(address, auth) {
        Ok(port) => BindOutcome::To(port.addr()),
        Err(BindError::System { error, .. }) if error.kind() == ErrorKind::AddrInUse => {
            BindOutcome::Taken
        }
        Err(error) => BindOutcome::Refused(error.to_string()),
    }
}

/// Why a reader with the settings of this host would not connect to its data port.
fn refused(options: &Options, servers: &str, told: &str, bound: SocketAddr) -> Option<String> {
    let networks = match Networks::new(options, servers, Some(bound)) {
        Ok(networks) => networks,
        Err(error) => return Some(error.to_string()),
    };
    match resolve(told) {
        Ok(port) => networks.refusal(port.ip().to_canonical()).map(|why| {
            format!("workers with the settings of this host do not connect to {told}, {why}")
        }),
        Err(why) => Some(why),
    }
}

/// Listens where the data port would, and has the server connect.
async fn dialled(
    options: &Options,
    bound: SocketAddr,
    connection: &ServerConnection,
    server: &str,
) -> Dialled {
    let unasked = Dialled::NotAsked;
    let mut nonce = DialNonce::default();
    if let Err(error) = getrandom::fill(&mut nonce) {
        return unasked(format!("no random number could be drawn: {error}"));
    }
    // The port of before, if it was asked for; else any, as it was.
    let wanted = bind_address(options).unwrap_or(bound);
    let listener = match TcpListener::bind(wanted).await {
        Ok(listener) => listener,
        Err(error) => {
            return unasked(format!("{wanted} could not be bound a second time: {error}"));
        }
    };
    let Ok(at) = listener.local_addr() else {
        return unasked("the listener has no address".into());
    };
    let advertised = options.data_advertise();
    let port = advertised.and_then(|told| told.rsplit_once(':')?.1.parse().ok());
    let port = port.unwrap_or(at.port());
    let mut proof = tokio::spawn(await_proof(listener, nonce));
    let reply = tokio::time::timeout(PATIENCE, connection.dial_back(port, nonce)).await;
    // The server's word may be here before what it has sent.
    let reached = matches!(&reply, Ok(Ok(reply)) if reply.reach() == Reach::Reached);
    let patience = if reached { LATE } else { Duration::ZERO };
    let proved = tokio::time::timeout(patience, &mut proof).await.is_ok();
    proof.abort();
    match reply {
        Ok(Ok(reply)) => by(server, at, &reply, proved),
        Ok(Err(refusal)) => unasked(why_unasked(&refusal)),
        Err(_) => unasked(format!("the server did not answer within {PATIENCE:?}")),
    }
}

/// Takes connections until one proves to be the server's.
async fn await_proof(listener: TcpListener, nonce: DialNonce) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if is_proof(stream, &nonce).await {
                    return;
                }
            }
            // Nothing says when there are descriptors again.
            Err(_) => tokio::time::sleep(REST).await,
        }
    }
}

/// Whether a connection brings the proof, and nothing else.
async fn is_proof(stream: TcpStream, nonce: &DialNonce) -> bool {
    let mut said = Vec::new();
    let mut stream = stream.take(MOST_SAID);
    let heard = tokio::time::timeout(PROOF, stream.read_to_end(&mut said)).await;
    matches!(heard, Ok(Ok(_))) && said == proof(nonce)
}

fn by(server: &str, listened: SocketAddr, reply: &DialBackReply, proved: bool) -> Dialled {
    let Ok(seen) = reply.address.parse() else {
        return Dialled::NotAsked(
            "the server does not say which address it has dialled".to_owned(),
        );
    };
    let outcome = match reply.reach() {
        _ if proved => DialOutcome::Proved,
        Reach::Reached => DialOutcome::Elsewhere,
        Reach::TimedOut => DialOutcome::TimedOut,
        Reach::Refused | Reach::Unspecified => DialOutcome::Refused,
    };
    Dialled::By { server: server.to_owned(), seen, listened: listened.ip(), outcome }
}

/// Why the server did not dial.
fn why_unasked(refusal: &Refusal) -> String {
    match refusal.code() {
        Code::Unimplemented => "the server is of a release that does not connect back".to_owned(),
        // The server says which of the two.
        Code::FailedPrecondition => format!(
            "the server does not connect back, since {}: it is on this host, or at the other end of \
             a tunnel",
            refusal.message()
        ),
        _ => format!("the server did not connect: {}", refusal.message()),
    }
}

#[cfg(test)]
mod tests;
