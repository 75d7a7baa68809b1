//! Faults, and their end.

use weightcast_protocol::Span;
use weightcast_protocol::push::PushInput;

use crate::pushes::options::PushFault;
use crate::pushes::parts::queue::PushEvent;
use crate::pushes::world::PushWorld;

impl PushWorld {
    /// A fault strikes; its victim is drawn.
    pub(in crate::pushes) fn strike(&mut self, kind: PushFault) {
        *self.report.faults.entry(kind.name()).or_default() += 1;
        let target = self.rng.below(self.targets.len() as u64) as usize;
        let sender = self.rng.below(self.senders.len() as u64) as usize;
        let longest = self.options.longest.0 / 1_000_000;
        let span = Span::from_millis(self.rng.between(200, longest));
        self.tell(|| format!("fault: {} (places {target} and {sender}, {span})", kind.name()));
        match kind {
            PushFault::TargetDies
            | PushFault::TargetSleeps
            | PushFault::TargetLeaves
            | PushFault::TargetCut => self.strike_target(kind, target, span),
            PushFault::DriverDies
            | PushFault::DriverSplit
            | PushFault::DriverSuspended
            | PushFault::Cancelled => self.strike_driver(kind, span),
            _ => self.strike_sender(kind, sender, span),
        }
    }

    fn strike_target(&mut self, kind: PushFault, place: usize, span: Span) {
        let until = self.now + span;
        let it = &mut self.targets[place];
        if !it.alive {
            return;
        }
        let target = it.id;
        it.upset_at = until;
        match kind {
            PushFault::TargetDies => {
                self.kill_target(place);
                self.plan_in(span, PushEvent::TargetStarts(place));
            }
            PushFault::TargetSleeps if !it.asleep => {
                self.sleep_target(place);
                self.plan_in(span, PushEvent::TargetWakes { place, target });
            }
            PushFault::TargetLeaves => {
                it.left = true;
                self.plan_in(span, PushEvent::TargetWakes { place, target });
            }
            PushFault::TargetCut => it.cut_until = until,
            _ => {}
        }
    }

    fn strike_sender(&mut self, kind: PushFault, place: usize, span: Span) {
        let until = self.now + span;
        let known = self.now + self.some_time(1_000, 500_000);
        let newest = self.published;
        let it = &mut self.senders[place];
        if !it.alive {
            return;
        }
        let sender = it.id;
        it.upset_at = until;
        match kind {
            PushFault::SenderDies => {
                (it.alive, it.known) = (false, known);
                self.plan_in(span, PushEvent::SenderStarts(place));
            }
            PushFault::SenderSuspended => it.suspended_until = until,
            PushFault::SenderSlow => it.slow_until = until,
            PushFault::WritesLate => it.late_until = until,
            PushFault::SenderCut => it.cut_until = until,
            PushFault::WriteFlipped => it.flips = true,
            PushFault::VersionWithdrawn
                if it.memory == newest && it.suspended_until <= self.now =>
            {
                // The next step has begun here, and its version comes a little later everywhere.
                it.machine.withdraw();
                it.memory = newest + 1;
                self.pump_sender(place);
                self.plan_in(span, PushEvent::SenderSteps { place, sender });
                self.plan_in(Span(1), PushEvent::Published);
            }
            _ => {}
        }
    }

    fn strike_driver(&mut self, kind: PushFault, span: Span) {
        let newest = self.drivers.len().checked_sub(1);
        let Some(newest) = newest.filter(|newest| self.drivers[*newest].acts(self.now)) else {
            return;
        };
        let until = self.now + span;
        match kind {
            PushFault::DriverDies => {
                self.end_drivers();
                self.plan_in(span, PushEvent::DriverStarts);
            }
            PushFault::DriverSplit => {
                self.plan_in(Span(span.0 * 2), PushEvent::DriverEnds(newest));
                self.start_driver();
            }
            PushFault::DriverSuspended => {
                let it = &mut self.drivers[newest];
                (it.suspended_until, it.upset_at) = (until, until);
                self.plan_in(Span(span.0 * 2), PushEvent::DriverEnds(newest));
                self.start_driver();
            }
            _ => self.drive(newest, Some(PushInput::Cancel)),
        }
    }

    fn end_drivers(&mut self) {
        self.drivers.iter_mut().for_each(|it| it.alive = false);
    }

    /// Faults cease: one driver is to come, and everything can be reached.
    pub(in crate::pushes) fn calm_down(&mut self) {
        (self.calm, self.options.lost) = (true, 0);
        let now = self.now;
        for it in &mut self.targets {
            it.cut_until = now;
            it.upset_at = it.upset_at.min(now);
        }
        for it in &mut self.senders {
            (it.slow_until, it.late_until, it.cut_until) = (now, now, now);
            it.flips = false;
        }
        self.end_drivers();
        self.tell(|| "faults cease".to_owned());
    }
}
