//! Numbers of orders and of fleet-wide updates.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of an order. A worker that has heard an order obeys no earlier order any more. Ordered by driver first: a
/// register numbers the drivers, so a later driver's orders are later, whatever the earlier driver still sends.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct UpdateAttempt {
    /// The driver's number.
    pub driver: u64,
    /// Which of the driver's machines: they count up.
    pub round: u64,
    /// The engine goes on by itself, since the driver is silent. What that machine of the driver still sends comes too
    /// late; the driver's next machine does not.
    pub by_itself: bool,
    /// Orders of this machine so far.
    pub number: u64,
}

impl UpdateAttempt {
    /// The attempt before the first one of this round.
    pub const fn before(driver: u64, round: u64) -> Self {
        Self { driver, round, by_itself: false, number: 0 }
    }

    /// The next attempt of the same round.
    pub const fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }
}

impl fmt::Display for UpdateAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.by_itself { "self." } else { "" };
        write!(f, "{}.{}.{mark}{}", self.driver, self.round, self.number)
    }
}

/// Name of one fleet-wide update; the register keeps a verdict for each.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FleetTransaction {
    /// The driver that began the update.
    pub driver: u64,
    /// The driver's number of the update.
    pub number: u64,
}
