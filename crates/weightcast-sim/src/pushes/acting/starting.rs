//! Workers start, and versions come.

use weightcast_protocol::push::{PushSender, PushTarget, SenderId, TargetId};
use weightcast_protocol::{Generation, Span};

use crate::pushes::checkers::PushFact;
use crate::pushes::parts::queue::PushEvent;
use crate::pushes::parts::sender::SimSender;
use crate::pushes::parts::target::SimTarget;
use crate::pushes::world::{PushWorld, TICK, version};

/// Names of workers: the place, and which life of it.
const LIVES: u64 = 1_000;

impl PushWorld {
    /// Where this target lives, or lived.
    pub(super) fn place_of(&self, target: TargetId) -> Option<usize> {
        let place = (target.0 % LIVES) as usize;
        (place < self.targets.len()).then_some(place)
    }

    /// Where this sender lives, or lived.
    pub(super) fn place_of_sender(&self, sender: SenderId) -> Option<usize> {
        let place = (sender.0 % LIVES) as usize;
        (place < self.senders.len()).then_some(place)
    }

    fn name_for(&mut self, place: usize) -> u64 {
        self.started += 1;
        self.started * LIVES + place as u64
    }

    pub(in crate::pushes) fn start_target(&mut self, place: usize) {
        let id = TargetId(self.name_for(place));
        let known = self.now + self.some_time(1_000, 200_000);
        let safeguards = self.options.safeguards;
        let absent = SimTarget::absent(self.layout[place].len(), safeguards);
        let machine = PushTarget::new(id, Generation(0), safeguards);
        let upset_at = known;
        self.targets[place] = SimTarget { id, alive: true, machine, known, upset_at, ..absent };
        self.tell(|| format!("{id} starts"));
        self.plan_in(TICK, PushEvent::TargetTick { place, target: id });
    }

    pub(in crate::pushes) fn start_sender(&mut self, place: usize) {
        let id = SenderId(self.name_for(place));
        let known = self.now + self.some_time(1_000, 200_000);
        let safeguards = self.options.safeguards;
        let machine = PushSender::new(id, safeguards);
        let (absent, upset_at) = (SimSender::absent(safeguards), known);
        self.senders[place] = SimSender { id, alive: true, machine, known, upset_at, ..absent };
        self.tell(|| format!("{id} starts"));
        self.plan_in(Span::from_millis(30), PushEvent::SenderSteps { place, sender: id });
    }

    /// The trainer has a new version; each sender's memory changes a little later.
    pub(in crate::pushes) fn publish(&mut self) {
        self.published += 1;
        let number = self.published;
        self.tell(|| format!("version {number}"));
        for place in 0..self.senders.len() {
            let sender = self.senders[place].id;
            let delay = self.some_time(100, 60_000);
            self.plan_in(delay, PushEvent::SenderSteps { place, sender });
        }
    }

    /// A sender's memory gets the newest version. A sender that stands still does so when it goes on.
    pub(in crate::pushes) fn step_sender(&mut self, place: usize, sender: SenderId) {
        let it = &mut self.senders[place];
        let newest = self.published;
        let holds = it.machine.holds() == Some(version(newest));
        if !it.alive || it.id != sender || holds {
            return;
        }
        if it.suspended_until > self.now {
            let later = it.suspended_until - self.now;
            self.plan_in(later, PushEvent::SenderSteps { place, sender });
            return;
        }
        it.machine.withdraw();
        it.memory = newest;
        it.machine.hold(version(newest));
        it.upset_at = it.upset_at.max(self.now);
        self.pump_sender(place);
    }

    pub(in crate::pushes) fn wake_target(&mut self, place: usize, target: TargetId) {
        let it = &mut self.targets[place];
        if it.id != target || !it.alive {
            return;
        }
        (it.left, it.upset_at) = (false, it.upset_at.max(self.now));
        if std::mem::take(&mut it.asleep) {
            it.machine.handle_woken();
            self.tell(|| format!("{target} wakes"));
            self.pump_target(place);
        }
    }

    /// A target's process ends, with its memory.
    pub(super) fn kill_target(&mut self, place: usize) {
        let known = self.now + self.some_time(1_000, 500_000);
        let it = &mut self.targets[place];
        (it.alive, it.known, it.serves, it.upset_at) = (false, known, None, self.now);
        it.port.clear();
        let target = it.id;
        self.observe(&PushFact::Died { target });
    }
}
