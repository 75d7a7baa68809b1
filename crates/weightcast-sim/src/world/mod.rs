//! The world: servers, processes, wires, and a queue of what happens next.

pub(crate) mod agreement;
pub(crate) mod leases;
pub(crate) mod leftovers;
pub(crate) mod progress;
pub(crate) mod recordings;
pub(crate) mod watching;

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{EpochPolicy, Location, Role};
use weightcast_protocol::recording::{Recording, RecordingCause};
use weightcast_protocol::{ConnectionId, ExportId, Incarnation, Span, Time, Version};
use weightcast_testkit::{TaggedMemory, chunks_of, mix};

use crate::base::clock::DriftingClock;
use crate::base::rng::Rng;
use crate::checkers::{Checkers, Fact, Who};
use crate::parts::action::Action;
use crate::parts::chunk_loop::Progress;
use crate::parts::host::ServerHost;
use crate::parts::network::Network;
use crate::parts::pretender::Pretender;
use crate::parts::process::{Process, ProgramState, Trouble};
use crate::parts::queue::{EventQueue, Life, ProcessStep, ServerStep, WorldEvent};
use crate::report::fingerprint::Fingerprint;
use crate::report::story::StoryEvent;
use crate::report::{InvariantViolation, Report};
use crate::settings::options::WorldOptions;
use crate::settings::strike::Strike;
use crate::sights::Sights;
use crate::sights::failover::FailoverSights;
use crate::sights::seeds::SeedSights;

/// Sets apart the dice that decide whether all shards of a group hold everything.
const REPLICATED: u64 = 0x7265_706c;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) options: WorldOptions,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) queue: EventQueue,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<ServerHost>,
    pub(crate) processes: Vec<Process>,
    /// What each group does at each place of its program.
    pub(crate) decisions: BTreeMap<(Incarnation, u32), Action>,
    /// Faults have ceased.
    pub(crate) quiet: bool,
    /// How many times longer a chunk takes from another datacentre.
    pub(crate) crossing_cost: u64,
    /// Bits that are still to flip.
    pub(crate) flips: u64,
    /// A fault has changed bytes, or had some served that are not there.
    pub(crate) impure: bool,
    /// Publishes to come that are to have other content than the version's.
    pub(crate) forgeries: u64,
    /// Servers that are still to die while a version is sealed.
    pub(crate) seal_crashes: u64,
    /// Versions of which a process had other content.
    pub(crate) forged: BTreeSet<Version>,
    /// The client that makes pasts up.
    pub(crate) pretender: Pretender,
    /// A session has come over to a later term.
    pub(crate) came_over: bool,
    /// When the checkers are next shown the state of the world.
    pub(crate) look_at: Time,
    /// How many events this instant has had, besides the first.
    pub(crate) at_once: u64,
    /// The world has gone wrong so badly that the rest of it would say nothing.
    pub(crate) over: bool,
    pub(crate) report: Report,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) checkers: Checkers,
    pub(crate) sights: Sights,
    pub(crate) failover_sights: FailoverSights,
    pub(crate) seed_sights: SeedSights,
    /// What happened, if the story was asked for.
    pub(crate) story: Option<Vec<StoryEvent>>,
    /// The group that each life joined.
    pub(crate) joined: BTreeMap<Life, Incarnation>,
    /// Of servers and sessions that are over.
    pub(crate) recordings: Vec<Recording>,
    /// Why they end.
    pub(crate) cause: RecordingCause,
}

impl World {
    pub(crate) fn new(seed: u64, options: WorldOptions) -> Self {
        let mut world = Self::empty(seed, options);
        world.people(None);
        world.plan_faults();
        world
    }

    /// A world whose groups (shards and datacentre of each) and faults are written down.
    pub(crate) fn scripted(
        seed: u64,
        options: WorldOptions,
        groups: &[(u32, u64)],
        crossing_cost: u64,
        strikes: &[Strike],
    ) -> Self {
        let mut world = Self::empty(seed, options);
        world.people(Some(groups));
        world.crossing_cost = crossing_cost;
        world.plan_strikes(strikes);
        world
    }

