//! Numbers of drivers.

use serde::{Deserialize, Serialize};

/// Numbers for drivers of one kind. A number has the register's life in its lower half, so no two registers give the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct DriverNumbers {
    life: u32,
    /// How many drivers there were.
    drivers: u32,
    /// What the newest one has drawn.
    key: Option<u64>,
}

impl DriverNumbers {
    /// None was given yet. No other register that its drivers, or those whom they order, may have asked has this `life`.
    pub(super) const fn new(life: u32) -> Self {
        Self { life, drivers: 0, key: None }
    }

    /// A number for a driver that starts and has drawn this key: later than all before, and than what others have `heard`.
    /// `None`: this register has given the number that was heard, so the driver that has it is the successor of the one
    /// that asks.
    pub(super) fn next(&mut self, key: u64, heard: Option<u64>) -> Option<u64> {
        if self.key == Some(key) {
            return Some(self.newest());
        }
        if heard.is_some_and(|heard| self.has_given(heard)) {
            return None;
        }
        let after = heard.map_or(0, |heard| (heard >> 32) as u32).max(self.drivers);
        (self.drivers, self.key) = (after.checked_add(1)?, Some(key));
        Some(self.newest())
    }

    /// The newest driver's number; 0 if there was none.
    pub(super) fn newest(&self) -> u64 {
        if self.drivers == 0 { 0 } else { u64::from(self.drivers) << 32 | u64::from(self.life) }
    }

    /// Whether a driver has this number, or a later one, from this register.
    pub(super) fn has_given(&self, driver: u64) -> bool {
        driver as u32 == self.life && driver <= self.newest()
    }
}
