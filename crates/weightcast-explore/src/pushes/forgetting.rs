//! What is under way and has no effect any more is forgotten: states that differ in nothing else are one state.

use weightcast_protocol::push::{PushDriver, PushInput, PushReport};

use super::parts::{DrivingPush, PushWire, place_of_sender};
use super::world::PushState;

impl PushState {
    /// Forgets words to drivers that have died or whose push is over, words to senders that have died, and what targets said
    /// before they said what a driver has heard.
    pub(super) fn forget_unheard(&mut self) {
        let (drivers, senders) = (&self.drivers, &self.senders);
        // A target that has heard no order yet speaks to nobody.
        let driver = |number: u64| {
            let driver = (number as usize).checked_sub(1).map(|driver| &drivers[driver]);
            driver.filter(|driver| driver.alive && driver.machine.is_some())
        };
        self.wires.retain(|_, wire| match &**wire {
            PushWire::Report { driver: number, report } => {
                driver(*number).is_some_and(|driver| !driver.is_past(report))
            }
            PushWire::Refusal(refused) => driver(refused.push.driver).is_some(),
            PushWire::Grant(grant) => senders[place_of_sender(grant.sender)].alive,
            PushWire::Order(_) | PushWire::Word(_) | PushWire::Write(_) => true,
        });
    }
}

impl DrivingPush {
    /// Whether a word is older than what was heard, and the machine does nothing at it.
    fn is_past(&self, report: &PushReport) -> bool {
        let newest = self.heard.get(&report.target).copied().unwrap_or_default();
        let Some(machine) = self.machine.as_ref().filter(|_| report.sequence <= newest) else {
            return false;
        };
        let mut after = machine.clone();
        after.handle(self.now, PushInput::Reported(report.clone()));
        same(machine, &after)
    }
}

fn same(before: &PushDriver, after: &PushDriver) -> bool {
    format!("{before:?}") == format!("{after:?}")
}
