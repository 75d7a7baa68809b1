//! A driver's machine takes something in: routes change, orders and grants go out.

use std::collections::BTreeMap;

use weightcast_protocol::push::{
    PushDriver, PushInput, PushOutput, PushParcel, SendRefusal, SenderId, TargetId,
};

use crate::pushes::checkers::{PushFact, RouteCause};
use crate::pushes::coverage::PushPoint;
use crate::pushes::world::PushWorld;

/// Routes of each target at which a push is not over.
type OpenRoutes = BTreeMap<TargetId, BTreeMap<u32, SenderId>>;

impl PushWorld {
    /// Gives a driver's machine an input, or none if its time has come; shows what it changes.
    pub(super) fn drive(&mut self, driver: usize, input: Option<PushInput>) {
        let now = self.now;
        let Some(machine) = &mut self.drivers[driver].machine else { return };
        let before = open_routes(machine);
        let cause = input.as_ref().map_or(RouteCause::None, cause_of);
        match input {
            Some(input) => machine.handle(now, input),
            None => machine.handle_timeout(now),
        }
        let (after, result) = (open_routes(machine), machine.validate());
        self.validated(result);
        for (target, routes) in &before {
            let Some(new) = after.get(target) else { continue };
            let moved = routes.iter().filter(|(parcel, sender)| new.get(parcel) != Some(sender));
            let moved: Vec<(u32, SenderId)> = moved.map(|(p, sender)| (*p, *sender)).collect();
            if !moved.is_empty() {
                let lost = matches!(cause, RouteCause::Sender(_));
                self.reach(if lost { PushPoint::LostMoved } else { PushPoint::SlowMoved });
                self.tell(|| format!("driver {}: {target}: {moved:?} move", driver + 1));
                self.observe(&PushFact::Moved { cause, target: *target, moved: &moved });
            }
        }
        self.pump_driver(driver);
    }

    fn pump_driver(&mut self, driver: usize) {
        while let Some(machine) = &mut self.drivers[driver].machine {
            let Some(output) = machine.poll_output() else { return };
            match output {
                PushOutput::Order(order) => self.send_order(order),
                PushOutput::Send(grant) => self.send_grant(grant),
                PushOutput::Ended(result) => {
                    self.push_ended(driver, &result);
                    self.drivers[driver].machine = None;
                }
            }
        }
    }

    /// The parcels of a place, with those of their holders that the platform lists.
    pub(super) fn parcels_of(&self, place: usize) -> Vec<PushParcel> {
        let id = |at: &usize| {
            let sender = &self.senders[*at];
            sender.is_listed(self.now).then_some(sender.id)
        };
        let parcels = self.layout[place].iter().map(|parcel| PushParcel {
            bytes: parcel.bytes,
            holders: parcel.holders.iter().filter_map(id).collect(),
        });
        parcels.collect()
    }
}

fn open_routes(machine: &PushDriver) -> OpenRoutes {
    let routes = |target| Some((target, machine.routes(target)?.clone()));
    machine.open().filter_map(routes).collect()
}

/// Whose routes may change by this.
fn cause_of(input: &PushInput) -> RouteCause {
    match input {
        PushInput::Joins(_) => RouteCause::Joined,
        PushInput::Leaves { target } | PushInput::TargetLost { target } => {
            RouteCause::Target(*target)
        }
        PushInput::SenderLost { sender } => RouteCause::Sender(*sender),
        PushInput::Refused(refused) => match refused.refusal {
            SendRefusal::NotHeld => RouteCause::Sender(refused.sender),
            SendRefusal::Failed | SendRefusal::Busy => RouteCause::Target(refused.target),
        },
        PushInput::Reported(report) => RouteCause::Target(report.target),
        PushInput::SenderHolds { .. } | PushInput::Cancel => RouteCause::None,
    }
}
