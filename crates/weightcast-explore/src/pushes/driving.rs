//! What drivers do: routes change, orders and grants go out.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::push::{
    PushConfig, PushDriver, PushInput, PushNumber, PushOutput, PushParcel, PushReport, SendRefusal,
    SendRefused, SenderId, TargetId, TargetNeeds,
};
use weightcast_protocol::{Span, Time};

use super::PushBounds;
use super::parts::{DrivingPush, PushWire, sender_id};
use super::world::{PushState, version};
use crate::hashed::Hashed;

/// How long a target may take: reminders come every 2 s, so a sender that brings nothing for 4 s can be found out, and one
/// lost word be made good.
pub(super) const DEADLINE: Span = Span::from_secs(8);

/// Routes of each target at which a push is not over.
type RoutesNow = BTreeMap<TargetId, BTreeMap<u32, SenderId>>;

impl PushState {
    /// A driver starts to push its version, which some senders hold.
    pub(super) fn start_driver(&mut self, bounds: &PushBounds) {
        let driver = self.drivers.len();
        let holds = |place: &usize| self.holds(*place, bounds.version_of(driver));
        let holders = (0..self.senders.len()).filter(holds).collect();
        let state = DrivingPush {
            machine: Some(PushDriver::new(config(driver, bounds))),
            now: Time(0),
            alive: true,
            followed: false,
            heard: BTreeMap::new(),
            joined: BTreeMap::new(),
            holders,
            buried: BTreeSet::new(),
        };
        self.drivers.push(Hashed::new(state));
    }

    /// Whether a sender lives and has this version in its memory.
    pub(super) fn holds(&self, sender: usize, number: u64) -> bool {
        let it = &self.senders[sender];
        it.alive && it.memory == number
    }

    /// A target joins, with the holders that the driver knows.
    pub(super) fn join(&mut self, driver: usize, target: usize) {
        let id = self.targets[target].id;
        let parcels = self.targets[target].memory.len();
        let holders: BTreeSet<SenderId> =
            self.drivers[driver].holders.iter().map(|place| sender_id(*place)).collect();
        let parcel = |_| PushParcel { bytes: 1, holders: holders.clone() };
        let needs = TargetNeeds { target: id, parcels: (0..parcels).map(parcel).collect() };
        self.drivers[driver].change(|it| it.joined.insert(id, it.now));
        self.drive(driver, Some(PushInput::Joins(vec![needs])));
    }

    /// A driver learns that a sender has come to hold its version.
    pub(super) fn tell_of_holder(&mut self, driver: usize, sender: usize) {
        self.drivers[driver].change(|it| it.holders.insert(sender));
        let all: BTreeSet<u32> = (0..self.targets[0].memory.len() as u32).collect();
        let open = self.drivers[driver].open().into_iter();
        let parcels = open.map(|target| (target, all.clone())).collect();
        self.drive(driver, Some(PushInput::SenderHolds { sender: sender_id(sender), parcels }));
    }

    /// A driver learns that a sender is dead.
    pub(super) fn tell_of_death(&mut self, driver: usize, sender: usize) {
        self.drivers[driver].change(|it| it.buried.insert(sender));
        self.drive(driver, Some(PushInput::SenderLost { sender: sender_id(sender) }));
    }

    /// A target's word reaches its driver.
    pub(super) fn hear_report(&mut self, driver: usize, report: PushReport) {
        self.drivers[driver].change(|it| {
            let newest = it.heard.entry(report.target).or_default();
            *newest = report.sequence.max(*newest);
        });
        self.drive(driver, Some(PushInput::Reported(report)));
    }

    /// A sender's refusal reaches its driver.
    pub(super) fn hear_refusal(&mut self, refused: SendRefused) {
        let driver = refused.push.driver as usize - 1;
        if refused.refusal == SendRefusal::NotHeld {
            self.sees("a sender no longer held the version");
        }
        self.drive(driver, Some(PushInput::Refused(refused)));
    }

    /// A driver's next timer goes off.
    pub(super) fn time_out_driver(&mut self, driver: usize) {
        self.drivers[driver].change(|it| {
            let machine = it.machine.as_ref().expect("its push is not over");
            it.now = machine.next_timeout().expect("it has a timer");
        });
        self.drive(driver, None);
        let it = &self.drivers[driver];
        let late = |target: &TargetId| it.joined[target] + DEADLINE <= it.now;
        if let Some(target) = it.open().into_iter().find(late) {
            self.breaks("P5", || format!("the push is not over at {target} after its deadline"));
        }
    }

    /// Gives a driver an input, or none if its time has come.
    pub(super) fn drive(&mut self, driver: usize, input: Option<PushInput>) {
        let before = self.drivers[driver].machine.as_ref().map(routes_now).unwrap_or_default();
        let cause = input.clone();
        self.drivers[driver].change(|it| match (&mut it.machine, input) {
            (None, _) => {}
            (Some(machine), Some(input)) => machine.handle(it.now, input),
            (Some(machine), None) => machine.handle_timeout(it.now),
        });
        let Some(machine) = &self.drivers[driver].machine else { return };
        let (after, valid) = (routes_now(machine), machine.validate());
        self.validated(valid);
        for (target, routes) in before {
            let Some(new) = after.get(&target) else { continue };
            let moved = routes.into_iter().filter(|(parcel, sender)| new[parcel] != *sender);
            let moved: Vec<(u32, SenderId)> = moved.collect();
            if !moved.is_empty() {
                self.sees("a parcel moved to another sender");
                self.check_moved(cause.as_ref(), target, &moved);
            }
        }
        self.obey_driver(driver);
    }

    fn obey_driver(&mut self, driver: usize) {
        loop {
            let output = self.drivers[driver].change(|it| it.machine.as_mut()?.poll_output());
            match output {
                None => return self.forget_unheard(),
                Some(PushOutput::Order(order)) => self.send(PushWire::Order(order)),
                Some(PushOutput::Send(grant)) => self.send(PushWire::Grant(grant)),
                Some(PushOutput::Ended(result)) => {
                    self.check_result(driver, &result);
                    self.drivers[driver].change(|it| it.machine = None);
                }
            }
        }
    }
}

fn routes_now(machine: &PushDriver) -> RoutesNow {
    let routes = |target| Some((target, machine.routes(target)?.clone()));
    machine.open().filter_map(routes).collect()
}

fn config(driver: usize, bounds: &PushBounds) -> PushConfig {
    PushConfig {
        push: PushNumber { driver: driver as u64 + 1, number: 1 },
        version: version(bounds.version_of(driver)),
        deadline: DEADLINE,
        silence: Span::from_secs(5),
        patience: Span::from_secs(4),
        lease: Span::from_secs(4),
        ask_every: Span::from_secs(2),
        moves: 2,
        safeguards: bounds.safeguards,
    }
}
