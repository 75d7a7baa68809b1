//! A process as the host of its session. The world has the wires, the memory and the time.

use weightcast_protocol::message::{Answer, ClientMessage};
use weightcast_protocol::session::{Output, ReadOrder};
use weightcast_protocol::{
    Attempt, CallError, ConnectionId, Generation, Nonce, OpSeq, Span, TermProof, Version,
};
use weightcast_testkit::{Exposed, VirtualHost, VirtualRuntime, drive};

use crate::checkers::{Act, Fact};
use crate::parts::chunk_loop::Progress;
use crate::parts::process::{ChunkRead, Process, StagedMemory};
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::world::World;
use crate::world::progress::OUTPUTS;

/// A process that does what its session asks for.
struct ProcessHost<'a> {
    world: &'a mut World,
    life: Life,
    /// Outputs that were carried out so far.
    outputs: u64,
    /// The process has died between two outputs, or the session asks for outputs without end.
    halted: bool,
}

impl World {
    /// Carries out what a process's session asks for, then plans the session's timer.
    pub(crate) fn do_outputs(&mut self, life: Life) {
        let mut host = ProcessHost { world: self, life, outputs: 0, halted: false };
        drive(&mut host);
        if host.halted {
            return;
        }
        let process = &mut self.processes[life.process];
        let next = process.session.as_ref().and_then(|session| session.next_timeout());
        let Some(at) = next.map(|at| process.clock.world(at).max(self.now)) else { return };
        if process.timer_at.is_none_or(|planned| planned > at) {
            process.timer_at = Some(at);
            self.queue.plan(at, WorldEvent::Process(life, ProcessStep::Timer));
        }
    }
}

impl ProcessHost<'_> {
    fn process(&mut self) -> &mut Process {
        &mut self.world.processes[self.life.process]
    }

    /// Work in the background ends after at most so many milliseconds.
    fn plan_within(&mut self, millis: u64, step: ProcessStep) {
        let pause = Span::from_millis(self.world.rng.between(1, millis));
        self.world.queue.plan(self.world.now + pause, WorldEvent::Process(self.life, step));
    }
}

impl VirtualRuntime for ProcessHost<'_> {
    type Reading = ChunkRead;
    type Staged = StagedMemory;

    fn host(&mut self) -> &mut VirtualHost<ChunkRead, StagedMemory> {
        &mut self.process().host
    }

    fn next_output(&mut self) -> Option<Output> {
        if self.outputs > OUTPUTS {
            self.halted = true;
            self.world.hangs("a session has ever more to say".to_owned());
            return None;
        }
        let life = self.life.life;
        let process = self.process();
        let session = process.session.as_mut().filter(|_| process.life == life);
        let output = session?.poll_output()?;
        if self.outputs > 0 && self.world.process_dies_halfway(self.life.process) {
            self.halted = true;
            return None;
        }
        self.outputs += 1;
        self.world.fingerprint.session_output(&output);
        Some(output)
    }

    fn connect(&mut self, server: usize) {
        self.world.connect(self.life, server);
    }

    fn probe(&mut self, server: usize, proof: TermProof) {
        self.world.probe(self.life, server, proof);
    }

    fn send(&mut self, stream: ConnectionId, message: ClientMessage) {
        let World { network, now, rng, .. } = &mut *self.world;
        if let Some(at) = network.up(stream, *now, rng) {
            self.world.see_sending(self.life, stream, &message);
            self.world.queue.plan(at, WorldEvent::ToServer(stream, message));
        }
    }

    fn exposed(&mut self, generation: Generation) {
        let process = self.process();
        process.progress = Progress { generation, count: process.memory.len() };
        let who = self.world.who(self.life);
        self.world.observe(Fact::Exposed { who, generation });
    }

    /// Changes nothing: readers may still be told the progress of the generation before (F13).
    fn exposed_filling(&mut self, _: Generation) {}

    fn fenced(&mut self, generation: Generation, before: Option<Exposed>) {
        let process = self.process();
        let all = process.memory.len();
        process.siblings.sharing.close();
        process.left = before.map_or(0, |exposed| exposed.filled.unwrap_or(all));
        let who = self.world.who(self.life);
        self.world.observe(Fact::Fenced { who, generation });
    }

    fn seal(&mut self, generation: Generation) {
        let longest = self.world.options.digest_time.0 / 1_000_000;
        self.plan_within(longest, ProcessStep::Digested(generation));
    }

    fn prove(&mut self, generation: Generation, nonce: Nonce) {
        self.plan_within(60, ProcessStep::Proved(generation, nonce));
    }

    fn read(&mut self, order: ReadOrder) {
        self.world.acts(self.life, Act::Reads);
        // A read that begins anew overwrites spoiled chunks. A staged read leaves the spoiled memory as it is.
        self.process().trouble.spoiled &= order.keep || order.assignment.staged;
        self.world.begin_read(self.life, order);
    }

    fn measure(&mut self, seq: OpSeq, attempt: Attempt) {
        self.world.measure(self.life, seq, attempt);
    }

    fn unstaged(&mut self) {
        self.process().siblings.sharing.close();
    }

    fn install(&mut self, seq: OpSeq, attempt: Attempt) {
        self.world.acts(self.life, Act::Installs);
        self.world.begin_install(self.life, seq, attempt);
    }

    fn offload(&mut self, _: Version, generation: Generation) {
        self.world.begin_offload(self.life, generation);
    }

    fn seed(&mut self, _: Version, ask: u64, _: Span) {
        self.world.begin_seed(self.life, ask);
    }

    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        if result.is_ok() {
            self.world.acts(self.life, Act::Succeeds);
        }
        self.world.done(self.life, seq, result);
    }

    fn end(&mut self, error: Option<CallError>) {
        self.world.closed(self.life, error);
    }
}
