//! What can happen next to a push.

mod drivers;

use weightcast_protocol::Generation;

use super::PushBounds;
use super::parts::{PushWire, TORN, place_of, place_of_sender};
use super::world::PushState;

/// One thing that happens. Numbers are places, from zero on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushStep {
    /// What has this hash arrives.
    Arrive(u64),
    /// It arrives, and comes again.
    Repeat(u64),
    /// It is lost.
    Lose(u64),
    /// Its sender gives this write up.
    GiveUp(u64),
    /// A bit of this write flips.
    Flip(u64),
    /// A target has stopped serving.
    Pause(usize),
    /// A target hears what the comparison of a generation has found.
    Compare(usize, Generation),
    /// A sender sends the next write of a job.
    Write(usize, usize),
    /// A driver's next timer goes off; whether early.
    DriverTimer(usize, bool),
    /// A target's lease is over; whether early.
    TargetTimer(usize, bool),
    /// A target joins a driver's push.
    Join(usize, usize),
    /// A driver learns that a target is dead.
    LearnTarget(usize, usize),
    /// A driver learns that a sender is dead.
    LearnSender(usize, usize),
    /// A driver learns that a sender holds its version.
    LearnHolder(usize, usize),
    /// A sender's memory becomes the next version; whether that is a fault.
    MoveOn(usize, bool),
    /// A driver dies.
    DriverDies(usize),
    /// The newest driver, which has died or lives on, gets a successor.
    DriverComes,
    /// A sender dies.
    SenderDies(usize),
    /// A sender stands still.
    Stall(usize),
    /// It goes on.
    GoOn(usize),
    /// A target dies.
    TargetDies(usize),
    /// It is started again.
    TargetStarts(usize),
    /// A target gives its memory away.
    Sleep(usize),
    /// It has memory again.
    Wake(usize),
    /// A target leaves a driver's push.
    Leave(usize, usize),
    /// The caller of a driver does not want its push any more.
    Cancel(usize),
}

/// Steps that come by themselves, and steps that may come or not.
#[derive(Default)]
struct PossibleSteps {
    sure: Vec<PushStep>,
    faults: Vec<PushStep>,
}

impl PossibleSteps {
    fn sure(&mut self, can: bool, step: PushStep) {
        self.sure.extend(can.then_some(step));
    }

    fn fault(&mut self, can: bool, step: PushStep) {
        self.faults.extend(can.then_some(step));
    }
}

impl PushBounds {
    /// Drivers after the first one.
    pub(super) fn successors(&self) -> u32 {
        self.faults.driver_deaths + self.faults.splits
    }

    /// All that can happen.
    pub(super) fn steps(&self, state: &PushState) -> Vec<PushStep> {
        let mut steps = self.possible(state);
        steps.sure.append(&mut steps.faults);
        steps.sure
    }

    /// Whether nothing more happens, unless a fault does.
    pub(super) fn is_at_rest(&self, state: &PushState) -> bool {
        self.possible(state).sure.is_empty()
    }

    fn possible(&self, state: &PushState) -> PossibleSteps {
        let mut steps = PossibleSteps::default();
        if state.broken.is_some() {
            return steps;
        }
        for (hash, wire) in &state.wires {
            self.on_the_wire(state, *hash, wire, &mut steps);
        }
        self.at_targets(state, &mut steps);
        self.at_senders(state, &mut steps);
        for driver in 0..state.drivers.len() {
            self.at_driver(state, driver, &mut steps);
        }
        self.of_successors(state, &mut steps);
        // Time passes once nothing else can happen.
        let idle = steps.sure.is_empty();
        if idle || state.spent.timeouts < self.faults.timeouts {
            self.timers(state, !idle, &mut steps);
        }
        steps
    }

    fn on_the_wire(
        &self,
        state: &PushState,
        hash: u64,
        wire: &PushWire,
        steps: &mut PossibleSteps,
    ) {
        let (spent, most) = (state.spent, self.faults);
        let arrives = match wire {
            PushWire::Write(write) => {
                let from = &state.senders[write.from];
                let waits = write.answered && from.alive && !from.stalled;
                steps.fault(waits && spent.late_writes < most.late_writes, PushStep::GiveUp(hash));
                let flips = write.content != TORN && spent.flips < most.flips;
                steps.fault(flips, PushStep::Flip(hash));
                let list = if waits { &mut steps.sure } else { &mut steps.faults };
                return list.push(PushStep::Arrive(hash));
            }
            // An order or a word waits for whoever comes to the target's address.
            PushWire::Order(order) => state.targets[place_of(order.target)].alive,
            PushWire::Word(word) => state.targets[place_of(word.target)].alive,
            PushWire::Grant(grant) => !state.senders[place_of_sender(grant.sender)].stalled,
            PushWire::Report { .. } | PushWire::Refusal(_) => true,
        };
        steps.sure(arrives, PushStep::Arrive(hash));
        steps.fault(arrives && spent.repeats < most.repeats, PushStep::Repeat(hash));
        steps.fault(spent.losses < most.losses, PushStep::Lose(hash));
    }

    fn at_targets(&self, state: &PushState, steps: &mut PossibleSteps) {
        let (spent, most) = (state.spent, self.faults);
        for (target, it) in state.targets.iter().enumerate() {
            steps.sure(it.pausing, PushStep::Pause(target));
            let compared = it.compared.keys();
            steps.sure.extend(compared.map(|of| PushStep::Compare(target, *of)));
            steps.sure(!it.alive, PushStep::TargetStarts(target));
            steps.sure(it.alive && it.asleep, PushStep::Wake(target));
            let dies = it.alive && spent.target_deaths < most.target_deaths;
            steps.fault(dies, PushStep::TargetDies(target));
            let sleeps = it.alive && !it.asleep && spent.sleeps < most.sleeps;
            steps.fault(sleeps, PushStep::Sleep(target));
        }
    }

    fn at_senders(&self, state: &PushState, steps: &mut PossibleSteps) {
        let (spent, most) = (state.spent, self.faults);
        for (sender, it) in state.senders.iter().enumerate().filter(|(_, it)| it.alive) {
            steps.fault(spent.sender_deaths < most.sender_deaths, PushStep::SenderDies(sender));
            steps.fault(it.stalled, PushStep::GoOn(sender));
            if it.stalled {
                continue;
            }
            steps.fault(spent.stalls < most.stalls, PushStep::Stall(sender));
            let jobs = it.jobs.iter().enumerate().filter(|(_, job)| !job.waits);
            steps.sure.extend(jobs.map(|(job, _)| PushStep::Write(sender, job)));
            self.moves_on(state, sender, steps);
        }
    }
}
