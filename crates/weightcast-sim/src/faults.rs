//! What goes wrong, and when. A seed leaves some kinds out, so that others show alone.

use weightcast_protocol::{Span, Time};

use crate::checkers::Fact;
use crate::coverage::Point;
use crate::fault_kinds::FaultKind;
use crate::queue::{Event, Life, Step};
use crate::rng::Rng;
use crate::world::World;

impl World {
    /// Draws the faults of the whole run.
    pub(crate) fn plan_faults(&mut self) {
        for kind in FaultKind::ALL {
            let most = self.options.faults.most(*kind);
            if self.rng.chance(250) {
                continue;
            }
            for _ in 0..self.rng.below(most + 1) {
                let at = Time(self.rng.below(self.options.fault_time.0));
                self.queue.plan(at, Event::Fault(*kind));
            }
        }
        self.queue.plan(Time(0) + self.options.fault_time, Event::Quiet);
    }

    pub(crate) fn strike(&mut self, kind: FaultKind) {
        *self.report.faults.entry(kind.name()).or_default() += 1;
        let victim = self.rng.below(self.processes.len() as u64) as usize;
        let until = self.now + a_while(&mut self.rng, self.options.lease);
        self.observe(Fact::Struck { kind, process: Some(victim) });
        match kind {
            FaultKind::Break => self.break_stream(victim),
            FaultKind::Partition => {
                self.processes[victim].cut_off_until = until;
                self.break_stream(victim);
            }
            FaultKind::Crash => self.crash(victim, until),
            FaultKind::Pause => self.processes[victim].paused_until = until,
            FaultKind::Flip => self.flips += 1,
        }
    }

    /// The process dies: its memory and its port are gone, its stream breaks.
    fn crash(&mut self, victim: usize, until: Time) {
        self.see_source_die(victim);
        self.break_stream(victim);
        let process = &mut self.processes[victim];
        process.life += 1;
        process.session = None;
        process.exposed = None;
        process.read = None;
        let life = Life { process: victim, life: process.life };
        self.queue.plan(until, Event::Process(life, Step::Start));
    }

    /// How far those were that read from it.
    fn see_source_die(&mut self, victim: usize) {
        let address = victim.to_string();
        for process in &self.processes {
            let Some(read) = &process.read else { continue };
            if read.assignment.shards.iter().all(|shard| shard.data_address != address) {
                continue;
            }
            let chunks = process.memory.range();
            let point = match read.next {
                next if next == chunks.start => Point::SourceDiedAtFirstChunk,
                next if next + 1 >= chunks.end => Point::SourceDiedAtLastChunk,
                _ => Point::SourceDiedInTheMiddle,
            };
            self.report.points.insert(point);
        }
    }

    /// Faults cease: whoever is held up goes on.
    pub(crate) fn calm(&mut self) {
        self.quiet = true;
        self.flips = 0;
        self.network.late = 0;
        for process in &mut self.processes {
            process.cut_off_until = process.cut_off_until.min(self.now);
        }
    }
}

/// Up to twice the lease: half of the time the lease outlives it.
fn a_while(rng: &mut Rng, lease: Span) -> Span {
    Span(rng.between(lease.0 / 20, lease.0 * 2))
}
