//! A process's runtime: takes events to the session, and ends streams, calls and the session itself.

use weightcast_protocol::message::{Answer, Call, ServerMessage};
use weightcast_protocol::{CallError, ConnectionId, OpSeq, Safeguard, Span, Term, TermProof, Time};

use crate::checkers::{Fact, SessionFacts};
use crate::parts::queue::{Life, ProcessStep, ServerStep, WorldEvent};
use crate::parts::siblings::SiblingChunks;
use crate::sights::coverage::Point;
use crate::world::World;

impl World {
    /// An event reaches a process; afterwards the outputs of the process's session are carried out.
    pub(crate) fn step(&mut self, life: Life, step: ProcessStep) {
        let process = &mut self.processes[life.process];
        if process.life != life.life {
            return;
        }
        if process.paused_until > self.now {
            return self.queue.plan(process.paused_until, WorldEvent::Process(life, step));
        }
        let now = process.clock.local(self.now);
        match step {
            ProcessStep::Start => return self.start(life.process),
            ProcessStep::Act => self.act(life),
            ProcessStep::Close => self.close(life),
            ProcessStep::Copied(generation) => self.end_offload(life, generation),
            ProcessStep::Seeded(ask) => self.open_seed(life, ask),
            ProcessStep::Written(number) => self.publish_written(life, number),
            ProcessStep::Chunk(seq, attempt) => self.read_chunk(life, seq, attempt),
            ProcessStep::Installed(seq, attempt) => self.end_install(life, seq, attempt),
            ProcessStep::Connected(asked, stream) => {
                self.connected(life.process, asked, stream, now)
            }
            step => self.tell_session(life.process, step, now),
        }
        self.do_outputs(life);
        self.see_serving(life.process);
    }

    fn tell_session(&mut self, index: usize, step: ProcessStep, now: Time) {
        let process = &mut self.processes[index];
        let (stream, memory) = (process.host.stream, process.memory.sums());
        let shown = match step {
            ProcessStep::Proved(_, nonce) => process.memory.proof(nonce),
            _ => 0,
        };
        let Some(session) = &mut process.session else { return };
        match step {
            ProcessStep::Timer => {
                process.timer_at = None;
                session.handle_timeout(now);
            }
            ProcessStep::Message(from, sent_in, message) if stream == Some(from) => {
                self.take(index, now, from, sent_in, message);
            }
            ProcessStep::Message(_, sent_in, _) => {
                let own = session.lease().map(|lease| lease.term);
                if own.is_some_and(|own| own > sent_in && sent_in > Term(0)) {
                    self.report.points.insert(Point::ZombieUnheard);
                }
            }
            ProcessStep::Probed { server, told, acts } => {
                session.handle_probed(now, server, told, acts)
            }
            ProcessStep::Gone(from) if stream == Some(from) => {
                process.host.stream = None;
                session.handle_disconnected(now);
            }
            ProcessStep::Proved(generation, nonce) => {
                process.host.proving.retain(|asked| *asked != (generation, nonce));
                session.handle_proved(now, generation, nonce, shown);
            }
            ProcessStep::Digested(generation) => {
                process.host.sealing.take_if(|sealing| *sealing == generation);
                session.handle_sealed(now, generation, memory);
            }
            _ => {}
        }
    }

    fn connected(&mut self, index: usize, asked: u64, stream: Option<ConnectionId>, now: Time) {
        if self.processes[index].streams != asked {
            stream.into_iter().for_each(|stream| self.break_wire(stream));
            return; // the session has asked for another stream meanwhile
        }
        let stream = stream.filter(|stream| self.network.client(*stream).is_some());
        let process = &mut self.processes[index];
        process.host.stream = stream;
        let Some(session) = &mut process.session else { return };
        match stream {
            Some(_) => session.handle_connected(now),
            None => session.handle_disconnected(now),
        }
    }

    /// The program or a read changes a chunk of a process's memory. A served chunk must not change.
    pub(crate) fn write(&mut self, index: usize, chunk: u32, tag: u64) {
        let process = &mut self.processes[index];
        process.program.kept = None;
        process.memory.set(chunk, tag);
        let place = process.memory.place(chunk);
        let served = process.host.exposed.filter(|exposed| exposed.has(place));
        let given = process.siblings.give(place, false);
        let given = process.session.as_ref().filter(|_| given).map(|session| session.generation());
        let copied = process.host.offloading.map(|(_, generation)| generation);
        let exposed = served.map(|exposed| exposed.generation).or(copied).or(given);
        let held = process.version();
        let replica = process.replica.clone();
        self.observe(Fact::Changes { replica: &replica, exposed, held });
    }

