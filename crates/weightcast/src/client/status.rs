//! A server's status, without opening a session.

use std::time::Duration;

use weightcast_protocol::CallError;

use super::connection::Connection;
use crate::Error;
use crate::config::Options;
use crate::serve::Status;

/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the acting server knows: models, versions, replicas, shards, who reads from whom. Of several
/// servers each is asked in turn; the last answer is returned if none acts.
///
/// # Errors
/// None is configured and none runs for the job, or none answers within 10 s; then the last one's
/// error.
pub fn status(options: &Options) -> Result<Status, Error> {
    let (server, token) = options.running_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    runtime.block_on(async {
        let connection = Connection::new(&server, token.as_ref())?;
        of_list(&connection, &server).await
    })
}

/// The status of the server that acts, which the connection then leads to; that of the last one if
/// none acts.
pub(crate) async fn of_list(connection: &Connection, servers: &str) -> Result<Status, Error> {
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
