//! What the pretender has got so far. The pretender is a client with the job's token that makes
//! pasts up.

use weightcast_protocol::Ticket;
use weightcast_protocol::message::Open;

/// Where the pretender's data port is, in the books of a server that lets it in.
pub(crate) const ADDRESS: &str = "pretender";

/// The state of the lying client.
#[derive(Debug, Default)]
pub(crate) struct Pretender {
    /// Streams that the pretender has opened.
    pub(crate) streams: u64,
    /// The session that the pretender opened honestly, and its ticket.
    pub(crate) own: Option<(Open, Ticket)>,
    /// The session that the pretender asks for now.
    pub(crate) asks: Option<Open>,
}
