//! What must hold in every state of a push, and what some state must show for the search to mean anything.

use stateright::Property;
use weightcast_protocol::push::{
    PushGrant, PushInput, SendRefusal, SenderId, TargetId, TargetState,
};

use super::PushBounds;
use super::parts::{DrivingPush, PushWrite, TORN, sender_id};
use super::world::PushState;

impl PushState {
    /// P1, P2: what serves has the bytes of its version, and no grant is open there.
    pub(super) fn check_served(&mut self) {
        for place in 0..self.targets.len() {
            let it = &self.targets[place];
            let Some(version) = it.serves else { continue };
            if !it.differing(version).is_empty() {
                let (target, memory) = (it.id, it.memory.clone());
                self.breaks("P1", || format!("{target} serves {version}, and has {memory:?}"));
            }
            self.check_closed(place, "serves");
        }
    }

    /// P2: no grant is open at a target that does this.
    pub(super) fn check_closed(&mut self, place: usize, does: &str) {
        let it = &self.targets[place];
        if !it.port.is_empty() {
            let (target, open) = (it.id, it.port.keys().copied().collect::<Vec<_>>());
            self.breaks("P2", || format!("{target} {does}, and has grants {open:?} open"));
        }
    }

    /// P3: no two senders may write one parcel at a time.
    pub(super) fn check_opened(&mut self, place: usize, grant: &PushGrant) {
        let other = |open: &&PushGrant| {
            open.sender != grant.sender && !open.parcels.is_disjoint(&grant.parcels)
        };
        if let Some(open) = self.targets[place].port.values().find(other).cloned() {
            self.breaks("P3", || format!("{grant:?} is opened, and {open:?} is open"));
        }
    }

    /// P3: what is written is of the grant's sender, generation and version.
    pub(super) fn check_written(&mut self, place: usize, write: &PushWrite) {
        let it = &self.targets[place];
        let Some(grant) = it.port.get(&write.grant) else { return };
        let present = it.machine.report().generation;
        let own = grant.sender == sender_id(write.from) && write.generation == present;
        if !own || (write.content != grant.version.number && write.content != TORN) {
            let detail = format!("{write:?} is let in by {grant:?} in generation {present}");
            self.breaks("P3", || detail);
        }
    }

    /// P4: routes of a target change for its own reasons, or for a sender of its own.
    pub(super) fn check_moved(
        &mut self,
        cause: Option<&PushInput>,
        target: TargetId,
        moved: &[(u32, SenderId)],
    ) {
        let all_of = |sender| moved.iter().all(|(_, before)| *before == sender);
        let right = match cause {
            Some(PushInput::Leaves { target: of } | PushInput::TargetLost { target: of }) => {
                *of == target
            }
            Some(PushInput::SenderLost { sender }) => all_of(*sender),
            Some(PushInput::Refused(refused)) => match refused.refusal {
                SendRefusal::NotHeld => all_of(refused.sender),
                SendRefusal::Failed | SendRefusal::Busy => refused.target == target,
            },
            Some(PushInput::Reported(report)) => report.target == target,
            Some(PushInput::Joins(_) | PushInput::SenderHolds { .. } | PushInput::Cancel)
            | None => false,
        };
        if !right {
            self.breaks("P4", || format!("routes of {target} change: {moved:?} for {cause:?}"));
        }
    }

    /// P5: when nothing more can happen, every push of a driver that lives is over, and no target is half filled.
    fn is_stuck(&self, bounds: &PushBounds) -> bool {
        // A push that no target has joined waits for one.
        let done = |it: &DrivingPush| it.machine.is_none() || it.joined.is_empty();
        let over = self.drivers.iter().all(|it| !it.alive || done(it));
        let filled = |state| !matches!(state, TargetState::Pausing | TargetState::Filling);
        let settled = |state| filled(state) && state != TargetState::Verifying;
        let mut living = self.targets.iter().filter(|it| it.alive);
        let at_rest = living.all(|it| settled(it.machine.state()) && it.port.is_empty());
        self.broken.is_none() && !(over && at_rest) && bounds.is_at_rest(self)
    }

    fn all_serve(&self, version: u64) -> bool {
        self.targets.iter().all(|it| it.alive && it.serves == Some(version))
    }

    /// Whether an invariant does not hold here.
    pub(super) fn breaks_now(&self, bounds: &PushBounds, invariant: &str) -> bool {
        let broken = self.broken.as_ref().is_some_and(|broken| broken.invariant == invariant);
        broken || (invariant == "P5" && bounds.looks_at("P5") && self.is_stuck(bounds))
    }
}

impl PushBounds {
    pub(super) fn looks_at(&self, invariant: &str) -> bool {
        self.only.is_none_or(|only| only == invariant)
    }
}

macro_rules! always {
    ($($name:literal),*) => {
        vec![$(Property::always($name, |bounds: &PushBounds, state: &PushState| {
            !state.breaks_now(bounds, $name)
        })),*]
    };
}

/// What some state must show, if the faults can bring it about.
macro_rules! sometimes {
    ($($name:literal if $can:expr;)*) => {
        vec![$(Property::sometimes($name, |bounds: &PushBounds, state: &PushState| {
            let can: fn(&PushBounds) -> bool = $can;
            !can(bounds) || state.seen.contains($name)
        })),*]
    };
}

pub(super) fn properties() -> Vec<Property<PushBounds>> {
    let mut properties = always!["P1", "P2", "P3", "P4", "P5", "P6", "P7"];
    properties.extend([
        Property::sometimes("all serve version 1", |_: &PushBounds, state: &PushState| {
            state.all_serve(1)
        }),
        Property::sometimes("all serve version 2", |bounds: &PushBounds, state: &PushState| {
            bounds.again || bounds.successors() == 0 || state.all_serve(2)
        }),
    ]);
    properties.extend(sometimes![
        "a push ended ready after a parcel had moved" if |it| {
            it.senders > 1 && it.faults.sender_deaths + it.faults.stalls + it.faults.moves_on > 0
        };
        "a write was refused, since its grant was closed" if |it| it.faults.late_writes > 0;
        "a write was refused while its version was served" if |it| it.faults.late_writes > 0;
        "a word came after its grant was closed" if |it| it.faults.repeats > 0;
        "an order came after a newer one" if |it| it.faults.driver_deaths > 0;
        "a push ended, since its target obeyed a later one" if |it| it.faults.splits > 0;
        "what was written is not the version" if |it| it.faults.flips > 0;
        "a push ended, since its target died" if |it| it.faults.target_deaths > 0;
        "a push ended, since its target slept" if |it| it.faults.sleeps > 0;
        "a push was cancelled" if |it| it.faults.cancels > 0;
        "a push ended, since its target left" if |it| it.faults.leaves > 0;
        "a push ended, since its target heard no driver" if |it| it.faults.timeouts > 0;
        "a sender no longer held the version" if |it| it.faults.moves_on > 0;
        "a push ended, since nobody held a parcel" if |it| {
            it.faults.sender_deaths + it.faults.moves_on >= it.senders
        };
    ]);
    properties
}
