//! Asks each server of the list, and nobody starts one.

use std::error::Error as _;
use std::fmt::Write;
use std::iter::successors;
use std::time::{Duration, Instant};

use tonic::{Code, Status as Refusal};
use weightcast_transport::Secret;

use crate::client::connection::ServerConnection;
use crate::config::Options;
use crate::doctor::judgement::server::{AskedServer, ServerAnswer, ServerFacts, ServerOrigin};
use crate::error::Error;
use crate::lazy;
use crate::serve::Status;

/// How often a server is asked; the median of the times counts.
const PROBES: usize = 5;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a whole status may take.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);

/// Which servers the job would use; of a server that the job has started, the token too.
pub(in crate::doctor) fn origin(options: &Options) -> (ServerOrigin, Option<Secret>) {
    match (options.configured_server(), options.server.is_some()) {
        (Some(servers), true) => (ServerOrigin::Argument(servers), None),
        (Some(servers), false) => (ServerOrigin::Environment(servers), None),
        (None, _) => {
            of_job(options).unwrap_or_else(|error| (ServerOrigin::Unknown(error.to_string()), None))
        }
    }
}

fn of_job(options: &Options) -> Result<(ServerOrigin, Option<Secret>), Error> {
    let job = options.job()?;
    Ok(match lazy::find(&job)? {
        Some((address, token)) => (ServerOrigin::Job { job, address }, Some(token)),
        None => (ServerOrigin::Nobody { job, others: lazy::served_jobs()? }, None),
    })
}

/// What was learnt of the servers of a list.
pub(in crate::doctor) struct AskedServers {
    pub(in crate::doctor) facts: ServerFacts,
    /// A connection to the server that acts, else to the last one that answers; and its address.
    pub(in crate::doctor) connection: Option<(ServerConnection, String)>,
    /// What that server knows, if it said so.
    pub(in crate::doctor) status: Option<Status>,
}

/// Asks all servers of the list, one after the other.
pub(in crate::doctor) async fn ask(origin: ServerOrigin, token: Option<&Secret>) -> AskedServers {
    let mut asked = AskedServers {
        facts: ServerFacts { origin, servers: Vec::new() },
        connection: None,
        status: None,
    };
    let list = asked.facts.origin.servers().unwrap_or_default().to_owned();
    let addresses = list.split(',').map(str::trim).filter(|address| !address.is_empty());
    for address in addresses {
        let (server, answered) = ask_one(address, token).await;
        if let Some((connection, status)) = answered
            && asked.status.as_ref().is_none_or(|found| found.term == 0)
        {
            asked.connection = Some((connection, address.to_owned()));
            asked.status = status;
        }
        asked.facts.servers.push(server);
    }
    asked
}

/// One server; and, if it answers, a connection to it and what it knows.
async fn ask_one(
    address: &str,
    token: Option<&Secret>,
) -> (AskedServer, Option<(ServerConnection, Option<Status>)>) {
    let of = |answer, version| AskedServer { address: address.to_owned(), answer, version };
    let connection = match ServerConnection::new(address, token) {
        Ok(connection) => connection,
        Err(error) => return (of(ServerAnswer::Other(error.to_string()), None), None),
    };
    let answer = probe(&connection).await;
    if !matches!(answer, ServerAnswer::Yes { .. }) {
        return (of(answer, None), None);
    }
    let status = tokio::time::timeout(STATUS_PATIENCE, connection.status()).await;
    let status = status.ok().and_then(Result::ok);
    let version = status.as_ref().map(|status| status.version.clone());
    (of(answer, version), Some((connection, status)))
}

/// Asks a few times, beyond the first, which connects.
async fn probe(connection: &ServerConnection) -> ServerAnswer {
    let (mut took, mut term) = (Vec::with_capacity(PROBES), None);
    for _ in 0..=PROBES {
        let start = Instant::now();
        term = match tokio::time::timeout(PATIENCE, connection.term()).await {
            Ok(Ok(term)) => term,
            Ok(Err(refusal)) => return refused(&refusal),
            Err(_) => return ServerAnswer::No(format!("no answer within {PATIENCE:?}")),
        };
        took.push(start.elapsed().as_secs_f64());
    }
    let mut took = took.split_off(1);
    took.sort_by(f64::total_cmp);
    ServerAnswer::Yes { seconds: took[took.len() / 2], term }
}

/// What a refusal means.
fn refused(refusal: &Refusal) -> ServerAnswer {
    let mut said = format!("{:?}: {}", refusal.code(), refusal.message());
    if let Some(cause) = successors(refusal.source(), |cause| (*cause).source()).last() {
        let _ = write!(said, " ({cause})");
    }
    match refusal.code() {
        Code::Unauthenticated => ServerAnswer::TokenRefused,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::ResourceExhausted => {
            ServerAnswer::No(said)
        }
        _ => ServerAnswer::Other(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_whether_a_server_is_there() {
        let of = |code| refused(&Refusal::new(code, "why"));
        assert_eq!(of(Code::Unauthenticated), ServerAnswer::TokenRefused);
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted] {
            assert!(
                matches!(of(code), ServerAnswer::No(why) if why.ends_with(": why")),
                "{code:?}"
            );
        }
        for code in [Code::Unimplemented, Code::Internal, Code::Unknown, Code::DataLoss] {
            assert!(matches!(of(code), ServerAnswer::Other(_)), "{code:?}");
        }
    }
}
