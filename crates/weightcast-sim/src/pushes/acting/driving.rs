//! What drivers do: push the newest version to every target that the platform lists, one push after the other.

use weightcast_protocol::push::{
    PushConfig, PushDriver, PushInput, PushNumber, PushReport, SendRefusal, SendRefused,
    TargetNeeds,
};

use crate::pushes::coverage::PushPoint;
use crate::pushes::parts::driver::PushingDriver;
use crate::pushes::parts::queue::PushEvent;
use crate::pushes::parts::sender::SimSender;
use crate::pushes::world::{PushWorld, TICK, version};

impl PushWorld {
    /// A register numbers drivers, from one on.
    pub(in crate::pushes) fn start_driver(&mut self) {
        self.drivers.push(PushingDriver::new());
        let driver = self.drivers.len();
        self.tell(|| format!("driver {driver} starts"));
        self.plan_in(TICK, PushEvent::DriverTick(driver - 1));
    }

    pub(in crate::pushes) fn end_driver(&mut self, driver: usize) {
        self.drivers[driver].alive = false;
    }

    pub(in crate::pushes) fn tick_driver(&mut self, driver: usize) {
        let now = self.now;
        let it = &self.drivers[driver];
        if !it.alive {
            return;
        }
        if it.acts(now) {
            if it.machine.is_none() && it.rests_until <= now {
                self.begin_push(driver);
            }
            self.look_at_platform(driver);
            let machine = self.drivers[driver].machine.as_ref();
            if machine.and_then(PushDriver::next_timeout).is_some_and(|due| due <= now) {
                self.drive(driver, None);
            }
        }
        self.plan_in(TICK, PushEvent::DriverTick(driver));
    }

    /// The next push, if a target is listed that does not hold the newest version.
    fn begin_push(&mut self, driver: usize) {
        let newest = self.published;
        let it = &self.drivers[driver];
        let lacks = |place: &usize| {
            let target = &self.targets[*place];
            target.is_listed(self.now) && it.ready.get(&target.id) != Some(&newest)
        };
        if !(0..self.targets.len()).any(|place| lacks(&place)) {
            return;
        }
        let number = it.pushes + 1;
        let push = PushNumber { driver: driver as u64 + 1, number };
        let options = &self.options;
        let config = PushConfig {
            push,
            version: version(newest),
            deadline: options.deadline,
            silence: options.silence,
            patience: options.patience,
            lease: options.lease,
            ask_every: options.ask_every,
            moves: options.moves,
            safeguards: options.safeguards,
        };
        self.tell(|| format!("driver {}: push {push} of {}", driver + 1, version(newest)));
        let it = &mut self.drivers[driver];
        it.pushes = number;
        it.machine = Some(PushDriver::new(config));
        it.joined.clear();
        it.senders.clear();
    }

    /// What the platform lists, and lists no more.
    fn look_at_platform(&mut self, driver: usize) {
        self.look_for_senders(driver);
        self.let_targets_join(driver);
        let Some(machine) = &self.drivers[driver].machine else { return };
        let open: Vec<_> = machine.open().collect();
        for target in open {
            let Some(place) = self.place_of(target) else { continue };
            let (now, it) = (self.now, &self.targets[place]);
            if it.id == target && it.is_listed(now) {
                continue;
            }
            let left = it.id == target && it.left;
            if left {
                self.reach(PushPoint::LeftRunning);
            }
            let gone = PushInput::TargetLost { target };
            let input = if left { PushInput::Leaves { target } } else { gone };
            self.drive(driver, Some(input));
        }
    }

    /// Targets that the platform lists, and that do not hold the version.
    fn let_targets_join(&mut self, driver: usize) {
        let it = &self.drivers[driver];
        let Some(machine) = &it.machine else { return };
        let wanted = machine.config().version.number;
        let joins = |place: &usize| {
            let target = &self.targets[*place];
            let lacks = it.ready.get(&target.id) != Some(&wanted);
            let new = !it.joined.contains_key(&target.id) && lacks;
            new && target.is_listed(self.now) && !target.asleep
        };
        let needs = |place: usize| TargetNeeds {
            target: self.targets[place].id,
            parcels: self.parcels_of(place),
        };
        let needs: Vec<_> = (0..self.targets.len()).filter(joins).map(needs).collect();
        if needs.is_empty() {
            return;
        }
        if machine.open().next().is_some() {
            self.reach(PushPoint::JoinedRunning);
        }
        let it = &mut self.drivers[driver];
        it.joined.extend(needs.iter().map(|needs| (needs.target, self.now)));
        self.drive(driver, Some(PushInput::Joins(needs)));
    }

    /// Senders that are gone, and such that have come.
    fn look_for_senders(&mut self, driver: usize) {
        let Some(machine) = &self.drivers[driver].machine else { return };
        if machine.open().next().is_none() {
            return;
        }
        let open: Vec<_> = machine.open().collect();
        let known = self.drivers[driver].senders.clone();
        let now = self.now;
        let wanted = machine.config().version;
        let listed = |it: &&SimSender| it.is_listed(now) && it.machine.holds() == Some(wanted);
        let lost = known.iter().copied().filter(|id| {
            let place = self.place_of_sender(*id);
            place.is_none_or(|at| self.senders[at].id != *id || !self.senders[at].is_listed(now))
        });
        let lost: Vec<_> = lost.collect();
        let new: Vec<_> = self.senders.iter().filter(listed).map(|it| it.id).collect();
        for sender in lost {
            self.drivers[driver].senders.remove(&sender);
            self.drive(driver, Some(PushInput::SenderLost { sender }));
        }
        for sender in new.into_iter().filter(|id| !known.contains(id)) {
            let Some(place) = self.place_of_sender(sender) else { continue };
            let held = open.iter().filter_map(|target| {
                let at = self.place_of(*target)?;
                let parcels = (0..).zip(&self.layout[at]);
                let held = parcels.filter(|(_, parcel)| parcel.holders.contains(&place));
                Some((*target, held.map(|(number, _)| number).collect()))
            });
            let parcels = held.collect();
            self.drivers[driver].senders.insert(sender);
            self.reach(PushPoint::HolderJoined);
            self.drive(driver, Some(PushInput::SenderHolds { sender, parcels }));
        }
    }

    pub(in crate::pushes) fn hear_report(&mut self, driver: u64, report: PushReport) {
        self.hear_at(driver, PushEvent::Report { driver, report: report.clone() }, || {
            PushInput::Reported(report)
        });
    }

    /// A sender that does not hold the version is a holder again once the platform lists it as one.
    pub(in crate::pushes) fn hear_refusal(&mut self, driver: u64, refused: SendRefused) {
        let it = (driver as usize).checked_sub(1).and_then(|at| self.drivers.get_mut(at));
        if let Some(it) = it.filter(|_| refused.refusal == SendRefusal::NotHeld) {
            it.senders.remove(&refused.sender);
            it.denied.insert(refused.sender, self.now);
        }
        self.hear_at(driver, PushEvent::Refusal { driver, refused }, || {
            PushInput::Refused(refused)
        });
    }

    /// A word reaches a driver, or waits until the driver goes on.
    fn hear_at(&mut self, number: u64, again: PushEvent, input: impl FnOnce() -> PushInput) {
        let Some(driver) = (number as usize).checked_sub(1) else { return };
        let Some(it) = self.drivers.get(driver).filter(|it| it.alive) else { return };
        if it.suspended_until > self.now {
            let later = it.suspended_until - self.now;
            self.plan_in(later, again);
        } else if it.machine.is_some() {
            self.drive(driver, Some(input()));
        }
    }
}
