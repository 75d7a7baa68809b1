//! What a program can decide to do.

use weightcast_protocol::Span;
use weightcast_protocol::message::Call;

/// The next action of a group, the same for all its shards.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Makes this call, with this deadline.
    Call(Call, Span),
    /// Writes the memory anew and publishes it under this number.
    Write(u64),
    /// Closes, and starts anew.
    Close,
    /// Does nothing for now, and decides again later.
    Idle,
}
