//! A process runs its program: the process starts, makes calls, writes its memory, closes.

use weightcast_protocol::message::{Call, Open, Role};
use weightcast_protocol::server::ReplicaState;
use weightcast_protocol::session::{Session, SessionConfig, SessionState};
use weightcast_protocol::{ContentDigest, ExportId, PROTOCOL, Selector, Span, Version};
use weightcast_testkit::mix;

use crate::parts::action::Action;
use crate::parts::chunk_loop::Progress;
use crate::parts::host::recorded;
use crate::parts::process::INSTALL_DEADLINE;
use crate::parts::process::{ProgramState, RunningCall};
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::processes::program::publish;
use crate::processes::reading::CHUNK_BYTES;
use crate::world::World;

/// Sets apart the dice that decide whether a life strays.
const STRAY: u64 = 0x0073_7472_6179;

impl World {
    /// Whether a life is about a model of its own, instead of the common one. Some lives of rollouts of one shard are,
    /// until the faults are over.
    fn strays(&self, index: usize) -> bool {
        let process = &self.processes[index];
        let alone = process.role == Role::Rollout && process.num_shards == 1;
        let dice = mix(&[self.seed, index as u64, process.life.into(), STRAY]);
        !self.quiet && alone && dice.is_multiple_of(12)
    }

    /// A new life begins: a new session, a new export, a program that has done nothing yet.
    pub(crate) fn start(&mut self, index: usize) {
        let stray = self.strays(index);
        let process = &mut self.processes[index];
        process.export = ExportId(mix(&[self.seed, index as u64, process.life.into()]));
        let open = Open {
            protocol: PROTOCOL,
            session: self.options.session_id(mix(&[
                self.seed,
                index as u64,
                process.life.into(),
                7,
            ])),
            ticket: None,
            rejoins: false,
            model: match stray {
                true => format!("stray-{index}-{}", process.life),
                false => "policy".to_owned(),
            },
            replica: process.replica.clone(),
            shard: process.shard,
            num_shards: process.num_shards,
            role: process.role,
            epoch: process.epoch,
            retain: if process.role == Role::Trainer { self.options.retain } else { 0 },
            offload_seeding: process.offload_seeding,
            location: process.location.clone(),
            data_address: index.to_string(),
            activate: false,
        };
        let mut config = SessionConfig::new(open, "server");
        config.relays = true;
        config.servers = self.hosts.len();
        config.reconnect = self.options.reconnect;
        config.patience = Span(self.options.lease.0 / 2);
        config.pace_window = Span::from_millis(300);
        config.progress_every = self.options.progress_every;
        config.slow_patience = Span::from_millis(200);
        // Below the pace of the slowest crossing (8 times the longest chunk time), far above that
        // of a slow source (100 times).
        config.slow_pace = CHUNK_BYTES * 1_000_000_000 / (12 * self.options.chunk_time.0);
        // A session tries all servers of its list in less than a lease (L5).
        config.backoff_max = Span(self.options.lease.0 / (2 * self.hosts.len() as u64));
        config.safeguards = self.options.safeguards;
        let session = Session::new(config, process.clock.local(self.now));
        process.session = Some(recorded(session, &self.options));
        process.program = ProgramState { stray, ..ProgramState::default() };
        process.host.exposed = None;
        process.siblings = Default::default();
        process.progress = Progress::default();
        process.timer_at = None;
        let life = Life { process: index, life: process.life };
        self.plan_act(life);
        self.do_outputs(life);
    }

    /// Plans the program's next action, after a pause.
    pub(crate) fn plan_act(&mut self, life: Life) {
        let pause = Span(self.rng.between(1_000_000, self.options.think_time.0));
        self.queue.plan(self.now + pause, WorldEvent::Process(life, ProcessStep::Act));
    }

    pub(crate) fn act(&mut self, life: Life) {
        let process = &self.processes[life.process];
        if process.copy_of.is_some() && process.version().is_some() {
            return; // an offload or seed replica that holds its version has nothing more to do
        }
        if self.processes[life.process].program.pending.is_some() || self.leaves(life) {
            return;
        }
        if self.processes[life.process].trouble.dawdles_until > self.now {
            return self.plan_act(life);
        }
        match self.action(life.process) {
            Action::Idle => self.plan_act(life),
            Action::Call(call, deadline) => self.call(life, call, deadline),
            Action::Write(number) => self.begin_writing(life, number),
            Action::Close => self.close(life),
        }
    }

