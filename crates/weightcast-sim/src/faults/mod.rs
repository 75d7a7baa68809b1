//! What goes wrong, and when. Each seed leaves some kinds of faults out, so that the others are seen alone.

pub(crate) mod halfway;
pub(crate) mod pretence;

use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::{Span, Time};

use crate::base::rng::Rng;
use crate::checkers::Fact;
use crate::parts::process::Trouble;
use crate::parts::queue::{Life, ProcessStep, WorldEvent};
use crate::settings::fault_kinds::FaultKind;
use crate::settings::strike::Strike;
use crate::sights::coverage::Point;
use crate::world::World;

impl World {
    /// Plans faults that are written down.
    pub(crate) fn plan_strikes(&mut self, strikes: &[Strike]) {
        for strike in strikes {
            self.queue.plan(strike.at, WorldEvent::Strike(*strike));
        }
        self.queue.plan(Time(0) + self.options.fault_time, WorldEvent::Quiet);
    }

    /// Draws the faults of the whole run.
    pub(crate) fn plan_faults(&mut self) {
        for kind in FaultKind::ALL {
            let most = self.options.faults.most(*kind);
            if self.rng.chance(250) {
                continue;
            }
            for _ in 0..self.rng.below(most + 1) {
                let at = Time(self.rng.below(self.options.fault_time.0));
                self.queue.plan(at, WorldEvent::Fault(*kind));
            }
        }
        self.queue.plan(Time(0) + self.options.fault_time, WorldEvent::Quiet);
    }

    /// Draws the victim and the duration of a fault of this kind, and lets the fault happen.
    pub(crate) fn strike(&mut self, kind: FaultKind) {
        let until = self.now + a_while(&mut self.rng, self.options.lease);
        let any = self.rng.below(self.hosts.len() as u64) as usize;
        let host = if self.rng.chance(700) { self.leader() } else { any };
        let whom = if kind.is_of_servers() { host } else { self.victim(kind) };
        let strike = Strike { at: self.now, kind, whom, until };
        if !self.strikes_halfway(strike) {
            self.hit(strike);
        }
    }

    /// A fault happens.
    pub(crate) fn hit(&mut self, strike: Strike) {
        let Strike { kind, whom, until, .. } = strike;
        *self.report.faults.entry(kind.name()).or_default() += 1;
        if kind.is_of_servers() {
            self.observe(Fact::Struck { kind, process: None, until });
            return self.hit_server(kind, whom, until);
        }
        let victim = self.whole_process(whom, kind);
        self.observe(Fact::Struck { kind, process: Some(victim), until });
        match kind {
            FaultKind::Break => self.break_stream(victim),
            FaultKind::Partition => {
                self.processes[victim].trouble.cut_off_until = until;
                self.break_stream(victim);
            }
            FaultKind::Crash => self.crash(victim, until),
            FaultKind::Pause => {
                let paused = &mut self.processes[victim].paused_until;
                *paused = until.max(*paused);
            }
            FaultKind::Flip => self.flips += 1,
            FaultKind::Stall => self.stall(victim, until),
            FaultKind::Mute => self.processes[victim].trouble.mute_until = until,
            FaultKind::Slow => self.processes[victim].trouble.slow_until = until,
            FaultKind::Freeze => self.freeze(victim, until),
            FaultKind::Storm => self.storm(until),
            FaultKind::Close => {
                let life = Life { process: victim, life: self.processes[victim].life };
                self.queue.plan(self.now, WorldEvent::Process(life, ProcessStep::Close));
            }
            FaultKind::Divert => self.processes[victim].trouble.diverts = true,
            FaultKind::Dawdle => {
                self.processes[victim].trouble.dawdles_until = self.now + Span::from_secs(4);
            }
            FaultKind::Spoil => self.spoil_published(victim),
            FaultKind::Forge => self.forgeries += 1,
            FaultKind::Claim => self.processes[victim].trouble.claims = true,
            FaultKind::Lie => self.processes[victim].trouble.lies = true,
            _ => {} // faults of servers: see above
        }
    }

    fn hit_server(&mut self, kind: FaultKind, host: usize, until: Time) {
        match kind {
            FaultKind::ServerCrash => self.crash_server(host, until),
            FaultKind::ServerPause => {
                let paused_until = &mut self.hosts[host].paused_until;
                *paused_until = until.max(*paused_until);
            }
            FaultKind::Pretend => self.pretend(host),
            FaultKind::SealCrash => self.seal_crashes += 1,
            _ => self.rift(host, until),
        }
    }

    /// Whether a server dies on receiving this message: some do while a version is sealed.
    pub(crate) fn dies_sealing(&mut self, message: &ClientMessage) -> bool {
        let seals = match message {
            ClientMessage::Sealed { .. } => true,
            ClientMessage::Call { call, .. } => {
                matches!(call, Call::Publish { .. } | Call::Unpublish)
            }
            _ => false,
        };
        let dies = seals && self.seal_crashes > 0 && self.rng.chance(300);
        self.seal_crashes -= u64::from(dies);
        dies
    }

