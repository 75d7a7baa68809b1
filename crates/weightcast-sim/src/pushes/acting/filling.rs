//! What targets do: obey orders, open and close grants, compare, and serve.

use std::collections::BTreeSet;

use weightcast_protocol::push::{ParcelsWritten, PushOrder, PushReport, TargetId, TargetOutput};
use weightcast_protocol::{Generation, Version};

use crate::pushes::checkers::PushFact;
use crate::pushes::coverage::PushPoint;
use crate::pushes::parts::queue::{PushEvent, SimWrite};
use crate::pushes::parts::target::SPOILED;
use crate::pushes::world::{PushWorld, TICK};

impl PushWorld {
    pub(in crate::pushes) fn hear_order(&mut self, place: usize, order: PushOrder) {
        let now = self.now;
        let it = &mut self.targets[place];
        if !it.alive {
            return;
        }
        let (target, meant, number) = (it.id, order.target, (order.push, order.revision));
        let newer = it.heard > number;
        if meant == target && !newer {
            (it.heard, it.heard_at) = (number, now);
        }
        let before = it.machine.report();
        it.machine.handle_order(now, order);
        let changed = differs(before, it.machine.report());
        match (meant == target, newer) {
            (false, _) => self.reach(PushPoint::OrderWaited),
            (true, true) => self.reach(PushPoint::OldOrder),
            _ => {}
        }
        self.observe(&PushFact::Ordered { target, meant, newer, changed });
        self.pump_target(place);
    }

    pub(in crate::pushes) fn hear_word(&mut self, place: usize, word: &ParcelsWritten) {
        let it = &mut self.targets[place];
        if !it.alive {
            return;
        }
        let (target, grant) = (it.id, word.grant);
        let before = it.machine.report().written;
        let late = word.target == target && !it.port.contains_key(&grant);
        it.machine.handle_written(word);
        let after = it.machine.report().written;
        let counted: Vec<u32> = after.difference(&before).copied().collect();
        if late {
            self.reach(PushPoint::LateWord);
        }
        for parcel in counted {
            self.observe(&PushFact::Counted { target, grant, parcel });
        }
        self.pump_target(place);
    }

    /// Does what the target's machine says.
    pub(super) fn pump_target(&mut self, place: usize) {
        let result = self.targets[place].machine.validate();
        self.validated(result);
        while let Some(output) = self.targets[place].machine.poll_output() {
            self.obey_target(place, output);
        }
    }

    fn obey_target(&mut self, place: usize, output: TargetOutput) {
        let target = self.targets[place].id;
        match output {
            TargetOutput::Pause => {
                self.targets[place].serves = None;
                let delay = self.some_time(500, 30_000);
                self.plan_in(delay, PushEvent::Paused { place, target });
            }
            TargetOutput::Open(grant) => {
                self.tell(|| format!("{target} opens {grant:?}"));
                self.observe(&PushFact::Opened { target, grant: &grant });
                self.targets[place].port.insert(grant.number, grant);
            }
            TargetOutput::Close { grant } => {
                self.tell(|| format!("{target} closes grant {grant}"));
                self.targets[place].port.remove(&grant);
                self.observe(&PushFact::Closed { target, grant });
            }
            TargetOutput::Verify { generation, version } => {
                self.compare(place, generation, version);
            }
            TargetOutput::Resume { version } => {
                self.tell(|| format!("{target} serves {version}"));
                let it = &mut self.targets[place];
                it.serves = Some(version.number);
                it.ready.insert(it.heard.0);
                self.reach(PushPoint::Pushed);
            }
            TargetOutput::Tell { driver, report } => self.send_report(place, driver, report),
        }
    }

    /// The comparison goes once over the memory, and takes a while to be told.
    fn compare(&mut self, place: usize, generation: Generation, version: Version) {
        let target = self.targets[place].id;
        self.observe(&PushFact::Compares { target });
        let differing = self.targets[place].differing(version.number);
        self.tell(|| format!("{target} compares: {differing:?} differ"));
        if !differing.is_empty() {
            self.reach(PushPoint::DifferenceFound);
        }
        let delay = self.some_time(2_000, 60_000);
        self.plan_in(delay, PushEvent::Verified { place, target, generation, differing });
    }

    pub(in crate::pushes) fn verified(
        &mut self,
        place: usize,
        target: TargetId,
        generation: Generation,
        differing: &BTreeSet<u32>,
    ) {
        let it = &mut self.targets[place];
        if it.alive && it.id == target {
            it.machine.handle_verified(generation, differing);
            self.pump_target(place);
        }
    }

    pub(in crate::pushes) fn paused(&mut self, place: usize, target: TargetId) {
        let it = &mut self.targets[place];
        if it.alive && it.id == target {
            it.machine.handle_paused();
            self.pump_target(place);
        }
    }

    /// A write arrives at the data port of whoever lives there.
    pub(in crate::pushes) fn land(&mut self, write: SimWrite) {
        let it = &mut self.targets[write.place];
        let admitted = it.admits(&write).is_some();
        if admitted {
            it.memory[write.parcel as usize][write.chunk] = write.content;
            self.report.writes += 1;
            self.observe(&PushFact::Wrote { write: &write });
        } else if it.alive {
            let point = match () {
                () if it.id != write.target => PushPoint::WrongLife,
                () if it.serves.is_some() => PushPoint::ZombieAfterResume,
                () if it.port.values().any(|grant| grant.generation > write.generation) => {
                    PushPoint::ZombieOfEarlierGeneration
                }
                () => PushPoint::ZombieRefused,
            };
            self.reach(point);
        }
        if write.answered {
            let delay = self.some_time(200, 2_000);
            self.plan_in(delay, PushEvent::Answered { write, done: admitted });
        }
    }

    pub(in crate::pushes) fn tick_target(&mut self, place: usize, target: TargetId) {
        let now = self.now;
        let it = &mut self.targets[place];
        if !it.alive || it.id != target {
            return;
        }
        if it.machine.next_timeout().is_some_and(|due| due <= now) {
            let open = !it.port.is_empty();
            it.machine.handle_timeout(now);
            if open {
                self.reach(PushPoint::LeaseEnded);
            }
            self.pump_target(place);
        }
        if let Some(version) = self.targets[place].serves {
            let memory = self.targets[place].memory.clone();
            self.observe(&PushFact::Served { target, version, memory: &memory });
        }
        self.plan_in(TICK, PushEvent::TargetTick { place, target });
    }

    /// A target gives its memory away.
    pub(super) fn sleep_target(&mut self, place: usize) {
        let it = &mut self.targets[place];
        (it.asleep, it.upset_at) = (true, self.now);
        let (target, open) = (it.id, !it.port.is_empty());
        it.machine.handle_slept();
        self.pump_target(place);
        let it = &mut self.targets[place];
        it.serves = None;
        it.memory.iter_mut().flatten().for_each(|chunk| *chunk = SPOILED);
        self.observe(&PushFact::Slept { target });
        if open {
            self.reach(PushPoint::SleptOpen);
        }
    }
}

/// Whether more has changed than the count of reports and the order that was heard.
fn differs(before: PushReport, after: PushReport) -> bool {
    let same = PushReport {
        sequence: after.sequence,
        push: after.push,
        revision: after.revision,
        ..before
    };
    same != after
}