    /// After a failed call the memory is the program's again: some programs write to it.
    pub(crate) fn scribble(&mut self, life: Life) {
        let process = &self.processes[life.process];
        let dice = mix(&[self.seed, life.process as u64, process.program.position.into()]);
        let rollout = process.role == Role::Rollout && process.version().is_none();
        if rollout && dice.is_multiple_of(4) && !self.leaves(life) {
            let range = process.memory.range();
            let own = range.filter(|chunk| (dice >> 8).wrapping_add(u64::from(*chunk)) % 3 == 0);
            own.for_each(|chunk| self.write(life.process, chunk, dice));
        }
    }

    /// Whether the process's session is closing or over. While a session closes, its readers finish, so the program may
    /// not write to the memory.
    pub(crate) fn leaves(&self, life: Life) -> bool {
        let session = self.processes[life.process].session.as_ref();
        let over = [SessionState::Closing, SessionState::Ended];
        session.is_none_or(|session| over.contains(&session.state()))
    }

    pub(crate) fn close(&mut self, life: Life) {
        let process = &mut self.processes[life.process];
        let now = process.clock.local(self.now);
        if let Some(session) = &mut process.session {
            session.close(now, Span::from_secs(2));
        }
    }

    /// The call that a process makes: another one than its group's, if the process is to diverge.
    fn diverted(&mut self, life: Life, call: Call) -> Call {
        let process = &mut self.processes[life.process];
        let alone = process.num_shards == 1 || !process.program.registered;
        if alone || !std::mem::take(&mut process.trouble.diverts) {
            return call;
        }
        match call {
            Call::Publish { version, generation, .. } => {
                Call::Publish { version, catalog: ContentDigest([9; 16]), generation }
            }
            Call::List => Call::Describe { selector: Selector::Latest },
            _ => Call::List,
        }
    }

    fn call(&mut self, life: Life, call: Call, deadline: Span) {
        let call = self.diverted(life, call);
        let deadline = self.deadline(life, deadline);
        let process = &mut self.processes[life.process];
        let Some(session) = &mut process.session else { return };
        let local = process.clock.local(self.now);
        process.program.position += 1;
        if let Ok(seq) = session.call(local, call.clone(), deadline) {
            // The session ends a call at the latest a second after the deadline. A session that is putting a staged
            // version in place has more time.
            let staged = matches!(call, Call::Update { staged: true, .. });
            let more = if staged { Span(INSTALL_DEADLINE.0 + 1_000_000_000) } else { Span(0) };
            let due = process.clock.world(local + deadline + more + Span::from_millis(1_001));
            process.program.pending = Some(RunningCall { seq, call, due });
        }
    }

    /// The deadline of a call: the option's, if one is set. Calls of copies keep their usual deadline, which weightcast
    /// itself chooses.
    fn deadline(&self, life: Life, usual: Span) -> Span {
        let copy = self.processes[life.process].copy_of.is_some();
        match self.options.call_deadline {
            Span(0) => usual,
            _ if copy => usual,
            deadline => deadline,
        }
    }

    /// The trainer's optimiser step. Until the step has ended, the memory holds no version.
    fn begin_writing(&mut self, life: Life, number: u64) {
        for chunk in self.processes[life.process].memory.range() {
            let dirt = mix(&[self.now.0, life.process as u64, chunk.into()]);
            self.write(life.process, chunk, dirt);
        }
        let pause = Span(self.rng.between(1, 40) * 1_000_000);
        self.queue.plan(self.now + pause, WorldEvent::Process(life, ProcessStep::Written(number)));
    }

    pub(crate) fn publish_written(&mut self, life: Life, number: u64) {
        if self.leaves(life) {
            return;
        }
        let process = &mut self.processes[life.process];
        let Some(lease) = process.session.as_ref().and_then(|session| session.lease()) else {
            return;
        };
        let version = Version { epoch: lease.epoch, number };
        process.memory.fill(version);
        process.trouble.spoiled = false;
        if self.forgeries > 0 && self.has_content(version) {
            self.forgeries -= 1;
            self.spoil(life.process);
            self.forged.insert(version);
        }
        self.call(life, publish(number), Span::from_millis(2_500));
    }

    /// Whether the content of a version is settled: a replica that holds the version has sealed it.
    pub(crate) fn has_content(&self, version: Version) -> bool {
        let books = self.books();
        let models = books.iter().flat_map(|books| books.models.values());
        models.flat_map(|model| &model.replicas).any(|replica| {
            replica.version == Some(version) && replica.state == ReplicaState::Sealed
        })
    }

    /// Changes a chunk of the process's memory, so that the memory is not the version's content any more.
    pub(crate) fn spoil(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let range = process.memory.range();
        if !range.is_empty() {
            let chunk = range.start + self.rng.below(range.len() as u64) as u32;
            process.memory.set(chunk, process.memory.get(chunk) ^ 2);
            process.trouble.spoiled = true;
            self.impure = true;
            let version = process.version().or(process.program.kept);
            self.forged.extend(version);
        }
    }
}
