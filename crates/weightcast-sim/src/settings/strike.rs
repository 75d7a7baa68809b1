//! One fault: what happens, when, and to whom.

use weightcast_protocol::Time;

use crate::settings::fault_kinds::FaultKind;

/// A fault, as it is drawn or written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Strike {
    /// When it happens.
    pub at: Time,
    /// What happens.
    pub kind: FaultKind,
    /// To which process, or server.
    pub whom: usize,
    /// When it is over, if it lasts.
    pub until: Time,
}
