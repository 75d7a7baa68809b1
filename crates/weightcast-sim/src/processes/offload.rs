//! Offloads: a process copies its memory aside, and the copy gets a session of its own. Here the copy is a process
//! too, which ends with the process whose memory was copied. A seed is made in the same way, but begins with empty
//! memory.

use weightcast_protocol::message::{EpochPolicy, Role};
use weightcast_protocol::server::offload_name;
use weightcast_protocol::{Generation, Span, Time};

use crate::parts::process::{CopyOf, Process, ProgramState, Trouble};
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::settings::fault_kinds::FaultKind;
use crate::world::World;

impl World {
    /// A process begins to copy its memory. Some copies are slow, and some fail for lack of room (F27).
    pub(crate) fn begin_offload(&mut self, life: Life, generation: Generation) {
        let slow = self.rng.chance(self.options.offload_trouble / 2);
        let millis = if slow { self.rng.between(300, 4_000) } else { self.rng.between(1, 80) };
        let step = ProcessStep::Copied(generation);
        self.queue.plan(self.now + Span::from_millis(millis), WorldEvent::Process(life, step));
    }

    pub(crate) fn end_offload(&mut self, life: Life, generation: Generation) {
        let process = &mut self.processes[life.process];
        let Some((version, _)) = process.host.offloading.take_if(|(_, of)| *of == generation)
        else {
            return;
        };
        if self.rng.chance(self.options.offload_trouble) {
            let copy = CopyOf { owner: life, version, generation, ask: None, told: false };
            return self.offload_failed(copy, "out of memory");
        }
        let copy = self.copied(CopyOf { owner: life, version, generation, ask: None, told: false });
        self.start_copy(copy);
    }

    /// Adds the process of a copy or of a seed, in the place of a freed one if there is any.
    pub(crate) fn start_copy(&mut self, copy: Process) {
        let index = match self.processes.iter().position(|p| p.is_free()) {
            Some(free) => {
                let life = self.processes[free].life;
                self.processes[free] = Process { life, ..copy };
                free
            }
            None => {
                self.processes.push(copy);
                self.processes.len() - 1
            }
        };
        let copy = Life { process: index, life: self.processes[index].life };
        self.queue.plan(self.now, WorldEvent::Process(copy, ProcessStep::Start));
    }

    /// The process for a shard of an offload replica.
    pub(crate) fn copied(&self, copy: CopyOf) -> Process {
        let version = copy.version;
        let owner = &self.processes[copy.owner.process];
        Process {
            replica: offload_name(&owner.replica, version),
            shard: owner.shard,
            num_shards: owner.num_shards,
            role: Role::Offload(version),
            epoch: EpochPolicy::Current,
            offload_seeding: false,
            life: 0,
            clock: owner.clock,
            session: None,
            host: Default::default(),
            streams: 0,
            memory: owner.memory.clone(),
            location: owner.location.clone(),
            progress: Default::default(),
            export: owner.export,
            left: 0,
            copy_of: Some(copy),
            paused_until: Time(0),
            trouble: Trouble { spoiled: owner.trouble.spoiled, ..Trouble::default() },
            timer_at: None,
            program: ProgramState::default(),
            siblings: Default::default(),
        }
    }

    fn offload_failed(&mut self, copy: CopyOf, reason: &str) {
        let process = &mut self.processes[copy.owner.process];
        let now = process.clock.local(self.now);
        if process.life == copy.owner.life
            && let Some(session) = &mut process.session
        {
            let (version, generation) = (copy.version, copy.generation);
            session.handle_offload_failed(now, version, generation, reason.to_owned());
        }
    }

    /// A copy or a seed has failed: its owner's session is told, once.
    fn copy_failed(&mut self, copy: CopyOf, reason: &str) {
        if copy.told {
            return;
        }
        match copy.ask {
            Some(ask) => self.seed_failed(copy.owner, ask),
            None => self.offload_failed(copy, reason),
        }
        self.do_outputs(copy.owner);
    }

    /// A call of an offload or seed replica has failed, so the replica is useless. Its session closes in good order.
    pub(crate) fn give_up_copy(&mut self, life: Life, reason: &str) {
        if let Some(copy) = &mut self.processes[life.process].copy_of {
            let copy = std::mem::replace(copy, CopyOf { told: true, ..*copy });
            self.copy_failed(copy, reason);
            self.close(life);
        }
    }

    /// The session of an offload or seed replica is over: the replica's memory is freed.
    pub(crate) fn end_copy(&mut self, index: usize, error: Option<String>) {
        let process = &mut self.processes[index];
        let Some(copy) = process.copy_of.take() else { return };
        process.life += 1;
        self.keep_session(index);
        let process = &mut self.processes[index];
        process.host.give_up();
        process.host.exposed = None;
        process.timer_at = None;
        self.break_stream(index);
        match error {
            Some(error) => self.copy_failed(copy, &error),
            None => self.copy_over(copy),
        }
    }

    /// A copy has ended without an error: the owner's session is told.
    fn copy_over(&mut self, copy: CopyOf) {
        let process = &mut self.processes[copy.owner.process];
        let now = process.clock.local(self.now);
        if process.life == copy.owner.life
            && copy.ask.is_none()
            && !copy.told
            && let Some(session) = &mut process.session
        {
            session.handle_offload_over(now, copy.version, copy.generation);
            self.do_outputs(copy.owner);
        }
    }

    /// A process is gone, and its copies go with it.
    pub(crate) fn end_copies_of(&mut self, owner: usize) {
        // To end a copy adds no process.
        for index in 0..self.processes.len() {
            let copy = self.processes[index].copy_of;
            if copy.is_some_and(|copy| copy.owner.process == owner) {
                self.end_copy(index, None);
            }
        }
    }

    /// The process that a fault strikes. A copy lives in its owner's process: a crash of the copy is one of the owner.
    pub(crate) fn whole_process(&self, victim: usize, kind: FaultKind) -> usize {
        let of_streams = [
            FaultKind::Break,
            FaultKind::Partition,
            FaultKind::Stall,
            FaultKind::Mute,
            FaultKind::Slow,
            FaultKind::Pause,
        ];
        let process = &self.processes[victim];
        match process.copy_of {
            Some(_) if of_streams.contains(&kind) => victim,
            Some(copy) => copy.owner.process,
            None if process.is_free() => 0,
            None => victim,
        }
    }
}

impl Process {
    /// Whether this is the unused place of a copy that was freed.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.role, Role::Offload(_) | Role::Seed(_)) && self.copy_of.is_none()
    }
}
