//! The data plane: a read copies one chunk at a time, as the source's memory is at that moment.

use weightcast_protocol::message::{ReadFailure, SourceShard};
use weightcast_protocol::session::{ReadOrder, ReadProgress};
use weightcast_protocol::{Attempt, OpSeq, Safeguard, Span, Time};
use weightcast_testkit::{Exposed, chunks_of};

use crate::checkers::Fact;
use crate::parts::chunk_loop::{self, ChunkLoop, Next};
use crate::parts::process::ChunkRead;
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::sights::coverage::Point;
use crate::world::World;

/// How long a source may be silent before a reader gives it up.
pub(super) const PATIENCE: Span = Span::from_millis(700);

/// How long a source that is being filled may have nothing new.
const STALL: Span = Span::from_millis(2_000);

/// Bytes of a chunk, as rates count them.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;

/// Why a source does not give what it is asked for.
enum ChunkRefusal {
    /// The source does not answer now.
    Silent,
    /// Another process answers, or another generation is served.
    Other(String),
}

impl World {
    pub(crate) fn begin_read(&mut self, life: Life, order: ReadOrder) {
        let near = self.is_near(life.process, &order);
        let process = &mut self.processes[life.process];
        let all = process.memory.len();
        process.siblings.begin(&order, near, all, self.now);
        if process.siblings.any() && order.since != Attempt::FIRST && !order.keep {
            self.report.points.insert(Point::SiblingsReadAlone);
        }
        let ReadOrder { seq, attempt, assignment, keep, .. } = order;
        let kept = if assignment.staged {
            process.stage(keep)
        } else {
            let left = process.left;
            let served = process.host.exposed.map_or(left, |e| e.filled.unwrap_or(all));
            if keep { served } else { 0 }
        };
        let mut chunks = if assignment.in_flight {
            let generation = assignment.shards[process.shard as usize].generation;
            ChunkLoop::following(all, kept, generation, STALL, self.now)
                .untagged(!self.options.safeguards.on(Safeguard::TaggedProgress))
        } else {
            ChunkLoop::new(all, kept)
        };
        if process.siblings.open().is_some() {
            chunks.keep(&process.siblings.there);
        }
        let moved_at = self.now;
        process.host.reading = Some(ChunkRead { seq, attempt, assignment, chunks, moved_at });
        let at = self.now + self.delay();
        self.plan_chunk(life, seq, attempt, at);
    }

    pub(super) fn plan_chunk(&mut self, life: Life, seq: OpSeq, attempt: Attempt, at: Time) {
        self.queue.plan(at, WorldEvent::Process(life, ProcessStep::Chunk(seq, attempt)));
    }

    /// Does what the chunk loop says next, or ends the read.
    pub(crate) fn read_chunk(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        let now = self.now;
        let process = &mut self.processes[life.process];
        let running = process.host.reading.as_mut();
        let current = running.filter(|read| read.seq == seq && read.attempt == attempt);
        let Some(read) = current else { return };
        if process.trouble.claims && !read.assignment.staged {
            return self.claim(life, seq, attempt);
        }
        if std::mem::take(&mut process.trouble.lies) {
            return self.lie(life, seq, attempt);
        }
        let own = process.shard;
        let siblings = &process.siblings;
        let next = read.chunks.next_of(now, |place| siblings.bringing(place, own).is_some());
        match next {
            Next::Read(place) => {
                let read = read.clone();
                self.ask_chunk(life, &read, place);
            }
            Next::Take(place) => {
                let read = read.clone();
                self.take_chunk(life, &read, place);
            }
            Next::Look => {
                let read = read.clone();
                self.look(life, &read, own);
            }
            Next::Wait(until) => self.plan_chunk(life, seq, attempt, until),
            Next::Done => self.end_read(life, seq, attempt, None),
            Next::Stalled => self.fail_read(life, seq, attempt, own, "it has nothing new".into()),
        }
    }

    /// Reports a finished read with the version's digests, without having read: a client can get the digests
    /// without a byte of the content.
    fn claim(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        let who = self.who(life);
        let process = &mut self.processes[life.process];
        self.impure = true;
        process.trouble.claims = false;
        process.trouble.spoiled = true; // from now on the process serves content that is not the version's
        let Some(read) = process.host.reading.take() else { return };
        let version = read.assignment.version;
        let mut content = process.memory.anew();
        content.fill(version);
        let now = process.clock.local(self.now);
        let term = process.session.as_ref().and_then(|s| s.lease()).map(|lease| lease.term);
        if let Some(session) = &mut process.session {
            session.handle_read(now, seq, attempt, Ok(content.sums()));
        }
        if let Some(term) = term {
            self.observe(Fact::Claimed { who, term, version });
        }
    }

    /// Accuses an innocent source, or reports a finished read that has not finished.
    fn lie(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        self.impure = true;
        let accusation = ReadFailure::Source { shard: 0, reason: "a lie".to_owned() };
        let failure = self.rng.chance(500).then_some(accusation);
        self.end_read(life, seq, attempt, failure);
    }

