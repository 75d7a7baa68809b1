//! What the server says to its runtime.

use crate::ConnectionId;
use crate::message::ServerMessage;

/// What the runtime owes the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerOutput {
    /// Send on this stream. In order; dropped if the stream is gone.
    Send {
        /// The stream.
        to: ConnectionId,
        /// What to send.
        message: ServerMessage,
    },
    /// Close this stream, after what was sent on it before; the server has forgotten it.
    Disconnect {
        /// The stream.
        connection: ConnectionId,
    },
}
