//! A recording of a server, without opening a session.

use std::path::PathBuf;
use std::time::Duration;

use weightcast_protocol::CallError;

use super::{ServerConnection, status};
use crate::config::Options;
use crate::error::Error;
use crate::recordings::WrittenRecording;

/// How long a server may take to write a recording.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has the acting server write its last minutes, without weights and secrets, into a file on its own host that only its
/// own user can read. Of several servers that do not act the last is asked.
///
/// # Errors
/// None is configured and none runs for the job, none answers, or the file cannot be written there.
pub fn record(options: &Options) -> Result<WrittenRecording, Error> {
    let (server, token) = options.running_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    runtime.block_on(async {
        let connection = ServerConnection::new(&server, token.as_ref())?;
        status::of_list(&connection, &server).await?;
        let reply = tokio::time::timeout(PATIENCE, connection.record()).await;
        let reply = reply.unwrap_or_else(|_| {
            let reason = format!("no recording within {PATIENCE:?}");
            Err(Error::Call(CallError::ServerUnreachable { server, reason }))
        })?;
        Ok(WrittenRecording { path: PathBuf::from(reply.path), events: reply.events })
    })
}
