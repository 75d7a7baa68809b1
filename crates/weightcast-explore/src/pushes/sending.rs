//! What senders do: write what grants allow, and say so.

use weightcast_protocol::push::{PushGrant, SenderOutput};

use super::parts::{PushWire, PushWrite, WriteJob, place_of_sender};
use super::world::PushState;

impl PushState {
    pub(super) fn hear_grant(&mut self, grant: PushGrant) {
        let place = place_of_sender(grant.sender);
        self.senders[place].change(|it| it.machine.handle_grant(grant));
        self.obey_sender(place);
    }

    /// Does what a sender's machine wants. Jobs that are over, or that the machine does not want any more, go.
    pub(super) fn obey_sender(&mut self, place: usize) {
        while let Some(output) = self.senders[place].change(|it| it.machine.poll_output()) {
            match output {
                SenderOutput::Write(grant) => self.senders[place].change(|it| {
                    let parcels = grant.parcels.clone();
                    it.jobs.push(WriteJob { grant, parcels, waits: false });
                }),
                SenderOutput::Tell(word) => self.send(PushWire::Word(word)),
                SenderOutput::Refuse(refused) => self.send(PushWire::Refusal(refused)),
            }
        }
        self.senders[place].change(|it| {
            let machine = &it.machine;
            it.jobs.retain(|job| {
                let wanted = machine.may_write(job.grant.target, job.grant.number);
                wanted && !job.parcels.is_empty()
            });
        });
        self.forget_unheard();
    }

    /// A sender looks at its machine, and sends the next write of a job.
    pub(super) fn write(&mut self, place: usize, job: usize) {
        let write = self.senders[place].change(|it| {
            let job = &mut it.jobs[job];
            job.waits = true;
            PushWrite {
                target: job.grant.target,
                grant: job.grant.number,
                generation: job.grant.generation,
                from: place,
                parcel: *job.parcels.first().expect("jobs without parcels go"),
                content: it.memory,
                answered: true,
            }
        });
        self.send(PushWire::Write(write));
    }

    /// A sender hears how its write went: at once, or when it goes on.
    pub(super) fn answer(&mut self, write: PushWrite, done: bool) {
        let place = write.from;
        match (self.senders[place].alive, self.senders[place].stalled) {
            (false, _) => {}
            (true, true) => self.senders[place].change(|it| it.answers.push((write, done))),
            (true, false) => self.settle(&write, done),
        }
    }

    /// A sender takes an answer in, or that there is none.
    pub(super) fn settle(&mut self, write: &PushWrite, done: bool) {
        let place = write.from;
        self.senders[place].change(|it| {
            let own = |job: &WriteJob| {
                (job.grant.target, job.grant.number) == (write.target, write.grant)
            };
            if !done {
                it.jobs.retain(|job| !own(job));
                return it.machine.handle_failed(write.target, write.grant);
            }
            if let Some(job) = it.jobs.iter_mut().find(|job| own(job)) {
                job.parcels.remove(&write.parcel);
                job.waits = false;
            }
            it.machine.handle_parcel(write.target, write.grant, write.parcel);
        });
        self.obey_sender(place);
    }
}
