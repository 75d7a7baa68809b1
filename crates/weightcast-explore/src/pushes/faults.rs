//! Faults, and what comes after them.

use weightcast_protocol::push::{PushInput, TargetId};

use super::PushBounds;
use super::parts::{FilledTarget, PushWire, PushWrite, TORN, life_of, place_of, target_id};
use super::world::{PushState, version};
use crate::hashed::Hashed;

impl PushState {
    /// A driver dies.
    pub(super) fn end_driver(&mut self, driver: usize) {
        self.drivers[driver].change(|it| it.alive = false);
        self.forget_unheard();
    }

    /// A sender dies. Its writes under way may land.
    pub(super) fn kill_sender(&mut self, sender: usize) {
        self.senders[sender].change(|it| {
            (it.alive, it.stalled, it.struck) = (false, false, true);
            it.jobs.clear();
            it.answers.clear();
        });
        self.forget_unheard();
    }

    /// A sender stands still.
    pub(super) fn stall(&mut self, sender: usize) {
        self.senders[sender].change(|it| (it.stalled, it.struck) = (true, true));
    }

    /// A sender that stood still goes on, and hears how its writes went.
    pub(super) fn go_on(&mut self, sender: usize) {
        let answers = self.senders[sender].change(|it| {
            it.stalled = false;
            std::mem::take(&mut it.answers)
        });
        answers.iter().for_each(|(write, done)| self.settle(write, *done));
    }

    /// A sender's memory becomes the next version.
    pub(super) fn move_on(&mut self, sender: usize, fault: bool) {
        self.senders[sender].change(|it| {
            it.struck |= fault;
            it.machine.withdraw();
            it.memory += 1;
            it.machine.hold(version(it.memory));
        });
        self.obey_sender(sender);
    }

    /// A sender gives a write up that is under way, and that may land later.
    pub(super) fn give_up(&mut self, hash: u64) {
        let Some(write) = self.take_write(hash) else { return };
        self.senders[write.from].change(|it| it.struck = true);
        self.send(PushWire::Write(PushWrite { answered: false, ..write.clone() }));
        self.settle(&write, false);
    }

    /// A write under way brings a wrong bit.
    pub(super) fn flip(&mut self, hash: u64) {
        let Some(write) = self.take_write(hash) else { return };
        self.senders[write.from].change(|it| it.struck = true);
        self.send(PushWire::Write(PushWrite { content: TORN, ..write }));
    }

    fn take_write(&mut self, hash: u64) -> Option<PushWrite> {
        match &*self.wires.remove(&hash)? {
            PushWire::Write(write) => Some(write.clone()),
            _ => None,
        }
    }

    /// A target dies, with its memory.
    pub(super) fn kill_target(&mut self, target: usize) {
        self.targets[target].change(|it| {
            (it.alive, it.serves, it.pausing) = (false, None, false);
            it.compared.clear();
            it.port.clear();
        });
    }

    /// A dead target is started again; nobody takes it for the one that was there.
    pub(super) fn start_target(&mut self, target: usize, bounds: &PushBounds) {
        let life = life_of(self.targets[target].id) + 1;
        self.targets[target] = Hashed::new(FilledTarget::new(target_id(target, life), bounds));
    }

    /// A driver learns that a target is dead that was at this place.
    pub(super) fn tell_of_lost_target(&mut self, driver: usize, place: usize) {
        let it = &self.targets[place];
        let gone = |id: &TargetId| place_of(*id) == place && (*id != it.id || !it.alive);
        if let Some(target) = self.drivers[driver].open().into_iter().find(gone) {
            self.drive(driver, Some(PushInput::TargetLost { target }));
        }
    }

    /// A target gives its memory away.
    pub(super) fn sleep(&mut self, target: usize) {
        self.targets[target].change(|it| {
            (it.asleep, it.struck, it.serves) = (true, true, None);
            it.machine.handle_slept();
        });
        self.obey_target(target);
        self.check_closed(target, "gives its memory away");
        self.targets[target].change(|it| it.memory.fill(TORN));
    }

    /// A target has memory again.
    pub(super) fn wake(&mut self, target: usize) {
        self.targets[target].change(|it| {
            it.asleep = false;
            it.machine.handle_woken();
        });
        self.obey_target(target);
    }

    /// A target does not want the version any more.
    pub(super) fn leave(&mut self, driver: usize, target: usize) {
        self.targets[target].change(|it| it.left = true);
        let target = self.targets[target].id;
        self.drive(driver, Some(PushInput::Leaves { target }));
    }
}
