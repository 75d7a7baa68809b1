//! What a program decides.

use weightcast_protocol::Span;
use weightcast_protocol::message::Call;

/// The next thing that a group does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A call, with this deadline.
    Call(Call, Span),
    /// Writes the memory anew and publishes it under this number.
    Write(u64),
    /// Closes, and starts anew.
    Close,
    /// Nothing for now; decides again.
    Idle,
}
