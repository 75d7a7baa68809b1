//! The data plane: a read takes its chunks one by one from whatever the source's memory is then.

use weightcast_protocol::message::{ReadFailure, SourceShard};
use weightcast_protocol::{Attempt, OpSeq, Span};

use crate::checkers::Fact;
use crate::memory::chunks_of;
use crate::queue::{Event, Life, Step};
use crate::world::World;

/// How long a source may be silent before a reader gives it up.
const PATIENCE: Span = Span::from_millis(700);

/// What came of trying to read one chunk.
enum Chunk {
    Tag(u64),
    /// The source does not answer now.
    Silent,
    /// The source is another, or serves another generation.
    Refused(String),
}

impl World {
    /// Reads the next chunk, or ends the read.
    pub(crate) fn read_chunk(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        let process = &self.processes[life.process];
        let current = |read: &&crate::process::Read| read.seq == seq && read.attempt == attempt;
        let Some(read) = process.read.as_ref().filter(current).cloned() else { return };
        if read.next == process.memory.range().end {
            return self.end_read(life, seq, attempt, None);
        }
        let shards = read.assignment.shards.len() as u32;
        if std::mem::take(&mut self.processes[life.process].trouble.lies) {
            return self.lie(life, &read);
        }
        let holds =
            |shard: &u32| chunks_of(*shard, shards, self.options.chunks).contains(&read.next);
        let shard = (0..shards).find(holds).expect("shards hold all chunks");
        let source = &read.assignment.shards[shard as usize];
        let failure = match self.fetch(source, read.next) {
            Chunk::Tag(tag) => {
                let index = source.data_address.parse::<usize>().expect("addresses are indices");
                return self.store_chunk(life, &read, index, tag);
            }
            Chunk::Silent if self.now - read.moved_at < PATIENCE => {
                let again = self.now + Span::from_millis(50);
                let step = Step::Chunk(seq, attempt);
                return self.queue.plan(again, Event::Process(life, step));
            }
            Chunk::Silent => "it does not answer".to_owned(),
            Chunk::Refused(reason) => reason,
        };
        self.end_read(life, seq, attempt, Some(ReadFailure::Source { shard, reason: failure }));
    }

    /// Accuses a source that did nothing, or says that all was read.
    fn lie(&mut self, life: Life, read: &crate::process::Read) {
        let accusation = ReadFailure::Source { shard: 0, reason: "a lie".to_owned() };
        let failure = self.rng.chance(500).then_some(accusation);
        self.end_read(life, read.seq, read.attempt, failure);
    }

    fn fetch(&self, source: &SourceShard, chunk: u32) -> Chunk {
        let index = source.data_address.parse::<usize>().expect("addresses are indices");
        let process = &self.processes[index];
        if process.paused_until.max(process.trouble.mute_until) > self.now {
            return Chunk::Silent;
        }
        if process.session.is_none() || process.export != source.export {
            return Chunk::Refused("no such export".to_owned());
        }
        // The check and the copy are one step here: the fence of each chunk.
        if process.exposed != Some(source.generation) {
            return Chunk::Refused(format!("generation {} is not served", source.generation));
        }
        Chunk::Tag(process.memory.get(chunk))
    }

    fn store_chunk(&mut self, life: Life, read: &crate::process::Read, source: usize, tag: u64) {
        if !self.processes[source].trouble.spoiled {
            let served = Fact::Served { version: read.assignment.version, chunk: read.next, tag };
            self.observe(served);
        }
        let flip = u64::from(self.flips > 0);
        self.flips -= flip;
        self.write(life.process, read.next, tag ^ flip);
        let now = self.now;
        if let Some(read) = &mut self.processes[life.process].read {
            read.next += 1;
            read.moved_at = now;
        }
        let slow = self.processes[source].trouble.slow_until > now;
        let pause = self.rng.between(500_000, self.options.chunk_time.0);
        let pause = Span(if slow { pause * 20 } else { pause });
        let step = Step::Chunk(read.seq, read.attempt);
        self.queue.plan(now + pause, Event::Process(life, step));
    }

    fn end_read(&mut self, life: Life, seq: OpSeq, attempt: Attempt, failure: Option<ReadFailure>) {
        let reason = failure.as_ref().map(|failure| format!("{failure:?}"));
        self.observe(Fact::ReadEnded { who: self.who(life), failure: reason.as_deref() });
        let process = &mut self.processes[life.process];
        process.read = None;
        let result = failure.map_or_else(|| Ok(process.memory.sums()), Err);
        let now = process.clock.local(self.now);
        if let Some(session) = &mut process.session {
            session.handle_read(now, seq, attempt, result);
        }
    }
}
