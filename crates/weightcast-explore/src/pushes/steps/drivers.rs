//! What can happen next to drivers: what they learn, who follows them, and whose time has come.

use weightcast_protocol::push::PushDriver;

use super::{PossibleSteps, PushStep};
use crate::pushes::PushBounds;
use crate::pushes::parts::place_of;
use crate::pushes::world::PushState;

impl PushBounds {
    /// Senders come to hold what the newest driver pushes, or its successor will.
    pub(super) fn moves_on(&self, state: &PushState, sender: usize, steps: &mut PossibleSteps) {
        let (spent, most) = (state.spent, self.faults);
        let dead = state.drivers.last().is_some_and(|newest| !newest.alive);
        let drivers = state.drivers.len();
        let newest = self.version_of(drivers - 1);
        let next = self.version_of(drivers);
        let upcoming = if dead || spent.splits < most.splits { next } else { newest };
        let memory = state.senders[sender].memory;
        let needed = memory < newest || (dead && memory < upcoming);
        steps.sure(needed, PushStep::MoveOn(sender, false));
        steps.fault(!needed && memory < upcoming, PushStep::MoveOn(sender, false));
        let early = memory == upcoming && spent.moves_on < most.moves_on;
        steps.fault(early, PushStep::MoveOn(sender, true));
    }

    pub(super) fn at_driver(&self, state: &PushState, driver: usize, steps: &mut PossibleSteps) {
        let (spent, most) = (state.spent, self.faults);
        let it = &state.drivers[driver];
        if !it.alive || it.machine.is_none() {
            return;
        }
        let open = it.open();
        let dies = !it.followed && spent.driver_deaths < most.driver_deaths;
        steps.fault(dies, PushStep::DriverDies(driver));
        steps.fault(spent.cancels < most.cancels, PushStep::Cancel(driver));
        for (target, at) in state.targets.iter().enumerate() {
            let there = at.alive && !at.asleep && !at.left;
            steps.sure(there && !it.joined.contains_key(&at.id), PushStep::Join(driver, target));
            let leaves = open.contains(&at.id) && there && spent.leaves < most.leaves;
            steps.fault(leaves, PushStep::Leave(driver, target));
            let gone = open.iter().any(|id| place_of(*id) == target && (*id != at.id || !at.alive));
            steps.sure(gone, PushStep::LearnTarget(driver, target));
        }
        for (sender, at) in state.senders.iter().enumerate() {
            let known = it.holders.contains(&sender);
            let dead = known && !at.alive && !it.buried.contains(&sender);
            steps.sure(dead, PushStep::LearnSender(driver, sender));
            let holds = state.holds(sender, self.version_of(driver));
            steps.sure(holds && !known, PushStep::LearnHolder(driver, sender));
        }
    }

    pub(super) fn of_successors(&self, state: &PushState, steps: &mut PossibleSteps) {
        let next = self.version_of(state.drivers.len());
        let newest = state.drivers.last().expect("there is a first one");
        let held = (0..state.senders.len()).any(|sender| state.holds(sender, next));
        steps.sure(held && !newest.alive, PushStep::DriverComes);
        let splits = newest.alive && state.spent.splits < self.faults.splits;
        steps.fault(held && splits, PushStep::DriverComes);
    }

    pub(super) fn timers(&self, state: &PushState, early: bool, steps: &mut PossibleSteps) {
        for (driver, it) in state.drivers.iter().enumerate().filter(|(_, it)| it.alive) {
            let due = it.machine.as_ref().and_then(PushDriver::next_timeout);
            steps.sure(due.is_some(), PushStep::DriverTimer(driver, early));
        }
        for (target, it) in state.targets.iter().enumerate().filter(|(_, it)| it.alive) {
            // While a driver speaks to the target, its words come before the lease is over.
            let due = it.machine.next_timeout().is_some() && (early || state.is_deserted(target));
            steps.sure(due, PushStep::TargetTimer(target, early));
        }
    }
}

impl PushState {
    /// Whether the driver that a target has heard has died, or is done there.
    fn is_deserted(&self, target: usize) -> bool {
        let it = &self.targets[target];
        let heard = (it.heard.0.driver as usize).checked_sub(1);
        let driver = heard.map(|driver| &self.drivers[driver]).filter(|driver| driver.alive);
        driver.is_none_or(|driver| !driver.open().contains(&it.id))
    }
}
