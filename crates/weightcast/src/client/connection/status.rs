//! A server's status, without opening a session.

use std::time::Duration;

use weightcast_protocol::CallError;

use super::ServerConnection;
use crate::config::Options;
use crate::error::Error;
use crate::serve::Status;

/// How long one server may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What the acting server knows: models, versions, replicas, shards, and which replica reads from
/// which. Several servers are asked in turn until one acts; if none acts, the last answer is
/// returned.
///
/// # Errors
/// No server is configured and none runs for the job; or none answers, each within 10 s: then the
/// last server's error.
pub fn status(options: &Options) -> Result<Status, Error> {
    let (server, token) = options.running_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    runtime.block_on(async {
        let connection = ServerConnection::new(&server, token.as_ref())?;
        of_list(&connection, &server).await
    })
}

/// The status of the acting server, to which the connection then leads; if none acts, the last
/// status that came.
pub(crate) async fn of_list(connection: &ServerConnection, servers: &str) -> Result<Status, Error> {
    let mut passive = None;
    let mut failure = None;
    for (index, address) in servers.split(',').enumerate() {
        connection.turn_to(index);
        match tokio::time::timeout(PATIENCE, connection.status()).await {
            Ok(Ok(status)) if status.term > 0 => return Ok(status),
            Ok(Ok(status)) => passive = Some(status),
            Ok(Err(error)) => failure = Some(error),
            Err(_) => {
                let reason = format!("no answer within {PATIENCE:?}");
                let server = address.trim().to_owned();
                failure = Some(Error::Call(CallError::ServerUnreachable { server, reason }));
            }
        }
    }
    passive.ok_or_else(|| failure.expect("a list has a server"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use prost::Message;
    use tonic::Status as Refusal;

    use super::super::tests::{FakePort, Said, to, whole};
    use super::*;

    /// A server in this term; 0: it is passive.
    fn server(term: u64, sessions: u64) -> FakePort {
        let status = Status { term, sessions, ..Status::default() };
        FakePort::saying([whole(&status.encode_to_vec())])
    }

    fn down(why: &str) -> FakePort {
        FakePort::saying([Said::Refused(Refusal::unavailable(why))])
    }

    /// Asks these servers: how many sessions the returned status has, and how often each was asked.
    async fn told<const N: usize>(servers: [FakePort; N]) -> (Result<u64, Error>, [usize; N]) {
        let asked = servers.each_ref().map(|port| Arc::clone(&port.asked));
        let list = vec!["server"; N].join(", ");
        let status = of_list(&to(servers), &list).await;
        (status.map(|status| status.sessions), asked.map(|asked| asked.load(Ordering::Relaxed)))
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_that_acts_tells_wherever_it_is_in_the_list() {
        for servers in [
            [server(7, 3), server(0, 1), server(0, 2)],
            [server(0, 1), server(7, 3), server(0, 2)],
            [down("one"), FakePort::default(), server(7, 3)],
        ] {
            assert_eq!(told(servers).await.0.unwrap(), 3);
        }
        assert_eq!(told([server(7, 3), server(0, 1)]).await.1, [1, 0], "and nobody else is asked");
    }

    #[tokio::test(start_paused = true)]
    async fn where_none_acts_the_last_one_that_answers_tells() {
        for servers in [[server(0, 1), server(0, 2)], [server(0, 2), down("two")]] {
            let (sessions, asked) = told(servers).await;
            assert_eq!((sessions.unwrap(), asked), (2, [1, 1]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_none_answers_the_last_error_is_told() {
        for (servers, said) in [
            ([down("first"), down("second")], "second"),
            ([FakePort::default(), down("second")], "second"),
            ([down("first"), FakePort::default()], "no answer"),
        ] {
            let error = told(servers).await.0.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_acts_from_its_first_term_on() {
        for term in [1, 2, u64::MAX] {
            let (sessions, asked) = told([server(0, 1), server(term, 3), server(7, 4)]).await;
            assert_eq!((sessions.unwrap(), asked), (3, [1, 1, 0]), "{term}");
        }
    }
}