    /// A server's message arrives at the session.
    fn take(
        &mut self,
        index: usize,
        local: Time,
        stream: ConnectionId,
        sent_in: Term,
        message: ServerMessage,
    ) {
        let process = &mut self.processes[index];
        let life = (index, process.life);
        let Some(session) = &mut process.session else { return };
        let before = SessionFacts::of(session);
        session.handle_message(local, message.clone());
        let after = SessionFacts::of(session);
        self.came_over |= before.term.is_some_and(|term| after.term > Some(term));
        let message = &message;
        self.observe(Fact::Took { life, stream, local, sent_in, message, before, after });
    }

    pub(crate) fn probe(&mut self, client: Life, server: usize, told: TermProof) {
        if self.reaches(client.process, server) {
            let at = self.now + self.delay();
            let seat = self.seat(server);
            self.queue.plan(at, WorldEvent::Server(seat, ServerStep::Probe { client, told }));
        }
    }

    /// Asks for a new stream. The process forgets the older stream; the older stream's server notices.
    pub(crate) fn connect(&mut self, life: Life, server: usize) {
        self.break_stream(life.process);
        let process = &mut self.processes[life.process];
        process.host.stream = None;
        process.streams += 1;
        let asked = process.streams;
        let reachable = self.reaches(life.process, server);
        let stream = reachable.then(|| self.network.open(life, server));
        let at = self.now + self.delay();
        self.queue.plan(at, WorldEvent::Process(life, ProcessStep::Connected(asked, stream)));
    }

    pub(crate) fn done(&mut self, life: Life, seq: OpSeq, result: Result<Answer, CallError>) {
        let process = &mut self.processes[life.process];
        let held = process.version();
        process.siblings.sharing.close();
        let pending = process.program.pending.take();
        let unpublishes = pending.as_ref().is_some_and(|pending| pending.call == Call::Unpublish);
        let program = &mut process.program;
        match &result {
            Ok(Answer::Registered { siblings, .. }) => {
                program.registered = true;
                // Others have nothing in common.
                if process.memory.is_replicated() {
                    let safeguards = self.options.safeguards;
                    process.siblings = SiblingChunks::registered(siblings, safeguards);
                }
            }
            Ok(Answer::Unregistered) => {
                program.registered = false;
                process.siblings = SiblingChunks::default();
            }
            Ok(Answer::Published { version }) => program.kept = Some(*version),
            Err(CallError::Misuse { .. }) if unpublishes => program.must_unpublish = false,
            Ok(Answer::Listed(listing)) => program.revision = listing.revision,
            Ok(Answer::Committed { version, .. }) => program.kept = Some(*version),
            Ok(Answer::Unpublished) => program.must_unpublish = false,
            // `unpublish` fails with this error too, but gives the copy up all the same.
            Err(CallError::ContentMismatch { .. }) => program.must_unpublish = !unpublishes,
            Err(CallError::Timeout { .. }) if unpublishes => program.must_unpublish = true,
            // A transfer may have written over some of the shards.
            Err(_) => program.kept = None,
            _ => {}
        }
        // After a failed call the memory is the program's again, and some shards write to the memory.
        program.kept = program.kept.filter(|_| result.is_ok() || held.is_some());
        let who = self.who(life);
        let process = &self.processes[life.process];
        let honest = held.filter(|held| !process.trouble.spoiled && !self.disputed(*held));
        let foreign = honest.and_then(|held| Some((held, process.memory.foreign(held)?)));
        let (result, pending) = (&result, pending.filter(|pending| pending.seq == seq));
        let paused = process.paused_until + self.options.lease > self.now;
        let due = pending.as_ref().map(|pending| pending.due).filter(|_| !paused);
        let call = pending.as_ref().map(|pending| &pending.call);
        let term = process.session.as_ref().and_then(|s| s.lease()).map(|lease| lease.term);
        self.count(call, result);
        let leaves = self.leaves(life);
        self.observe(Fact::Done { who, seq, result, foreign, due, term, leaves });
        if let Err(error) = result {
            self.give_up_copy(life, &error.to_string());
            self.scribble(life);
        }
        self.plan_act(life);
    }

    /// The session is over: the process starts a new one, after a while.
    pub(crate) fn closed(&mut self, life: Life, error: Option<CallError>) {
        self.observe(Fact::Left { who: self.who(life), error: error.as_ref() });
        if self.processes[life.process].copy_of.is_some() {
            return self.end_copy(life.process, error.map(|error| error.to_string()));
        }
        let process = &mut self.processes[life.process];
        process.life += 1;
        self.keep_session(life.process);
        let process = &mut self.processes[life.process];
        process.host.give_up();
        process.siblings = SiblingChunks::default();
        process.host.exposed.take_if(|_| self.options.safeguards.on(Safeguard::SourceFence));
        self.break_stream(life.process);
        let next = Life { process: life.process, life: self.processes[life.process].life };
        let pause = Span(self.rng.between(1, 300) * 1_000_000);
        self.queue.plan(self.now + pause, WorldEvent::Process(next, ProcessStep::Start));
    }
}