    fn empty(seed: u64, options: WorldOptions) -> Self {
        let hosts = (0..options.servers as usize).map(|index| ServerHost::new(&options, index));
        let hosts = hosts.collect();
        Self {
            seed,
            rng: Rng::new(seed),
            now: Time(0),
            queue: EventQueue::default(),
            network: Network::new(options.late, options.late_by),
            hosts,
            processes: Vec::new(),
            decisions: BTreeMap::new(),
            quiet: false,
            crossing_cost: 1,
            flips: 0,
            impure: false,
            forgeries: 0,
            seal_crashes: 0,
            forged: BTreeSet::new(),
            pretender: Pretender::default(),
            came_over: false,
            look_at: Time(0),
            at_once: 0,
            over: false,
            report: Report { seed, ..Report::default() },
            fingerprint: Fingerprint::default(),
            checkers: Checkers::new(&options),
            sights: Sights::default(),
            failover_sights: FailoverSights::default(),
            seed_sights: SeedSights::default(),
            story: None,
            joined: BTreeMap::new(),
            recordings: Vec::new(),
            cause: RecordingCause::Asked,
            options,
        }
    }

    /// Draws the groups and plans the start of their processes. Numbers of shards and datacentres that are given are
    /// not drawn.
    fn people(&mut self, given: Option<&[(u32, u64)]>) {
        let groups = (0..self.options.trainers)
            .map(|n| (format!("trainer-{n}"), Role::Trainer, n == 0))
            .chain(
                (0..self.options.rollouts).map(|n| (format!("rollout-{n}"), Role::Rollout, false)),
            );
        let groups = groups.collect::<Vec<_>>();
        let usual_shards = self.rng.between(1, self.options.max_shards.into()) as u32;
        let datacentres = u64::from(self.options.datacentres);
        self.crossing_cost = self.rng.between(1, 8);
        for (index, (replica, role, new_epoch)) in groups.into_iter().enumerate() {
            let any_shards = self.rng.between(1, self.options.max_shards.into()) as u32;
            // Only groups of the same size read from each other while they are being filled.
            let num_shards = if self.rng.chance(600) { usual_shards } else { any_shards };
            let place = if role == Role::Trainer { 0 } else { self.rng.below(datacentres) };
            let (num_shards, place) = given.map_or((num_shards, place), |given| given[index]);
            let location = Location {
                datacentre: format!("dc-{place}"),
                host: format!("host-{place}-{}", self.rng.below(self.options.hosts.max(1).into())),
                spot: role == Role::Rollout && self.rng.chance(self.options.spot),
            };
            let seeds = self.options.offload_seeding;
            let seeds = role == Role::Rollout && seeds > 0 && self.rng.chance(seeds);
            let dice = mix(&[self.seed, index as u64, REPLICATED]) % 1_000;
            let replicated = num_shards > 1 && dice < self.options.replicated;
            for shard in 0..num_shards {
                let epoch = if new_epoch { EpochPolicy::New } else { EpochPolicy::Current };
                let process = self.add_process(replica.clone(), role, epoch, shard, num_shards);
                self.processes[process].location = location.clone();
                if replicated {
                    let chunks = self.options.chunks;
                    self.processes[process].memory =
                        TaggedMemory::replicated(shard, num_shards, chunks);
                }
                self.processes[process].offload_seeding = seeds;
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
    ) -> usize {
        let drift = self.options.drift;
        let rate = self.rng.between(1000 - drift, 1000 + drift);
        let clock = DriftingClock::new(self.rng.below(1 << 40), rate);
        let process = Process {
            replica,
            shard,
            num_shards,
            role,
            epoch,
            offload_seeding: false,
            life: 0,
            clock,
            session: None,
            host: Default::default(),
            streams: 0,
            memory: TaggedMemory::new(chunks_of(shard, num_shards, self.options.chunks)),
            location: Location::default(),
            progress: Progress::default(),
            export: ExportId(0),
            left: 0,
            copy_of: None,
            paused_until: Time(0),
            trouble: Trouble::default(),
            timer_at: None,
            program: ProgramState::default(),
            siblings: Default::default(),
        };
        let life = Life { process: self.processes.len(), life: 0 };
        self.processes.push(process);
        let at = Time(self.rng.below(300) * 1_000_000);
        self.queue.plan(at, WorldEvent::Process(life, ProcessStep::Start));
        life.process
    }

    /// Plays to the end, and tells what happened.
    pub(crate) fn tell(mut self) -> (Report, Vec<StoryEvent>) {
        self.story = Some(Vec::new());
        self.play(|_| false);
        (self.report, self.story.unwrap_or_default())
    }

    /// Plays to the end, or until a violation that is looked for.
    pub(crate) fn play_until(mut self, found: impl Fn(&InvariantViolation) -> bool) -> Report {
        self.play(found);
        self.report
    }

    fn play(&mut self, found: impl Fn(&InvariantViolation) -> bool) {
        self.go_on(found);
        self.report.fingerprint = self.fingerprint.end(&self.report.counters);
    }

    fn go_on(&mut self, found: impl Fn(&InvariantViolation) -> bool) {
        let end = Time(0) + self.options.fault_time + self.options.quiet_time;
        while let Some((at, event)) = self.queue.pop() {
            if at > end {
                break;
            }
            let violations = self.report.violations.len();
            self.progress(at);
            self.report.events += 1;
            self.fingerprint.event(self.now, &event);
            if !self.happens(event)
                || self.over
                || self.report.violations[violations..].iter().any(&found)
            {
                return;
            }
        }
        self.now = end;
        self.check_end();
        self.report.counters = self.books().map(|books| books.counters).unwrap_or_default();
    }

    /// Lets an event happen. False if the protocol's code panicked: the world ends there.
    fn happens(&mut self, event: WorldEvent) -> bool {
        let what = std::panic::AssertUnwindSafe(|| self.happen(event));
        let Err(panic) = std::panic::catch_unwind(what) else { return true };
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        self.violated("panic", text.to_owned());
        false
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Server(seat, step) => self.serve(seat, step),
            WorldEvent::ToServer(stream, message) => self.hear(stream, message),
            WorldEvent::Process(life, step) => self.step(life, step),
            WorldEvent::Fault(fault) => self.strike(fault),
            WorldEvent::Strike(strike) => self.hit(strike),
            WorldEvent::Quiet => self.calm(),
        }
    }

    /// A process's stream breaks. Both ends notice after a delay of their own.
    pub(crate) fn break_stream(&mut self, index: usize) {
        if let Some(stream) = self.processes[index].host.stream {
            self.break_wire(stream);
        }
    }

    /// The same for a stream of any process.
    pub(crate) fn break_wire(&mut self, stream: ConnectionId) {
        let Some(host) = self.network.host(stream) else { return };
        if let Some(cut) = self.network.cut(stream) {
            let (who, term) = (self.who(cut.client), self.hosts[host].term());
            self.observe(Fact::Unlinked { who, term });
            let (server, client) = (self.delay(), self.delay());
            let gone = WorldEvent::Server(self.seat(host), ServerStep::Gone(stream));
            self.queue.plan(self.now + server, gone);
            let step = ProcessStep::Gone(stream);
            self.queue.plan(self.now + client, WorldEvent::Process(cut.client, step));
        }
    }

    /// Whether a version may rightly have another content than it once had: the content of a version that no replica
    /// holds is forgotten with the term (S7), and the next publisher defines it anew.
    pub(crate) fn disputed(&self, version: Version) -> bool {
        self.came_over && self.forged.contains(&version)
    }

    /// Draws how long a message takes.
    pub(crate) fn delay(&mut self) -> Span {
        self.network.delay(&mut self.rng)
    }

    pub(crate) fn who(&self, life: Life) -> Who {
        let process = &self.processes[life.process];
        Who {
            process: life.process,
            incarnation: self.joined.get(&life).copied(),
            shard: process.shard,
            num_shards: process.num_shards,
        }
    }
}
