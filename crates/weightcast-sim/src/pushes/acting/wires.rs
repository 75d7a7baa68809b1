//! Words between drivers, targets and senders: lost, late, and twice.

use weightcast_protocol::Span;
use weightcast_protocol::push::{ParcelsWritten, PushGrant, PushOrder, PushReport, SendRefused};

use crate::pushes::parts::queue::PushEvent;
use crate::pushes::world::PushWorld;

/// How many of a thousand words come late, in a world in which words are lost.
const LATE: u64 = 10;

impl PushWorld {
    /// How long a word takes; none if it is lost.
    fn delay(&mut self, reached: bool) -> Option<Span> {
        if !reached || self.rng.chance(self.options.lost) {
            return None;
        }
        // Some words wait on the way for longer than some workers live.
        let late = self.options.lost > 0 && self.rng.chance(LATE);
        let most = if late { 1_500_000 } else { self.options.delay.0 / 1_000 };
        Some(self.some_time(300, most))
    }

    fn send(&mut self, reached: bool, event: &PushEvent) {
        let twice = 1 + u64::from(self.rng.chance(self.options.lost));
        for _ in 0..twice {
            if let Some(delay) = self.delay(reached) {
                self.plan_in(delay, event.clone());
            }
        }
    }

    /// To whoever lives at the place where this target lived.
    pub(super) fn send_order(&mut self, order: PushOrder) {
        let Some(place) = self.place_of(order.target) else { return };
        let reached = self.targets[place].is_reached(self.now);
        self.send(reached, &PushEvent::Order { place, order });
    }

    pub(super) fn send_report(&mut self, place: usize, driver: u64, report: PushReport) {
        let reached = self.targets[place].is_reached(self.now);
        self.send(reached, &PushEvent::Report { driver, report });
    }

    pub(super) fn send_grant(&mut self, grant: PushGrant) {
        let Some(place) = self.place_of_sender(grant.sender) else { return };
        let reached = self.senders[place].is_reached(self.now);
        self.send(reached, &PushEvent::Grant { place, grant });
    }

    pub(super) fn send_word(&mut self, from: usize, word: ParcelsWritten) {
        let Some(place) = self.place_of(word.target) else { return };
        let reached =
            self.senders[from].is_reached(self.now) && self.targets[place].is_reached(self.now);
        self.send(reached, &PushEvent::Word { place, word });
    }

    pub(super) fn send_refusal(&mut self, from: usize, refused: SendRefused) {
        let reached = self.senders[from].is_reached(self.now);
        let driver = refused.push.driver;
        self.send(reached, &PushEvent::Refusal { driver, refused });
    }
}
