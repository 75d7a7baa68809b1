//! A server's status, without opening a session.

use std::time::Duration;

use weightcast_protocol::CallError;

use super::connection::Connection;
use crate::Error;
use crate::config::Options;
use crate::serve::Status;

/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server knows: models, versions, replicas, shards, who reads from whom.
pub fn status(options: &Options) -> Result<Status, Error> {
    let server = options.configured_server().ok_or_else(|| Error::Config {
        what: "server".to_owned(),
        problem: "none given: pass its address or set WEIGHTCAST_SERVER".to_owned(),
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    let token = options.token()?;
    runtime.block_on(async {
        let connection = Connection::new(&server, token.as_ref())?;
        let late = || {
            let reason = format!("no answer within {PATIENCE:?}");
            Error::Call(CallError::ServerUnreachable { server: server.clone(), reason })
        };
        let answered = tokio::time::timeout(PATIENCE, connection.status()).await;
        answered.unwrap_or_else(|_| Err(late()))
    })
}