    fn ask_chunk(&mut self, life: Life, read: &ChunkRead, place: u32) {
        let chunk = self.processes[life.process].memory.range().start + place;
        let shard = self.shard_with(life.process, read, place);
        let source = &read.assignment.shards[shard as usize];
        match self.source(source) {
            Ok(index) => self.store_chunk(life, read, index, chunk),
            Err(refusal) => self.refused(life, read, shard, refusal),
        }
    }

    fn look(&mut self, life: Life, read: &ChunkRead, shard: u32) {
        let told = match self.source(&read.assignment.shards[shard as usize]) {
            Ok(index) => self.processes[index].progress,
            Err(refusal) => return self.refused(life, read, shard, refusal),
        };
        let now = self.now;
        let Some(running) = &mut self.processes[life.process].host.reading else { return };
        running.moved_at = now;
        if running.chunks.looked(now, told).is_err() {
            let reason = "its progress is of a later generation".to_owned();
            return self.refused(life, read, shard, ChunkRefusal::Other(reason));
        }
        let at = now + self.delay();
        self.plan_chunk(life, read.seq, read.attempt, at);
    }

    /// The process at a source's address, if the process serves the generation that the reader was told.
    fn source(&self, source: &SourceShard) -> Result<usize, ChunkRefusal> {
        let index = source.data_address.parse::<usize>().expect("addresses are indices");
        let process = &self.processes[index];
        if process.paused_until.max(process.trouble.mute_until) > self.now {
            return Err(ChunkRefusal::Silent);
        }
        if process.session.is_none() || process.export != source.export {
            return Err(ChunkRefusal::Other("no such export".to_owned()));
        }
        // No event comes between this check and the copy, as if each chunk were checked against the fence.
        if process.host.serves() != Some(source.generation) {
            return Err(ChunkRefusal::Other(format!(
                "generation {} is not served",
                source.generation
            )));
        }
        Ok(index)
    }

    /// Whether a process serves what it reads from another process, directly or through relays. A staged update
    /// does not count: a staged update reads into memory that is not served.
    fn reads_from(&self, process: usize, other: usize) -> bool {
        let (mut seen, mut next) = (vec![false; self.processes.len()], vec![process]);
        while let Some(index) = next.pop() {
            if index == other {
                return true;
            }
            let process = &self.processes[index];
            let fills = process.host.reading.as_ref().filter(|read| !read.assignment.staged);
            let Some(read) = fills.filter(|_| !seen[index]) else { continue };
            seen[index] = true;
            for (shard, source) in read.assignment.shards.iter().enumerate() {
                // A relay's shard is read only by the shard of the same number.
                if !read.assignment.in_flight || shard == process.shard as usize {
                    next.extend(self.source(source).ok());
                }
            }
        }
        false
    }

    fn refused(&mut self, life: Life, read: &ChunkRead, shard: u32, refusal: ChunkRefusal) {
        let reason = match refusal {
            ChunkRefusal::Silent if self.now - read.moved_at < PATIENCE => {
                let again = self.now + Span::from_millis(50);
                return self.plan_chunk(life, read.seq, read.attempt, again);
            }
            ChunkRefusal::Silent => "it does not answer".to_owned(),
            ChunkRefusal::Other(reason) => reason,
        };
        self.fail_read(life, read.seq, read.attempt, shard, reason);
    }

    fn store_chunk(&mut self, life: Life, read: &ChunkRead, source: usize, chunk: u32) {
        let from = &self.processes[source];
        let tag = from.memory.get(chunk);
        let there = from.host.exposed.is_none_or(|exposed| exposed.has(from.memory.place(chunk)));
        let (held, spoiled) = (from.version(), from.trouble.spoiled);
        let version = read.assignment.version;
        let in_circle = self.reads_from(source, life.process);
        if in_circle || !spoiled && !self.disputed(version) {
            let reader = life.process;
            self.observe(Fact::Served { reader, version, held, chunk, tag, there, in_circle });
        }
        self.see_giving(source);
        self.see_serving(source);
        self.see_entering(life, read, source, chunk);
        self.store(life, read, source, chunk, tag);
    }

    /// A chunk arrives, unless one of its bits flips.
    pub(super) fn store(
        &mut self,
        life: Life,
        read: &ChunkRead,
        source: usize,
        chunk: u32,
        tag: u64,
    ) {
        let flip = u64::from(self.flips > 0);
        self.flips -= flip;
        self.impure |= flip > 0;
        match read.assignment.staged {
            true => self.write_beside(life.process, chunk, tag ^ flip),
            false => self.write(life.process, chunk, tag ^ flip),
        }
        self.advance(life.process, chunk);
        let at = self.now + self.chunk_time(life.process, source);
        self.plan_chunk(life, read.seq, read.attempt, at);
    }

