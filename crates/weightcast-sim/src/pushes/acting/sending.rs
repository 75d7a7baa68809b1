//! What senders do: write what grants allow, and say so.

use std::collections::VecDeque;

use weightcast_protocol::Span;
use weightcast_protocol::push::{PushGrant, SendRefusal, SenderId, SenderOutput};

use crate::pushes::coverage::PushPoint;
use crate::pushes::options::CHUNKS;
use crate::pushes::parts::queue::{PushEvent, SimWrite};
use crate::pushes::parts::sender::SendJob;
use crate::pushes::parts::target::SPOILED;
use crate::pushes::world::PushWorld;

impl PushWorld {
    pub(in crate::pushes) fn hear_grant(&mut self, place: usize, grant: PushGrant) {
        let it = &mut self.senders[place];
        if !it.alive {
            return;
        }
        if it.suspended_until > self.now {
            let later = it.suspended_until - self.now;
            self.plan_in(later, PushEvent::Grant { place, grant });
            return;
        }
        it.machine.handle_grant(grant);
        self.pump_sender(place);
    }

    /// Does what the sender's machine says.
    pub(super) fn pump_sender(&mut self, place: usize) {
        while let Some(output) = self.senders[place].machine.poll_output() {
            match output {
                SenderOutput::Write(grant) => self.begin_job(place, grant),
                SenderOutput::Tell(word) => self.send_word(place, word),
                SenderOutput::Refuse(refused) => {
                    if refused.refusal == SendRefusal::NotHeld {
                        self.reach(PushPoint::NotHeld);
                    }
                    self.send_refusal(place, refused);
                }
            }
        }
    }

    fn begin_job(&mut self, place: usize, grant: PushGrant) {
        let parcels: VecDeque<u32> = grant.parcels.iter().copied().collect();
        let it = &mut self.senders[place];
        it.jobs.push_back(SendJob { grant, parcels, chunk: 0 });
        if !std::mem::replace(&mut it.writing, true) {
            let sender = it.id;
            self.plan_in(Span(1_000), PushEvent::Writes { place, sender });
        }
    }

    /// The next write of the first job.
    pub(in crate::pushes) fn write_next(&mut self, place: usize, sender: SenderId) {
        let now = self.now;
        let it = &mut self.senders[place];
        if !it.alive || it.id != sender {
            return;
        }
        if it.suspended_until > now {
            let later = it.suspended_until - now;
            self.plan_in(later, PushEvent::Writes { place, sender });
            return;
        }
        while let Some(job) = it.jobs.front() {
            let may = it.machine.may_write(job.grant.target, job.grant.number);
            if may && !job.parcels.is_empty() {
                return self.write(place);
            }
            it.jobs.pop_front();
        }
        it.writing = false;
    }

    /// Sends one write. A sender may be suspended between its look at the machine and the write: that is a late write.
    fn write(&mut self, place: usize) {
        let now = self.now;
        let it = &mut self.senders[place];
        let content = if std::mem::take(&mut it.flips) { SPOILED } else { it.memory };
        let Some(job) = it.jobs.front() else { return };
        let Some(parcel) = job.parcels.front().copied() else { return };
        let PushGrant { target, number: grant, generation, .. } = job.grant;
        let (chunk, sender, late) = (job.chunk, it.id, it.late_until > now);
        let slow = if it.slow_until > now { 20 } else { 1 };
        let reached = it.is_reached(now);
        let Some(at) = self.place_of(target) else { return };
        let mut write = SimWrite {
            place: at,
            target,
            grant,
            generation,
            from: place,
            sender,
            parcel,
            chunk,
            content,
            answered: true,
        };
        let most = self.options.write.0 / 1_000 * slow;
        let delay = self.some_time(most / 4, most);
        if !reached || !self.targets[at].is_reached(now) {
            self.plan_in(Span::from_millis(200), PushEvent::Answered { write, done: false });
        } else if late {
            write.answered = false;
            self.plan_in(
                Span::from_millis(60),
                PushEvent::Answered { write: write.clone(), done: false },
            );
            let delay = self.some_time(200_000, 3_000_000);
            self.plan_in(delay, PushEvent::Lands(write));
        } else {
            self.plan_in(delay, PushEvent::Lands(write));
        }
    }

    /// A sender hears how its write went, and goes on.
    pub(in crate::pushes) fn write_answered(&mut self, write: &SimWrite, done: bool) {
        let place = write.from;
        let it = &mut self.senders[place];
        if !it.alive || it.id != write.sender {
            return;
        }
        if it.suspended_until > self.now {
            let later = it.suspended_until - self.now;
            self.plan_in(later, PushEvent::Answered { write: write.clone(), done });
            return;
        }
        let own =
            |job: &SendJob| (job.grant.target, job.grant.number) == (write.target, write.grant);
        if let Some(job) = it.jobs.front_mut().filter(|job| own(job)) {
            if !done {
                it.jobs.pop_front();
                it.machine.handle_failed(write.target, write.grant);
            } else if job.chunk + 1 < CHUNKS {
                job.chunk += 1;
            } else {
                job.chunk = 0;
                job.parcels.pop_front();
                it.machine.handle_parcel(write.target, write.grant, write.parcel);
            }
        }
        self.pump_sender(place);
        let sender = write.sender;
        self.plan_in(Span(1_000), PushEvent::Writes { place, sender });
    }
}
