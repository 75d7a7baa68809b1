//! How shards read. As with the transports, a reader waits at a source that is being filled itself,
//! and gets each unit as soon as the unit is final at the source. A shard keeps what it has when it
//! goes on at another source.

use weightcast_protocol::message::ReadFailure;
use weightcast_protocol::session::ReadOrder;
use weightcast_protocol::{Attempt, OpSeq, ShardSums, Span, Sum, Version};
use weightcast_testkit::mix;

use super::event::Happening;
use super::flows::End;
use super::player::Player;
use super::worker::{FlowRead, seconds};

impl Player<'_> {
    /// How many units a shard has.
    pub(super) fn units(&self) -> u32 {
        self.shard_bytes.div_ceil(self.unit) as u32
    }

    /// Bytes of the first `units` units.
    fn bytes(&self, units: u32) -> u64 {
        (u64::from(units) * self.unit).min(self.shard_bytes)
    }

    /// Latency from a source to its reader, one way.
    fn way(&self, source: usize, reader: usize) -> Span {
        let latency = &self.setting.latency;
        let crosses = self.cluster.crosses(source, reader);
        seconds(if crosses { latency.outer_ms / 1e3 } else { latency.inner_us / 1e6 })
    }

    pub(super) fn begin_read(&mut self, index: usize, order: &ReadOrder) {
        let ReadOrder { seq, attempt, ref assignment, keep, .. } = *order;
        self.stop_read(index);
        let worker = &mut self.workers[index];
        worker.filled = if keep { worker.filled } else { 0 };
        let kept = worker.filled;
        let from = &assignment.shards[self.cluster.places[index].shard as usize];
        let source = from.data_address.parse::<usize>().expect("addresses are numbers of workers");
        let there = &self.workers[source];
        let gone = there.session.is_none() || there.export != from.export;
        let lost = gone || there.host.serves() != Some(from.generation);
        let version = assignment.version;
        self.workers[index].host.reading =
            Some(FlowRead { seq, attempt, version, source, kept, lost });
        let way = self.way(source, index);
        if lost {
            let silence = seconds(self.setting.latency.silence_s);
            let (after, why) =
                if gone { (silence, "it does not answer") } else { (way, "it has moved on") };
            return self.plan_for(index, after, Happening::Lost(seq, attempt, why));
        }
        let watched = !self.workers[index].followers.is_empty();
        self.flows.open(self.now, index, self.cluster.path(source, index), self.unit, watched);
        self.count(source);
        if assignment.in_flight {
            self.workers[source].followers.insert(index);
            self.flows.watch(self.now, source);
        }
        // One way for the question, one way for the answer.
        let told = Happening::Told(seq, attempt, self.workers[source].filled);
        self.plan_for(index, Span(way.0 * 2), told);
    }

    /// Updates how many units have arrived.
    fn count(&mut self, index: usize) {
        let Some(kept) = self.workers[index].host.reading.as_ref().map(|read| read.kept) else {
            return;
        };
        let done = self.flows.done(self.now, index);
        let all = self.bytes(kept) as f64 + done >= self.shard_bytes as f64;
        let there = if all { self.units() } else { kept + (done / self.unit as f64) as u32 };
        let worker = &mut self.workers[index];
        worker.filled = there.max(worker.filled);
    }

    /// The source has this many units: the reader asks for all of them.
    pub(super) fn told(&mut self, index: usize, seq: OpSeq, attempt: Attempt, units: u32) {
        let Some(read) = self.reading(index, seq, attempt).filter(|read| !read.lost) else {
            return;
        };
        let goal = self.bytes(units).saturating_sub(self.bytes(read.kept));
        self.flows.ask(self.now, index, goal as f64);
        self.end_if_filled(index);
    }

    fn reading(&self, index: usize, seq: OpSeq, attempt: Attempt) -> Option<&FlowRead> {
        let read = self.workers[index].host.reading.as_ref();
        read.filter(|read| read.seq == seq && read.attempt == attempt)
    }

    /// Another unit has arrived, or everything that was asked for: followers are told.
    pub(super) fn flow_reached(&mut self, end: End) {
        let index = end.reader;
        if !self.flows.reached(self.now, end) {
            return;
        }
        let before = self.workers[index].filled;
        self.count(index);
        let filled = self.workers[index].filled;
        if filled > before {
            let followers: Vec<usize> = self.workers[index].followers.iter().copied().collect();
            for reader in followers {
                let Some(read) = &self.workers[reader].host.reading else { continue };
                let told = Happening::Told(read.seq, read.attempt, filled);
                self.plan_for(reader, self.way(index, reader), told);
            }
        }
        self.end_if_filled(index);
    }

    fn end_if_filled(&mut self, index: usize) {
        self.count(index);
        if self.workers[index].filled == self.units() {
            self.end_read(index, None);
        }
    }

    /// A worker no longer serves: its readers notice after `after`, at the earliest after one way.
    pub(super) fn readers_lose(&mut self, source: usize, after: Span, why: &'static str) {
        for index in 0..self.workers.len() {
            let Some(read) = self.workers[index].host.reading.as_ref() else { continue };
            let (seq, attempt) = (read.seq, read.attempt);
            if read.source != source || read.lost {
                continue;
            }
            self.close_flow(index);
            if let Some(read) = &mut self.workers[index].host.reading {
                read.lost = true;
            }
            let after = after.max(self.way(source, index));
            self.plan_for(index, after, Happening::Lost(seq, attempt, why));
        }
    }

    pub(super) fn lost(&mut self, index: usize, seq: OpSeq, attempt: Attempt, why: &str) {
        if self.reading(index, seq, attempt).is_some() {
            self.end_read(index, Some(why));
        }
    }

    /// Ends a read without a report: the session has stopped or replaced the read.
    pub(super) fn stop_read(&mut self, index: usize) {
        self.close_flow(index);
        self.workers[index].host.reading = None;
    }

    fn end_read(&mut self, index: usize, failure: Option<&str>) {
        self.close_flow(index);
        let Some(read) = self.workers[index].host.reading.take() else { return };
        let shard = self.cluster.places[index].shard;
        let result = match failure {
            None => Ok(sums(read.version, shard)),
            Some(reason) => Err(ReadFailure::Source { shard, reason: reason.to_owned() }),
        };
        if let Some(session) = &mut self.workers[index].session {
            session.handle_read(self.now, read.seq, read.attempt, result);
        }
    }

    /// Closes a flow, and counts its bytes on each link of its path.
    fn close_flow(&mut self, index: usize) {
        self.count(index);
        let Some(read) = &self.workers[index].host.reading else { return };
        let (source, version) = (read.source, read.version.number);
        self.workers[source].followers.remove(&index);
        let Some((bytes, path)) = self.flows.close(self.now, index) else { return };
        path.iter().for_each(|link| self.flows.links[*link].bytes += bytes);
        if self.cluster.crosses(source, index) {
            let to = self.cluster.places[index].location.datacentre.clone();
            *self.outcome.crossed.entry((version, to)).or_default() += bytes / 1e9;
        }
    }

    /// The digests of the version that a worker has published.
    pub(super) fn sums_of_published(&self, index: usize) -> ShardSums {
        let worker = &self.workers[index];
        let version = worker.session.as_ref().and_then(|session| session.version());
        version.map_or(ShardSums::default(), |v| sums(v, self.cluster.places[index].shard))
    }
}

/// Digests of one shard of a version. In scenarios bytes are never wrong.
fn sums(version: Version, shard: u32) -> ShardSums {
    let lane = |n: u64| mix(&[n, version.epoch.0, version.number, shard.into()]);
    let sum = Sum([lane(1), lane(2)]);
    ShardSums { counted: sum, held: sum, expected: sum }
}
