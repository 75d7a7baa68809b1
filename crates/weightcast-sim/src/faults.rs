//! What goes wrong, and when. A seed leaves some kinds out, so that others show alone.

use weightcast_protocol::{Span, Time};

use crate::queue::{Event, Life, Step};
use crate::rng::Rng;
use crate::world::World;

/// One fault; the process is drawn when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Break,
    Partition,
    Crash,
    Pause,
    Flip,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Break => "stream broken",
            Fault::Partition => "server cut off",
            Fault::Crash => "process crashed",
            Fault::Pause => "process suspended",
            Fault::Flip => "bit flipped",
        }
    }
}

impl World {
    /// Draws the faults of the whole run.
    pub(crate) fn plan_faults(&mut self) {
        let counts = self.options.faults;
        let kinds = [
            (Fault::Break, counts.breaks),
            (Fault::Partition, counts.partitions),
            (Fault::Crash, counts.crashes),
            (Fault::Pause, counts.pauses),
            (Fault::Flip, counts.flips),
        ];
        for (fault, most) in kinds {
            if self.rng.chance(250) {
                continue;
            }
            for _ in 0..self.rng.below(most + 1) {
                let at = Time(self.rng.below(self.options.fault_time.0));
                self.queue.plan(at, Event::Fault(fault));
            }
        }
        self.queue.plan(Time(0) + self.options.fault_time, Event::Quiet);
    }

    pub(crate) fn strike(&mut self, fault: Fault) {
        *self.report.faults.entry(fault.name()).or_default() += 1;
        let victim = self.rng.below(self.processes.len() as u64) as usize;
        let until = self.now + a_while(&mut self.rng, self.options.lease);
        match fault {
            Fault::Break => self.break_stream(victim),
            Fault::Partition => {
                self.processes[victim].cut_off_until = until;
                self.break_stream(victim);
            }
            Fault::Crash => self.crash(victim, until),
            Fault::Pause => self.processes[victim].paused_until = until,
            Fault::Flip => self.flips += 1,
        }
    }

    /// The process dies: its memory and its port are gone, its stream breaks.
    fn crash(&mut self, victim: usize, until: Time) {
        self.break_stream(victim);
        let process = &mut self.processes[victim];
        process.life += 1;
        process.session = None;
        process.exposed = None;
        process.read = None;
        let life = Life { process: victim, life: process.life };
        self.queue.plan(until, Event::Process(life, Step::Start));
    }

    /// Faults cease: whoever is held up goes on.
    pub(crate) fn calm(&mut self) {
        self.quiet = true;
        self.flips = 0;
        for process in &mut self.processes {
            process.cut_off_until = process.cut_off_until.min(self.now);
        }
    }
}

/// Up to twice the lease: half of the time the lease outlives it.
fn a_while(rng: &mut Rng, lease: Span) -> Span {
    Span(rng.between(lease.0 / 20, lease.0 * 2))
}
