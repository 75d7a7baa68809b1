//! Pushes end: what they say is compared with what is.

use weightcast_protocol::push::{PushResult, TargetEnd, TargetId, TargetOutcome};
use weightcast_protocol::{Span, Time};

use crate::pushes::checkers::PushFact;
use crate::pushes::coverage::PushPoint;
use crate::pushes::world::PushWorld;

/// How long a driver waits after a push that has failed somewhere.
const REST: Span = Span::from_millis(200);

impl PushWorld {
    pub(super) fn push_ended(&mut self, driver: usize, result: &PushResult) {
        self.tell(|| format!("driver {}: {result:?}", driver + 1));
        let it = &mut self.drivers[driver];
        let mut ends = result.targets.values().map(|outcome| outcome.end);
        if ends.clone().any(|end| end != TargetEnd::Ready) {
            it.rests_until = self.now + REST;
        }
        // There is a later driver, which the register knows too.
        it.alive &= ends.all(|end| end != TargetEnd::Superseded);
        for (target, outcome) in &result.targets {
            let ready = self.was_ready(*target, result);
            let (push, target, end) = (result.push, *target, outcome.end);
            *self.report.outcomes.entry(end.name()).or_default() += 1;
            self.observe(&PushFact::Ended { push, target, end, ready: ready.unwrap_or(true) });
            let began = self.drivers[driver].joined.get(&target).copied().unwrap_or_default();
            if self.is_unstruck(driver, began, target, result, outcome) {
                self.observe(&PushFact::FailedUnstruck { push, target, end });
            }
            if end == TargetEnd::Ready {
                self.drivers[driver].ready.insert(target, result.version.number);
            } else {
                self.drivers[driver].ready.remove(&target);
            }
            self.note_end(outcome);
        }
    }

    fn note_end(&mut self, outcome: &TargetOutcome) {
        let point = match outcome.end {
            TargetEnd::Ready if outcome.moved > 0 => PushPoint::ReadyAfterMove,
            TargetEnd::NoHolder => PushPoint::NoHolder,
            TargetEnd::Deadline => PushPoint::DeadlinePassed,
            TargetEnd::Silent => PushPoint::WentSilent,
            TargetEnd::Superseded => PushPoint::Superseded,
            _ => return,
        };
        self.reach(point);
    }

    /// Whether a target was ready after a push; not known of one whose place another has taken.
    fn was_ready(&self, target: TargetId, result: &PushResult) -> Option<bool> {
        let it = &self.targets[self.place_of(target)?];
        (it.id == target).then(|| it.ready.contains(&result.push))
    }

    /// Whether a push has failed at a target that nothing had struck since, and of every missing parcel neither a holder.
    fn is_unstruck(
        &self,
        driver: usize,
        began: Time,
        target: TargetId,
        result: &PushResult,
        outcome: &TargetOutcome,
    ) -> bool {
        let failed = match outcome.end {
            TargetEnd::NoHolder => true,
            // Words that were lost one after the other are like silence.
            TargetEnd::Silent | TargetEnd::GaveUp => self.options.lost == 0,
            TargetEnd::Deadline => self.options.deadline >= self.options.ample(),
            _ => false,
        };
        let Some(place) = self.place_of(target) else { return false };
        let (it, by) = (&self.targets[place], &self.drivers[driver]);
        let alone = it.id == target && it.alive && !it.asleep && it.heard.0 <= result.push;
        if !failed || !alone || it.upset_at >= began || by.upset_at >= began {
            return false;
        }
        if self.drivers[driver + 1..].iter().any(|later| later.alive) {
            return false;
        }
        let written = outcome.missing.values().flatten().chain(&outcome.unheld);
        written.into_iter().all(|parcel| {
            let holders = &self.layout[place][*parcel as usize].holders;
            holders.iter().any(|at| {
                let sender = &self.senders[*at];
                let denied = by.denied.get(&sender.id).is_some_and(|at| *at >= began);
                let holds = sender.alive && sender.memory == result.version.number;
                sender.upset_at < began && holds && !denied
            })
        })
    }

    /// The end of the world.
    pub(in crate::pushes) fn look_at_the_end(&mut self) {
        let wanted = self.published;
        for place in 0..self.targets.len() {
            let it = &self.targets[place];
            let (target, serves) = (it.id, it.serves);
            let state = format!("{:?}", it.machine.report());
            self.observe(&PushFact::Over { target, serves, wanted, state: &state });
        }
    }
}
