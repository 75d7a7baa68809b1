//! What the runtime has to do for the server.

use crate::ConnectionId;
use crate::message::ServerMessage;

/// One thing that the runtime has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerOutput {
    /// Send on this stream, in order. Dropped if the stream is gone.
    Send {
        /// The stream.
        to: ConnectionId,
        /// What to send.
        message: ServerMessage,
    },
    /// Close this stream after everything sent on it before. The server has forgotten it.
    Disconnect {
        /// The stream.
        connection: ConnectionId,
    },
}
