//! Seeds: a process brings a version into its datacentre in the background. A session of its own, with memory of its
//! own, replicates the version.

use weightcast_protocol::message::Role;
use weightcast_protocol::server::seed_name;
use weightcast_protocol::{Generation, Span};

use crate::parts::process::{CopyOf, Process};
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::world::World;

impl World {
    /// A process looks for memory, which may take long.
    pub(crate) fn begin_seed(&mut self, life: Life, ask: u64) {
        let slow = self.rng.chance(self.options.offload_trouble / 2);
        let millis = if slow { self.rng.between(300, 4_000) } else { self.rng.between(1, 40) };
        let step = ProcessStep::Seeded(ask);
        self.queue.plan(self.now + Span::from_millis(millis), WorldEvent::Process(life, step));
    }

    /// A process has found memory and opens the seed's session, or there is no memory.
    pub(crate) fn open_seed(&mut self, life: Life, ask: u64) {
        let Some(version) = self.processes[life.process].host.seeding.remove(&ask) else { return };
        if self.rng.chance(self.options.offload_trouble) {
            return self.seed_failed(life, ask);
        }
        let owner = &self.processes[life.process];
        let memory = owner.memory.anew();
        // The seed's memory begins empty: the generation of the owner's memory says nothing of it.
        let generation = Generation::default();
        let copy = CopyOf { owner: life, version, generation, ask: Some(ask), told: false };
        let seed = Process {
            replica: seed_name(&owner.replica, version),
            role: Role::Seed(version),
            memory,
            trouble: Default::default(),
            ..self.copied(copy)
        };
        self.start_copy(seed);
    }

    pub(crate) fn seed_failed(&mut self, life: Life, ask: u64) {
        let process = &mut self.processes[life.process];
        let now = process.clock.local(self.now);
        if process.life == life.life
            && let Some(session) = &mut process.session
        {
            session.handle_seed_failed(now, ask);
        }
    }
}
