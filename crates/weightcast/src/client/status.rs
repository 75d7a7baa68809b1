//! A server's status, without opening a session.

use super::connection::Connection;
use crate::Error;
use crate::config::Options;
use crate::serve::Status;

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
        connection.status().await
    })
}
