//! What the client that makes pasts up has come by.

use weightcast_protocol::Ticket;
use weightcast_protocol::message::Open;

/// Where the pretender's data port is, in the books of a server that lets it in.
pub(crate) const ADDRESS: &str = "pretender";

/// What it has come by.
#[derive(Debug, Default)]
pub(crate) struct Pretender {
    pub(crate) streams: u64,
    /// What it opened honestly, and what it was given for it.
    pub(crate) own: Option<(Open, Ticket)>,
    /// What it asks for now.
    pub(crate) asks: Option<Open>,
}
