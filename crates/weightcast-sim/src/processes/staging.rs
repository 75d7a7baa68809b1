//! Staged updates: a process reads into memory beside the registered memory, and copies the bytes into place when
//! its session asks for that.

use weightcast_protocol::{Attempt, OpSeq, Span};

use crate::checkers::Fact;
use crate::parts::process::{Process, StagedMemory};
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::world::World;

impl Process {
    /// Makes memory to read into beside the registered memory; returns how many chunks have arrived in it already.
    pub(crate) fn stage(&mut self, keep: bool) -> u32 {
        match &self.host.beside {
            Some(beside) if keep => beside.count,
            _ => {
                let memory = self.memory.anew();
                self.host.beside = Some(StagedMemory { memory, count: 0 });
                self.host.installing = None;
                0
            }
        }
    }
}

impl World {
    /// A chunk arrives beside the registered memory, where no other process can read the chunk.
    pub(crate) fn write_beside(&mut self, index: usize, chunk: u32, tag: u64) {
        let process = &mut self.processes[index];
        let place = process.memory.place(chunk);
        let given = process.siblings.give(place, true);
        let exposed = process.session.as_ref().filter(|_| given).map(|s| s.generation());
        let replica = process.replica.clone();
        if let Some(beside) = &mut process.host.beside {
            beside.memory.set(chunk, tag);
        }
        self.observe(Fact::Changes { replica: &replica, exposed, held: None });
    }

    /// Copies half of the chunks into place at once, and plans the copying of the rest.
    pub(crate) fn begin_install(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        // All shards have read.
        self.processes[life.process].siblings.sharing.close();
        let all = self.processes[life.process].memory.range();
        self.copy_into_place(life.process, all.start..all.start + all.len() as u32 / 2);
        let slow = self.rng.chance(30);
        let millis = if slow { self.rng.between(200, 2_500) } else { self.rng.between(1, 60) };
        let step = ProcessStep::Installed(seq, attempt);
        self.queue.plan(self.now + Span::from_millis(millis), WorldEvent::Process(life, step));
    }

    pub(crate) fn end_install(&mut self, life: Life, seq: OpSeq, attempt: Attempt) {
        let process = &self.processes[life.process];
        let host = &process.host;
        if host.beside.is_none() || host.installing != Some((seq, attempt)) {
            return;
        }
        self.copy_into_place(life.process, process.memory.range());
        let process = &mut self.processes[life.process];
        (process.host.beside, process.host.installing) = (None, None);
        process.trouble.spoiled = false;
        let now = process.clock.local(self.now);
        if let Some(session) = &mut process.session {
            session.handle_installed(now, seq, attempt);
        }
    }

    fn copy_into_place(&mut self, index: usize, chunks: std::ops::Range<u32>) {
        for chunk in chunks {
            let beside = self.processes[index].host.beside.as_ref();
            if let Some(tag) = beside.map(|beside| beside.memory.get(chunk)) {
                self.write(index, chunk, tag);
            }
        }
    }
}
