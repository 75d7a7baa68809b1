//! A step is taken.

use stateright::{Model, Property};
use weightcast_protocol::push::PushInput;

use super::PushBounds;
use super::invariants::properties;
use super::parts::PushWire;
use super::steps::PushStep;
use super::world::PushState;
use crate::invariants::Broken;

impl PushBounds {
    fn take(&self, state: &PushState, step: PushStep) -> PushState {
        let mut next = state.clone();
        next.seen.clear();
        next.spend(step);
        next.take(self, step);
        next.check_served();
        let other = |broken: &Broken| !self.looks_at(broken.invariant);
        next.broken = next.broken.filter(|broken| !other(broken));
        next
    }
}

impl PushState {
    /// Counts a fault.
    fn spend(&mut self, step: PushStep) {
        let newest_lives = self.drivers.last().is_some_and(|newest| newest.alive);
        let spent = &mut self.spent;
        let count = match step {
            PushStep::Repeat(_) => &mut spent.repeats,
            PushStep::Lose(_) => &mut spent.losses,
            PushStep::GiveUp(_) => &mut spent.late_writes,
            PushStep::Flip(_) => &mut spent.flips,
            PushStep::DriverTimer(_, true) | PushStep::TargetTimer(_, true) => &mut spent.timeouts,
            PushStep::MoveOn(_, true) => &mut spent.moves_on,
            PushStep::DriverDies(_) => &mut spent.driver_deaths,
            PushStep::DriverComes if newest_lives => &mut spent.splits,
            PushStep::SenderDies(_) => &mut spent.sender_deaths,
            PushStep::Stall(_) => &mut spent.stalls,
            PushStep::TargetDies(_) => &mut spent.target_deaths,
            PushStep::Sleep(_) => &mut spent.sleeps,
            PushStep::Leave(..) => &mut spent.leaves,
            PushStep::Cancel(_) => &mut spent.cancels,
            _ => return,
        };
        *count += 1;
    }

    fn take(&mut self, bounds: &PushBounds, step: PushStep) {
        match step {
            PushStep::Arrive(hash) => {
                let wire = self.wires.remove(&hash).expect("it is on its way");
                self.arrive((*wire).clone());
            }
            PushStep::Repeat(hash) => self.arrive((*self.wires[&hash]).clone()),
            PushStep::Lose(hash) => drop(self.wires.remove(&hash)),
            PushStep::GiveUp(hash) => self.give_up(hash),
            PushStep::Flip(hash) => self.flip(hash),
            PushStep::Pause(target) => self.pause(target),
            PushStep::Compare(target, generation) => self.tell_of_comparison(target, generation),
            PushStep::Write(sender, job) => self.write(sender, job),
            PushStep::DriverTimer(driver, _) => self.time_out_driver(driver),
            PushStep::TargetTimer(target, _) => self.time_out_target(target),
            PushStep::Join(driver, target) => self.join(driver, target),
            PushStep::LearnTarget(driver, target) => self.tell_of_lost_target(driver, target),
            PushStep::LearnSender(driver, sender) => self.tell_of_death(driver, sender),
            PushStep::LearnHolder(driver, sender) => self.tell_of_holder(driver, sender),
            PushStep::MoveOn(sender, fault) => self.move_on(sender, fault),
            PushStep::DriverDies(driver) => self.end_driver(driver),
            PushStep::DriverComes => {
                let newest = self.drivers.len() - 1;
                self.drivers[newest].change(|it| it.followed = true);
                self.start_driver(bounds);
            }
            PushStep::SenderDies(sender) => self.kill_sender(sender),
            PushStep::Stall(sender) => self.stall(sender),
            PushStep::GoOn(sender) => self.go_on(sender),
            PushStep::TargetDies(target) => self.kill_target(target),
            PushStep::TargetStarts(target) => self.start_target(target, bounds),
            PushStep::Sleep(target) => self.sleep(target),
            PushStep::Wake(target) => self.wake(target),
            PushStep::Leave(driver, target) => self.leave(driver, target),
            PushStep::Cancel(driver) => self.drive(driver, Some(PushInput::Cancel)),
        }
    }

    pub(super) fn arrive(&mut self, wire: PushWire) {
        match wire {
            PushWire::Order(order) => self.hear_order(order),
            PushWire::Report { driver, report } => self.hear_report(driver as usize - 1, report),
            PushWire::Grant(grant) => self.hear_grant(grant),
            PushWire::Word(word) => self.hear_word(&word),
            PushWire::Refusal(refused) => self.hear_refusal(refused),
            PushWire::Write(write) => self.land(write),
        }
    }
}

impl Model for PushBounds {
    type State = PushState;
    type Action = PushStep;

    fn init_states(&self) -> Vec<PushState> {
        vec![PushState::new(self)]
    }

    fn actions(&self, state: &PushState, actions: &mut Vec<PushStep>) {
        actions.extend(self.steps(state));
    }

    fn next_state(&self, state: &PushState, step: PushStep) -> Option<PushState> {
        Some(self.take(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}
