//! Pushes end: what they say is compared with what is.

use weightcast_protocol::push::{PushResult, TargetEnd, TargetId};

use super::parts::place_of;
use super::world::PushState;

impl PushState {
    pub(super) fn check_result(&mut self, driver: usize, result: &PushResult) {
        for (target, outcome) in &result.targets {
            let end = outcome.end;
            self.sees(shown_by(end));
            if end == TargetEnd::Ready && outcome.moved > 0 {
                self.sees("a push ended ready after a parcel had moved");
            }
            let it = &self.targets[place_of(*target)];
            if end == TargetEnd::Ready && it.id == *target && !it.ready.contains(&result.push) {
                self.breaks("P5", || format!("a push says that {target} is ready; it never was"));
            }
            if !self.is_excused(driver, *target, result.version.number, end) {
                self.breaks("P6", || {
                    format!("a push ends {} at {target} without a reason", end.name())
                });
            }
        }
    }

    /// Whether a push may end so at a target, as the world has gone.
    pub(super) fn is_excused(
        &self,
        driver: usize,
        target: TargetId,
        version: u64,
        end: TargetEnd,
    ) -> bool {
        let (it, spent) = (&self.targets[place_of(target)], self.spent);
        let gone = it.id != target || !it.alive;
        let mut holders = self.drivers[driver].holders.iter().copied();
        match end {
            TargetEnd::Ready => true,
            TargetEnd::Left => gone || it.left,
            TargetEnd::Lost => gone,
            TargetEnd::Asleep => gone || it.struck,
            TargetEnd::Superseded => driver + 1 < self.drivers.len(),
            TargetEnd::NoHolder => !holders.any(|sender| self.holds(sender, version)),
            TargetEnd::Differs => spent.flips > 1,
            TargetEnd::Cancelled => spent.cancels > 0,
            // One lost word is made good by a reminder.
            TargetEnd::Silent | TargetEnd::Deadline | TargetEnd::GaveUp => {
                let unstruck = |sender| self.holds(sender, version) && !self.senders[sender].struck;
                let late = spent.losses > 1 || spent.timeouts > 0;
                late || gone || it.struck || !holders.any(unstruck)
            }
        }
    }
}

/// What an end shows.
fn shown_by(end: TargetEnd) -> &'static str {
    match end {
        TargetEnd::Ready => "a push ended ready",
        TargetEnd::NoHolder => "a push ended, since nobody held a parcel",
        TargetEnd::Superseded => "a push ended, since its target obeyed a later one",
        TargetEnd::Lost => "a push ended, since its target died",
        TargetEnd::Asleep => "a push ended, since its target slept",
        TargetEnd::Left => "a push ended, since its target left",
        TargetEnd::GaveUp => "a push ended, since its target heard no driver",
        TargetEnd::Differs => "a push ended, since its content differed",
        TargetEnd::Silent | TargetEnd::Deadline => "a push ended in time",
        TargetEnd::Cancelled => "a push was cancelled",
    }
}