    fn see_giving(&mut self, source: usize) {
        let process = &self.processes[source];
        let life = Life { process: source, life: process.life };
        let Some(Exposed { generation, .. }) = process.host.exposed else { return };
        self.observe(Fact::Gave { who: self.who(life), generation });
    }

    /// How long a chunk takes on its way.
    fn chunk_time(&mut self, reader: usize, source: usize) -> Span {
        let [reader, source] = [&self.processes[reader], &self.processes[source]];
        let crosses = reader.location.datacentre != source.location.datacentre;
        let slow = source.trouble.slow_until > self.now;
        let times = if crosses { self.crossing_cost } else { 1 } * if slow { 100 } else { 1 };
        Span(self.rng.between(500_000, self.options.chunk_time.0) * times)
    }

    /// A shard that has siblings brings a chunk into its host.
    fn see_entering(&mut self, life: Life, read: &ChunkRead, source: usize, chunk: u32) {
        let process = &self.processes[life.process];
        let near = self.processes[source].location.host == process.location.host;
        if process.siblings.any() && !near {
            self.observe(Fact::Entered { who: self.who(life), seq: read.seq, chunk });
        }
    }

    /// Whether all sources are on the reader's host.
    fn is_near(&self, reader: usize, order: &ReadOrder) -> bool {
        let host = &self.processes[reader].location.host;
        let index = |shard: &SourceShard| shard.data_address.parse::<usize>().ok();
        let on = |shard: &SourceShard| index(shard).map(|i| &self.processes[i].location.host);
        order.assignment.shards.iter().all(|shard| on(shard) == Some(host))
    }

    /// A chunk has arrived. The chunk counts at once; readers are told of it now, or with a later chunk.
    fn advance(&mut self, index: usize, chunk: u32) {
        let now = self.now;
        let process = &mut self.processes[index];
        let Some(read) = &mut process.host.reading else { return };
        read.moved_at = now;
        let place = process.memory.place(chunk);
        let count = read.chunks.arrived(place);
        process.siblings.arrived(place);
        if let Some(beside) = process.host.beside.as_mut().filter(|_| read.assignment.staged) {
            beside.count = count;
        } else if let Some(exposed) = &mut process.host.exposed
            && exposed.filled.is_some()
        {
            exposed.filled = Some(count);
            if count == process.memory.len() || self.rng.chance(500) {
                process.progress = chunk_loop::Progress { generation: exposed.generation, count };
            }
        } else {
            process.left = count;
        }
    }

    /// Tells the session how far its read is.
    pub(crate) fn measure(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        let process = &self.processes[life.process];
        let Some(read) = &process.host.reading else { return };
        let (all, count) = (process.memory.len(), read.chunks.count());
        if count == all {
            return;
        }
        let shard = self.next_shard(life.process, read);
        let progress = ReadProgress {
            arrived: u64::from(count) * CHUNK_BYTES,
            left: u64::from(all - count) * CHUNK_BYTES,
            shard,
        };
        let process = &mut self.processes[life.process];
        let now = process.clock.local(self.now);
        if let Some(session) = &mut process.session {
            session.handle_progress(now, seq, attempt, progress);
        }
    }

    /// Which shard of its sources the next chunk of a read comes from.
    fn next_shard(&self, index: usize, read: &ChunkRead) -> u32 {
        self.shard_with(index, read, read.chunks.count())
    }

    /// Which shard of its sources the chunk at this place comes from.
    fn shard_with(&self, index: usize, read: &ChunkRead, place: u32) -> u32 {
        let first = self.processes[index].memory.range().start;
        if read.assignment.in_flight {
            return self.processes[index].shard;
        }
        let stripes = read.assignment.stripes() as u32;
        let shards = read.assignment.shards.len() as u32 / stripes;
        let chunks = self.options.chunks;
        let holder =
            (0..shards).find(|shard| chunks_of(*shard, shards, chunks).contains(&(first + place)));
        // Several sources take turns, chunk by chunk.
        place % stripes * shards + holder.expect("shards hold all chunks")
    }

    fn fail_read(&mut self, life: Life, seq: OpSeq, attempt: Attempt, shard: u32, reason: String) {
        self.end_read(life, seq, attempt, Some(ReadFailure::Source { shard, reason }));
    }

    fn end_read(&mut self, life: Life, seq: OpSeq, attempt: Attempt, failure: Option<ReadFailure>) {
        let reason = failure.as_ref().map(|failure| format!("{failure:?}"));
        self.observe(Fact::ReadEnded { who: self.who(life), failure: reason.as_deref() });
        let process = &mut self.processes[life.process];
        let staged = process.host.reading.take().is_some_and(|read| read.assignment.staged);
        let beside = process.host.beside.as_ref().filter(|_| staged);
        let memory = beside.map_or(&process.memory, |beside| &beside.memory);
        let result = failure.map_or_else(|| Ok(memory.sums()), Err);
        let now = process.clock.local(self.now);
        if let Some(session) = &mut process.session {
            session.handle_read(now, seq, attempt, result);
        }
    }
}
