//! A look at the world between two events: what takes too long?

use weightcast_protocol::Span;

use crate::updates::checkers::UpdateFact;
use crate::updates::parts::driver::GivenOrder;
use crate::updates::world::UpdateWorld;

/// A driver looks at its timers every 40 ms.
const SLACK: Span = Span::from_millis(100);

impl UpdateWorld {
    pub(in crate::updates) fn look_for_overdue(&mut self) {
        for driver in 0..self.drivers.len() {
            let it = &self.drivers[driver];
            let Some(due) = it.bound.filter(|due| *due < self.now) else { continue };
            if it.alive && !it.disturbed {
                let what = match it.machine.transaction() {
                    Some(_) => "the update of a fleet",
                    None => "updates of engines",
                };
                self.drivers[driver].bound = None;
                self.observe(&UpdateFact::Overdue { driver, what, due });
            }
        }
        (0..self.drivers.len()).for_each(|driver| self.look_for_late_steps(driver));
    }

    /// Steps that are still waited for after their deadline.
    fn look_for_late_steps(&mut self, driver: usize) {
        let it = &self.drivers[driver];
        if !it.alive || it.disturbed {
            return;
        }
        let deadlines = self.options.deadlines;
        let due = |given: &GivenOrder| given.since + deadlines.of(given.order.step) + SLACK;
        let late = |given: &&GivenOrder| !given.waiting.is_empty() && due(given) < self.now;
        let late = it.orders.values().find(late).map(|given| (given.order.step, due(given)));
        if let Some((step, due)) = late {
            self.observe(&UpdateFact::Overdue { driver, what: step.name(), due });
        }
    }

    pub(in crate::updates) fn look_for_doubts(&mut self) {
        for engine in 0..self.engines.len() {
            let Some(since) = self.engines[engine].doubts_since else { continue };
            let bound = since + self.doubt_bound();
            if self.engines[engine].alive && bound < self.now {
                self.engines[engine].doubts_since = None;
                self.observe(&UpdateFact::Doubts { engine, since, bound });
            }
        }
    }
}
