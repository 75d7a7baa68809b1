//! What targets do: obey orders, open and close grants, compare, and serve.

use weightcast_protocol::push::{ParcelsWritten, PushGrant, PushOrder, PushReport, TargetOutput};
use weightcast_protocol::{Generation, Version};

use super::parts::{PushWire, PushWrite, place_of};
use super::world::PushState;

impl PushState {
    pub(super) fn hear_order(&mut self, order: PushOrder) {
        let place = place_of(order.target);
        let it = &self.targets[place];
        let (target, meant, number) = (it.id, order.target, (order.push, order.revision));
        let (older, before) = (number < it.heard, it.machine.report());
        self.targets[place].change(|it| {
            if meant == target {
                it.heard = it.heard.max(number);
            }
            it.machine.handle_order(it.now, order);
        });
        let changed = differs(before, self.targets[place].machine.report());
        if meant == target && older {
            self.sees("an order came after a newer one");
        }
        if changed && (meant != target || older) {
            self.breaks("P7", || format!("{target} obeys an order for {meant}, or an older one"));
        }
        self.obey_target(place);
    }

    pub(super) fn hear_word(&mut self, word: &ParcelsWritten) {
        let place = place_of(word.target);
        let before = self.targets[place].machine.report().written;
        self.targets[place].change(|it| it.machine.handle_written(word));
        let it = &self.targets[place];
        let closed = !it.port.contains_key(&word.grant);
        let counted = it.machine.report().written != before;
        if closed {
            self.sees("a word came after its grant was closed");
        }
        if closed && counted {
            self.breaks("P2", || format!("a target counts {word:?}, whose grant is closed"));
        }
        self.obey_target(place);
    }

    pub(super) fn pause(&mut self, place: usize) {
        self.targets[place].change(|it| {
            it.pausing = false;
            it.machine.handle_paused();
        });
        self.obey_target(place);
    }

    pub(super) fn tell_of_comparison(&mut self, place: usize, generation: Generation) {
        self.targets[place].change(|it| {
            let differing = it.compared.remove(&generation).expect("it has compared");
            it.machine.handle_verified(generation, &differing);
        });
        self.obey_target(place);
    }

    /// A target's lease is over.
    pub(super) fn time_out_target(&mut self, place: usize) {
        self.targets[place].change(|it| {
            it.now = it.machine.next_timeout().expect("it has a timer");
            it.machine.handle_timeout(it.now);
        });
        self.obey_target(place);
        let it = &self.targets[place];
        if !it.port.is_empty() {
            let target = it.id;
            self.breaks("P5", || format!("{target} has grants open after the lease"));
        }
    }

    /// Does what a target's machine wants.
    pub(super) fn obey_target(&mut self, place: usize) {
        let valid = self.targets[place].machine.validate();
        self.validated(valid);
        while let Some(output) = self.targets[place].change(|it| it.machine.poll_output()) {
            match output {
                TargetOutput::Pause => self.targets[place].change(|it| {
                    (it.serves, it.pausing) = (None, true);
                }),
                TargetOutput::Open(grant) => self.open(place, grant),
                TargetOutput::Close { grant } => {
                    self.targets[place].change(|it| it.port.remove(&grant));
                }
                TargetOutput::Verify { generation, version } => {
                    self.compare(place, generation, version);
                }
                TargetOutput::Resume { version } => self.targets[place].change(|it| {
                    it.serves = Some(version.number);
                    it.ready.insert(it.heard.0);
                }),
                TargetOutput::Tell { driver, report } => {
                    self.send(PushWire::Report { driver, report });
                }
            }
        }
        self.forget_unheard();
    }

    fn open(&mut self, place: usize, grant: PushGrant) {
        self.check_opened(place, &grant);
        self.targets[place].change(|it| it.port.insert(grant.number, grant));
    }

    /// The comparison goes once over the memory; the machine hears of it later.
    fn compare(&mut self, place: usize, generation: Generation, version: Version) {
        self.check_closed(place, "compares its memory");
        let differing = self.targets[place].differing(version.number);
        if !differing.is_empty() {
            self.sees("what was written is not the version");
        }
        self.targets[place].change(|it| it.compared.insert(generation, differing));
    }

    /// A write arrives at the data port of whoever lives there, and is answered.
    pub(super) fn land(&mut self, write: PushWrite) {
        let place = place_of(write.target);
        let admitted = self.targets[place].admits(&write).is_some();
        if admitted {
            self.check_written(place, &write);
            self.targets[place].change(|it| it.memory[write.parcel as usize] = write.content);
        } else if self.targets[place].alive {
            self.sees("a write was refused, since its grant was closed");
            if self.targets[place].serves == Some(write.content) {
                self.sees("a write was refused while its version was served");
            }
        }
        if write.answered {
            self.answer(write, admitted);
        }
    }
}

/// Whether more has changed than the count of reports and the order that was heard.
fn differs(before: PushReport, after: PushReport) -> bool {
    let PushReport { sequence, push, revision, .. } = after;
    PushReport { sequence, push, revision, ..before } != after
}
