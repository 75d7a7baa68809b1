//! One fault: what happens, when, and to whom.

use weightcast_protocol::Time;

use crate::settings::fault_kinds::FaultKind;

/// A fault, as it is drawn or written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Strike {
    /// When the fault strikes.
    pub at: Time,
    /// The kind of fault.
    pub kind: FaultKind,
    /// Index of the process or server that is struck, as the kind says.
    pub whom: usize,
    /// When the fault is over; ignored by kinds that last no time.
    pub until: Time,
}
