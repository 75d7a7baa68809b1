//! Routing leases: workers say what they serve, and a router asks.

use weightcast_protocol::engine_update::{RoutingLease, RoutingState, ServingNotice};
use weightcast_protocol::{Span, Time};

use crate::updates::checkers::UpdateFact;
use crate::updates::coverage::UpdatePoint;
use crate::updates::parts::queue::{EngineLife, UpdateEvent};
use crate::updates::parts::worker::SimWorker;
use crate::updates::world::{ROUTING_LEASE, TICK, UpdateWorld, version};

/// How often a worker says what it serves.
const RENEWED: Span = Span(ROUTING_LEASE.0 / 3);

impl UpdateWorld {
    /// Every worker of an engine says what it serves.
    pub(in crate::updates) fn renew_notices(&mut self, at: EngineLife) {
        if self.lives(at) {
            (0..self.options.workers).for_each(|worker| self.send_notice(at, worker));
            self.plan_in(RENEWED, UpdateEvent::Notices(at));
        }
    }

    /// Workers that serve something else than they have said say so.
    pub(super) fn notice_changes(&mut self, at: EngineLife) {
        for worker in 0..self.options.workers {
            self.note_served(at, worker);
            let it = &self.engines[at.engine].workers[worker as usize];
            if it.noticed != Some(serves(it)) {
                self.send_notice(at, worker);
            }
        }
    }

    /// What a worker really serves now.
    fn note_served(&mut self, at: EngineLife, worker: u32) {
        let it = &self.engines[at.engine].workers[worker as usize];
        if let Some(whole) = it.version().filter(|_| it.gate.may_serve()) {
            self.served.insert((at, worker, whole), self.now);
        }
    }

    fn send_notice(&mut self, at: EngineLife, worker: u32) {
        self.note_served(at, worker);
        let it = &mut self.engines[at.engine].workers[worker as usize];
        let now_serves = serves(it);
        (it.notices, it.noticed) = (it.notices + 1, Some(now_serves));
        let notice = ServingNotice {
            engine: name(at.engine),
            life: at.life.into(),
            worker,
            workers: self.options.workers,
            count: it.notices,
            serves: now_serves.map(version),
        };
        if self.register_away <= self.now && !self.is_lost() {
            let most = self.options.delay.0 / 1_000;
            let delay = Span(self.rng.between(500, most.max(500)) * 1_000);
            self.plan_in(delay, UpdateEvent::Notice(Box::new(notice)));
        }
    }

    /// A notice arrives at the table.
    pub(in crate::updates) fn hear_notice(&mut self, notice: ServingNotice) {
        if self.register_away <= self.now {
            let taken = self.routing.hear(self.now, notice);
            assert!(taken.is_ok(), "the table is not full, and workers know who they are");
        }
    }

    /// A router asks.
    pub(in crate::updates) fn look_at_routing(&mut self) {
        for lease in self.leases() {
            self.reach(match lease.state {
                RoutingState::Admitted => UpdatePoint::RoutedTo,
                RoutingState::Behind => UpdatePoint::RoutedBehind,
                RoutingState::Standing => UpdatePoint::RoutedStanding,
                RoutingState::Joining => UpdatePoint::RoutedJoining,
            });
            if lease.state == RoutingState::Admitted {
                self.show_admitted(&lease);
            }
        }
    }

    fn leases(&self) -> Vec<RoutingLease> {
        self.routing.engines(self.now, self.register.version())
    }

    fn show_admitted(&mut self, lease: &RoutingLease) {
        let Some(of) = lease.version else { return };
        let engine = (0..self.engines.len()).find(|engine| name(*engine) == lease.engine);
        let engine = engine.expect("an engine of this world");
        let at = EngineLife { engine, life: lease.life as u32 };
        // Workers are looked at with each tick; their last notice may have been under way.
        let lately = |since: &Time| *since + ROUTING_LEASE + self.options.delay + TICK >= self.now;
        let has = |worker| self.served.get(&(at, worker, of.number)).is_some_and(lately);
        let served = (0..self.options.workers).all(has);
        let fleet = self.register.version().map(|version| version.number);
        let (engine, version) = (&lease.engine, of.number);
        self.observe(&UpdateFact::Admitted { engine, version, served, fleet });
    }

    /// Whether a router is sent to each engine at the end.
    pub(super) fn look_at_routing_at_the_end(&mut self) {
        let leases = self.leases();
        for engine in 0..self.engines.len() {
            let of = leases.iter().find(|lease| lease.engine == name(engine));
            let admitted = of.is_some_and(|lease| lease.state == RoutingState::Admitted);
            self.observe(&UpdateFact::OverRouted { engine, admitted });
        }
    }
}

fn name(engine: usize) -> String {
    format!("engine {engine}")
}

/// What a worker says that it serves.
fn serves(worker: &SimWorker) -> Option<u64> {
    let ready = worker.gate.report().ready.filter(|_| worker.gate.may_serve());
    ready.map(|version| version.number)
}
