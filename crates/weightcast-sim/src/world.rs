//! The world: a server, processes, wires, and a queue of what happens next.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Answer, Call, EpochPolicy, Role};
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{CallError, ExportId, Incarnation, Span, Time};

use crate::checkers::{Checkers, Fact, Who};
use crate::clock::Clock;
use crate::memory::{Memory, chunks_of};
use crate::network::{Network, delay};
use crate::options::Options;
use crate::process::{Process, Program};
use crate::program::Action;
use crate::queue::{Event, Life, Queue, Step};
use crate::report::Report;
use crate::rng::{Rng, mix};

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) options: Options,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) queue: Queue,
    pub(crate) network: Network,
    pub(crate) server: Server,
    pub(crate) processes: Vec<Process>,
    /// What each group does at each place of its program.
    pub(crate) decisions: BTreeMap<(Incarnation, u32), Action>,
    /// Faults have ceased.
    pub(crate) quiet: bool,
    /// Bits that are still to flip.
    pub(crate) flips: u64,
    pub(crate) report: Report,
    checkers: Checkers,
    /// The group that each life joined.
    pub(crate) joined: BTreeMap<Life, Incarnation>,
    pub(crate) server_timer: Option<Time>,
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let config = ServerConfig {
            lease: options.lease,
            fanout: options.fanout,
            drain_deadline: Span::from_millis(800),
            mutants: options.mutants,
            ..ServerConfig::default()
        };
        let mut world = Self {
            seed,
            rng: Rng::new(seed),
            now: Time(0),
            queue: Queue::default(),
            network: Network::default(),
            server: Server::new(config),
            processes: Vec::new(),
            decisions: BTreeMap::new(),
            quiet: false,
            flips: 0,
            report: Report { seed, ..Report::default() },
            checkers: Checkers::new(&options),
            joined: BTreeMap::new(),
            server_timer: None,
            options,
        };
        world.people();
        world.plan_faults();
        world
    }

    /// Draws the groups, and plans the start of their processes.
    fn people(&mut self) {
        let groups = (0..self.options.trainers)
            .map(|n| (format!("trainer-{n}"), Role::Trainer, n == 0))
            .chain(
                (0..self.options.rollouts).map(|n| (format!("rollout-{n}"), Role::Rollout, false)),
            );
        for (replica, role, new_epoch) in groups.collect::<Vec<_>>() {
            let num_shards = self.rng.between(1, self.options.max_shards.into()) as u32;
            for shard in 0..num_shards {
                let epoch = if new_epoch { EpochPolicy::New } else { EpochPolicy::Current };
                self.add_process(replica.clone(), role, epoch, shard, num_shards);
            }
        }
    }

    fn add_process(
        &mut self,
        replica: String,
        role: Role,
        epoch: EpochPolicy,
        shard: u32,
        num_shards: u32,
    ) {
        // 4 % is what the margin of 10 % on both sides leaves room for, and more.
        let clock = Clock::new(self.rng.below(1 << 40), self.rng.between(960, 1040));
        let process = Process {
            replica,
            shard,
            num_shards,
            role,
            epoch,
            life: 0,
            clock,
            session: None,
            stream: None,
            memory: Memory::new(chunks_of(shard, num_shards, self.options.chunks)),
            exposed: None,
            export: ExportId(0),
            read: None,
            paused_until: Time(0),
            cut_off_until: Time(0),
            timer_at: None,
            program: Program::default(),
        };
        let life = Life { process: self.processes.len(), life: 0 };
        self.processes.push(process);
        let at = Time(self.rng.below(300) * 1_000_000);
        self.queue.plan(at, Event::Process(life, Step::Start));
    }

    /// Plays to the end.
    pub(crate) fn play(mut self) -> Report {
        let end = Time(0) + self.options.fault_time + self.options.quiet_time;
        while let Some((at, event)) = self.queue.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.report.events += 1;
            self.record(&event);
            self.happen(event);
        }
        self.now = end;
        self.check_end();
        self.report.counters = self.server.snapshot(self.now).counters;
        self.report
    }

    fn record(&mut self, event: &Event) {
        let text = format!("{event:?}");
        let hash = text
            .bytes()
            .fold(self.now.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        self.report.trace = mix(&[self.report.trace, hash]);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ServerTimer => {
                self.server_timer = None;
                self.server.handle_timeout(self.now);
                self.after_server();
            }
            Event::ToServer(stream, message) => self.hear(stream, message),
            Event::ServerGone(stream) => {
                self.server.handle_disconnect(self.now, stream);
                self.after_server();
            }
            Event::Process(life, step) => self.step(life, step),
            Event::Fault(fault) => self.strike(fault),
            Event::Quiet => self.calm(),
        }
    }

    /// A process's stream breaks; both ends notice in their time.
    pub(crate) fn break_stream(&mut self, index: usize) {
        let Some(stream) = self.processes[index].stream else { return };
        if let Some(cut) = self.network.cut(stream) {
            let (server, client) = (delay(&mut self.rng), delay(&mut self.rng));
            self.queue.plan(self.now + server, Event::ServerGone(stream));
            let step = Step::Gone(stream);
            self.queue.plan(self.now + client, Event::Process(cut.client, step));
        }
    }

    pub(crate) fn who(&self, life: Life) -> Who {
        let process = &self.processes[life.process];
        Who {
            incarnation: self.joined.get(&life).copied(),
            shard: process.shard,
            num_shards: process.num_shards,
        }
    }

    pub(crate) fn observe(&mut self, fact: Fact<'_>) {
        self.checkers.observe(self.now, &fact, &mut self.report);
    }

    pub(crate) fn count(&mut self, call: Option<&Call>, result: &Result<Answer, CallError>) {
        let first_word = |text: String| {
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
        };
        let call = call.map(|call| first_word(format!("{call:?}"))).unwrap_or_default();
        let end = match result {
            Ok(answer) => first_word(format!("{answer:?}")),
            Err(error) => first_word(format!("{error:?}")),
        };
        *self.report.calls.entry(format!("{call} {end}")).or_default() += 1;
    }

    /// Long after the last fault every rollout holds the newest version, which is published.
    fn check_end(&mut self) {
        let snapshot = self.server.snapshot(self.now);
        let latest = snapshot.models.values().filter_map(|m| m.versions.keys().max()).max();
        let detail = match latest {
            None => Some("no version is available at the end".to_owned()),
            Some(latest) => self
                .processes
                .iter()
                .find(|p| p.role == Role::Rollout && p.version() != Some(*latest))
                .map(|p| format!("{} holds {:?}, not {latest}", p.replica, p.version())),
        };
        if let Some(detail) = detail {
            self.report.violated(self.now, "L1", detail);
        }
    }
}
