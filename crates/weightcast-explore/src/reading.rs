//! The data plane: a read copies chunk after chunk from whatever the source's memory is then.

use weightcast_protocol::message::ReadFailure;
use weightcast_testkit::chunks_of;

use crate::bounds::CHUNKS;
use crate::cluster::ClusterState;
use crate::worker::SteppedRead;

impl ClusterState {
    /// Copies the next chunk, or ends the read: with its digest, or because the source is gone.
    ///
    /// The end is a step of its own, so that the source may change between the last chunk and the
    /// report.
    pub(crate) fn read(&mut self, worker: usize) {
        let Some(read) = self.workers[worker].host.reading.clone() else { return };
        if read.next == self.workers[worker].memory.range().end {
            return self.end_read(worker, &read, None);
        }
        match self.fetch(&read) {
            Ok(None) => {}
            Ok(Some(tag)) => {
                let event = self.workers[worker].change(|worker| {
                    let event = worker.store(read.next, tag);
                    worker.host.reading = Some(SteppedRead { next: read.next + 1, ..read });
                    event
                });
                self.note(worker, event.into_iter().collect());
            }
            Err(failure) => self.end_read(worker, &read, Some(failure)),
        }
    }

    /// Whether a read goes on: its source has the next chunk, or does not serve it any more.
    pub(crate) fn goes_on(&self, worker: usize) -> bool {
        let worker = &self.workers[worker];
        worker.host.reading.as_ref().is_some_and(|read| {
            read.next == worker.memory.range().end || !matches!(self.fetch(read), Ok(None))
        })
    }

    /// The next chunk; none if the source has not got it yet.
    fn fetch(&self, read: &SteppedRead) -> Result<Option<u64>, ReadFailure> {
        let shards = read.assignment.shards.len() as u32;
        let shard =
            (0..shards).find(|shard| chunks_of(*shard, shards, CHUNKS).contains(&read.next));
        let shard = shard.expect("the shards of a source hold all chunks");
        let named = &read.assignment.shards[shard as usize];
        let index: usize = named.data_address.parse().expect("addresses are places in the list");
        let source = &self.workers[index];
        // The check and the copy are one step: this is the fence of each chunk.
        let served = source.host.exposed.filter(|exposed| exposed.generation == named.generation);
        match served.filter(|_| source.export() == named.export) {
            None => Err(ReadFailure::Source { shard, reason: "not served".to_owned() }),
            Some(exposed) if !exposed.has(source.memory.place(read.next)) => Ok(None),
            Some(_) => Ok(Some(source.memory.get(read.next))),
        }
    }

    fn end_read(&mut self, worker: usize, read: &SteppedRead, failure: Option<ReadFailure>) {
        let events = self.workers[worker].change(|worker| {
            worker.host.reading = None;
            let result = failure.map_or_else(|| Ok(worker.memory.sums()), Err);
            worker.session.handle_read(worker.clock, read.seq, read.attempt, result);
            worker.obey()
        });
        self.note(worker, events);
    }
}
