//! A look at the world between two events: what takes too long?

use weightcast_protocol::Span;

use crate::pushes::checkers::PushFact;
use crate::pushes::parts::target::SimTarget;
use crate::pushes::world::PushWorld;

/// Drivers and targets look at their timers every 40 ms.
const SLACK: Span = Span::from_millis(100);

impl PushWorld {
    /// Pushes that should be over.
    pub(in crate::pushes) fn look_for_overdue(&mut self) {
        let mut overdue = Vec::new();
        for it in self.drivers.iter().filter(|it| it.acts(self.now)) {
            let Some(machine) = &it.machine else { continue };
            for target in machine.open() {
                let joined = it.joined.get(&target).copied().unwrap_or_default();
                let due = joined.max(it.upset_at) + self.options.deadline + SLACK;
                if due < self.now {
                    overdue.push((machine.number(), target, due));
                }
            }
        }
        for (push, target, due) in overdue {
            self.observe(&PushFact::Overdue { push, target, due });
        }
    }

    /// Grants whose driver is silent.
    pub(in crate::pushes) fn look_for_open_grants(&mut self) {
        let end = self.options.lease.0.saturating_add(SLACK.0);
        let late =
            |it: &&SimTarget| it.alive && !it.port.is_empty() && it.heard_at + Span(end) < self.now;
        let late: Vec<_> = self
            .targets
            .iter()
            .filter(late)
            .map(|it| (it.id, it.port.len(), it.heard_at))
            .collect();
        for (target, grants, since) in late {
            self.observe(&PushFact::LeftOpen { target, grants, since });
        }
    }
}
