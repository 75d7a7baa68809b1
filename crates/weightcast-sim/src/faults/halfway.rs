//! Crashes between two outputs of one event (F22): only the first of the outputs are carried out.

use weightcast_protocol::Span;
use weightcast_protocol::server::ServerOutput;

use crate::checkers::Fact;
use crate::settings::fault_kinds::FaultKind;
use crate::settings::strike::Strike;
use crate::sights::coverage::Point;
use crate::world::World;

impl World {
    /// Whether a crash waits until its victim is between two outputs of an event.
    pub(crate) fn strikes_halfway(&mut self, strike: Strike) -> bool {
        let Strike { at, kind, whom, until } = strike;
        let crash = matches!(kind, FaultKind::Crash | FaultKind::ServerCrash);
        if !crash || !self.rng.chance(500) {
            return false;
        }
        *self.report.faults.entry(kind.name()).or_default() += 1;
        let down = until - at;
        if kind == FaultKind::ServerCrash {
            self.hosts[whom].dies_halfway = Some(down);
        } else {
            let victim = self.whole_process(whom, kind);
            self.processes[victim].trouble.dies_halfway = Some(down);
        }
        true
    }

    /// If a server is to die during its event: drops its last outputs, and returns how long the server stays down.
    pub(crate) fn server_dies_halfway(
        &mut self,
        host: usize,
        outputs: &mut Vec<ServerOutput>,
    ) -> Option<Span> {
        if outputs.len() < 2 {
            return None;
        }
        let down = self.hosts[host].dies_halfway.take()?;
        outputs.truncate(self.rng.between(1, outputs.len() as u64 - 1) as usize);
        self.report.points.insert(Point::ServerDiedHalfway);
        Some(down)
    }

    /// A process dies before its session's next output, if the process is to die. False if not.
    pub(crate) fn process_dies_halfway(&mut self, index: usize) -> bool {
        let Some(down) = self.processes[index].trouble.dies_halfway.take() else { return false };
        let (kind, until) = (FaultKind::Crash, self.now + down);
        self.observe(Fact::Struck { kind, process: Some(index), until });
        self.report.points.insert(Point::ProcessDiedHalfway);
        self.crash(index, until);
        true
    }
}
