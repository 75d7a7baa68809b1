//! Names of a push and of those who take part.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A worker whose memory is filled. A process that starts anew has another name, and so has memory that is declared anew.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TargetId(pub u64);

/// A worker that has bytes to give. A process that starts anew has another name.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SenderId(pub u64);

/// The number of a push, ordered by driver first. A register numbers drivers, so a later driver's pushes are later, whatever
/// the earlier driver still sends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct PushNumber {
    /// The driver's number.
    pub driver: u64,
    /// The driver's count of pushes.
    pub number: u64,
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "target {}", self.0)
    }
}

impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sender {}", self.0)
    }
}

impl fmt::Display for PushNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.driver, self.number)
    }
}