    pub(crate) fn die_sealing(&mut self, host: usize) {
        let until = self.now + a_while(&mut self.rng, self.options.lease);
        self.observe(Fact::Struck { kind: FaultKind::SealCrash, process: None, until });
        self.crash_server(host, until);
    }

    /// The process that a fault strikes. Half of the crashes strike sources that are being read: such sources are few,
    /// and their crashes say more.
    fn victim(&mut self, kind: FaultKind) -> usize {
        let anybody = self.rng.below(self.processes.len() as u64) as usize;
        let to_source = kind == FaultKind::Crash && self.rng.chance(500);
        let reads = self.processes.iter().filter_map(|process| process.host.reading.as_ref());
        let shards = reads.flat_map(|read| read.assignment.shards.iter());
        let sources: Vec<usize> =
            shards.filter_map(|shard| shard.data_address.parse().ok()).collect();
        if !to_source || sources.is_empty() {
            return anybody;
        }
        sources[self.rng.below(sources.len() as u64) as usize]
    }

    fn stall(&mut self, victim: usize, until: Time) {
        let up = self.rng.chance(500);
        if let Some(stream) = self.processes[victim].host.stream {
            self.network.stall(stream, up, until);
        }
    }

    /// The process is suspended, and its clock stands still meanwhile.
    fn freeze(&mut self, victim: usize, until: Time) {
        let process = &mut self.processes[victim];
        if process.paused_until > self.now {
            return; // the process is paused, and its clock runs on
        }
        process.paused_until = until;
        process.clock.stand_still(until - self.now);
        if let Some(pending) = &mut process.program.pending {
            pending.due = pending.due + (until - self.now);
        }
    }

    fn storm(&mut self, until: Time) {
        for index in 0..self.processes.len() {
            let whole = self.processes[index].copy_of.is_none() && !self.processes[index].is_free();
            if whole && self.rng.chance(500) {
                self.crash(index, until);
            }
        }
    }

    /// Spoils the memory of a victim that holds a sealed version. Before the seal no digest could
    /// show the change, so weightcast could not be blamed.
    fn spoil_published(&mut self, victim: usize) {
        if self.processes[victim].version().is_some_and(|version| self.has_content(version)) {
            self.spoil(victim);
        }
    }

    /// A process dies: its memory and its port are gone, its stream breaks.
    pub(crate) fn crash(&mut self, victim: usize, until: Time) {
        self.see_source_die(victim);
        self.break_stream(victim);
        let process = &mut self.processes[victim];
        process.life += 1;
        process.trouble.dies_halfway = None;
        self.keep_session(victim);
        let process = &mut self.processes[victim];
        process.host.give_up();
        process.host.exposed = None;
        process.siblings = Default::default();
        self.end_copies_of(victim);
        let process = &self.processes[victim];
        let life = Life { process: victim, life: process.life };
        self.queue.plan(until, WorldEvent::Process(life, ProcessStep::Start));
    }

    /// Notes how far the victim's readers had come.
    fn see_source_die(&mut self, victim: usize) {
        let address = victim.to_string();
        for process in &self.processes {
            let Some(read) = &process.host.reading else { continue };
            if read.assignment.shards.iter().all(|shard| shard.data_address != address) {
                continue;
            }
            let point = match read.chunks.count() {
                0 => Point::SourceDiedAtFirstChunk,
                count if count + 1 >= process.memory.len() => Point::SourceDiedAtLastChunk,
                _ => Point::SourceDiedInTheMiddle,
            };
            self.report.points.insert(point);
        }
    }

    /// Faults cease: processes and messages that are held up go on.
    pub(crate) fn calm(&mut self) {
        self.quiet = true;
        self.flips = 0;
        self.network.late = 0;
        self.forgeries = 0;
        self.seal_crashes = 0;
        self.hosts.iter_mut().for_each(|host| host.dies_halfway = None);
        let spoiled: Vec<String> = self
            .processes
            .iter()
            .filter(|process| process.trouble.spoiled)
            .map(|process| process.replica.clone())
            .collect();
        for process in &mut self.processes {
            let spoiled_group = spoiled.contains(&process.replica);
            process.program.must_unpublish |= spoiled_group && process.version().is_some();
            process.trouble = Trouble { spoiled: process.trouble.spoiled, ..Trouble::default() };
        }
    }
}

/// A duration of up to twice the lease: about half of the durations end before the lease does.
fn a_while(rng: &mut Rng, lease: Span) -> Span {
    Span(rng.between(lease.0 / 20, lease.0 * 2))
}
