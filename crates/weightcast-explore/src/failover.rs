//! Servers that are lost, and workers that go over to others.
//!
//! A server dies under its workers; each notices by itself, and until then goes on with what it was
//! told. Or a worker loses a server that lives, so that two act at once until the worker's word of
//! the later term has come to the earlier one (a step of its own). Going through the list up to the
//! server that opens the session is one step: elsewhere nothing happens. What that server says after
//! `Opened` takes its time as every message does.

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::server::ReplicaState;
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{ConnectionId, Term};

use crate::bounds::Bounds;
use crate::cluster::ClusterState;
use crate::host::{ExploredServer, LEASE};

/// As often as a worker goes through its list, of which one server at least lives, until that one
/// has to act.
const ROUNDS: usize = 3;

impl ClusterState {
    /// The server that may die, if there is one.
    pub(crate) fn mortal(&self) -> Option<usize> {
        let can = self.restarts > 0 || self.death;
        self.hosts.iter().position(ExploredServer::acts).filter(|first| can && *first == 0)
    }

    /// A server dies. If it is the only one, it starts anew at once and knows nothing.
    pub(crate) fn die(&mut self, dead: usize, bounds: &Bounds) {
        // Another life: bounds let a server start anew once.
        let fresh = ExploredServer::new(dead, 1, bounds);
        self.hosts[dead] = ExploredServer { alive: self.restarts > 0, ..fresh };
        self.restarts = self.restarts.saturating_sub(1);
        self.death = false;
        for worker in &mut self.workers {
            if worker.tie.server == dead && worker.host.stream.is_some() {
                worker.change(|worker| {
                    (worker.host.stream, worker.tie.cut) = (None, true);
                    worker.up.clear();
                });
            }
        }
        self.check_books();
    }

    /// Whether a worker may notice that its server is gone, or lose one that is not.
    pub(crate) fn may_leave(&self, worker: usize) -> bool {
        let worker = &self.workers[worker];
        worker.tie.cut || (self.partings > 0 && self.is_bound(worker.index))
    }

    /// Whether a worker has a lease that it acts on.
    fn is_bound(&self, worker: usize) -> bool {
        let worker = &self.workers[worker];
        let lives = !worker.ended() && worker.tie.wanted.is_none() && !worker.tie.refused;
        lives && worker.session.state() != SessionState::Suspended
    }

    /// Whether a worker that does may find that the next server defers to its own, which acts.
    pub(crate) fn may_go_back(&self, worker: usize) -> bool {
        let own = &self.hosts[self.workers[worker].tie.server];
        self.hosts.len() > 1 && own.acts() && self.may_leave(worker)
    }

    /// Whether a worker that does may come so late that its server has given it up. Not if there is
    /// but one server: a worker that comes late is then as one that notices late.
    pub(crate) fn may_stray(&self, worker: usize) -> bool {
        self.hosts.len() > 1 && self.may_leave(worker)
    }

    /// Whether a worker that wants a server may go there; one that strayed, at the window's end.
    pub(crate) fn may_come(&self, worker: usize) -> bool {
        let waits = |host: &ExploredServer| host.acts() && host.server.snapshot(host.now).recovers;
        let tie = &self.workers[worker].tie;
        tie.wanted.is_some() && !(tie.strays && self.hosts.iter().any(waits))
    }

    /// A lease passes at the servers that do not act: those that deferred to another one, of which
    /// they were told when a client was opened there, do so no longer.
    pub(crate) fn rest(&mut self) {
        for server in 0..self.hosts.len() {
            if self.hosts[server].alive && !self.hosts[server].acts() {
                self.pass(server, LEASE, None);
            }
        }
    }

    /// A worker's lease runs out. If there is but one server, only its stream breaks: it opens
    /// another one while it still acts on the lease.
    pub(crate) fn leave(&mut self, index: usize, bounds: &Bounds) {
        let worker = &self.workers[index];
        if !worker.tie.cut {
            self.partings -= 1;
        }
        let one = bounds.servers() == 1;
        self.workers[index].change(|worker| {
            (worker.host.stream, worker.tie.cut) = (None, false);
            worker.up.clear();
            worker.down.clear();
            if one {
                worker.session.handle_disconnected(worker.clock);
            } else {
                worker.clock = worker.clock + LEASE;
            }
            worker.session.handle_timeout(worker.clock);
        });
        self.obey(index);
    }

    /// A worker opens its session at the first server that answers and is, or becomes, the one.
    pub(crate) fn come(&mut self, index: usize) {
        for _ in 0..ROUNDS * self.hosts.len() {
            let wanted = self.workers[index].change(|worker| worker.tie.wanted.take());
            let Some(server) = wanted else { return };
            let alive = self.hosts[server].alive;
            self.workers[index].change(|worker| {
                worker.up.clear();
                worker.down.clear();
                (worker.tie.cut, worker.tie.strays) = (false, false);
                if alive {
                    worker.tie.server = server;
                    worker.tie.streams += 1;
                    worker.host.stream =
                        Some(ConnectionId(1 + worker.index as u64 + (worker.tie.streams << 8)));
                    worker.session.handle_connected(worker.clock);
                } else {
                    worker.session.handle_disconnected(worker.clock);
                    worker.session.handle_timeout(worker.clock);
                }
            });
            self.obey(index);
            if alive {
                self.ask(index);
            }
        }
        if self.workers[index].tie.wanted.is_some() {
            let name = self.workers[index].place.replica.clone();
            self.breaks("L5", format!("{name} is opened by no server of its list"));
        }
    }

    /// The server that refused a worker's session is asked again.
    pub(crate) fn ask_again(&mut self, index: usize) {
        self.workers[index].change(|worker| worker.session.handle_timeout(worker.clock));
        self.obey(index);
        self.ask(index);
    }

    /// Whether it would be taken now.
    pub(crate) fn would_be_taken(&self, index: usize) -> bool {
        self.workers[index].tie.refused && {
            let mut later = self.clone();
            later.ask_again(index);
            !later.workers[index].tie.refused
        }
    }

    /// The server answers `Open`; what the session sends upon that comes to the server.
    fn ask(&mut self, index: usize) {
        self.hear_all(index);
        self.tell(index);
        self.hear_all(index);
        self.check_term(index);
    }

    /// A session does not go back to an earlier term (T3).
    fn check_term(&mut self, index: usize) {
        let worker = &self.workers[index];
        let known = worker.tie.known;
        let Some(term) = worker.session.lease().map(|lease| lease.term) else { return };
        if term < known {
            let detail = format!("{} goes from term {known} to {term}", worker.place.replica);
            self.breaks("T3", detail);
        } else if term > known {
            self.workers[index].change(|worker| worker.tie.known = term);
        }
    }

    /// A worker tells another server of its term.
    pub(crate) fn probe(&mut self, index: usize) {
        let Some((server, proof)) = self.workers[index].change(|worker| worker.tie.probe.take())
        else {
            return;
        };
        if !self.hosts[server].alive {
            return;
        }
        let host = &mut self.hosts[server];
        let now = host.now;
        let told = proof.term;
        let acts = host.server.change(|server| server.handle_probe(now, proof));
        let term = acts.map(|acts| acts.term).unwrap_or_default();
        if term > Term(0) && term < told {
            self.breaks("T2", format!("a server acts in term {term} and knows of {told}"));
        }
        self.spread(server);
        self.workers[index].change(|worker| {
            worker.session.handle_probed(worker.clock, server, told, acts);
            if term > told {
                worker.session.handle_timeout(worker.clock); // it asks for that server at once
            }
        });
        self.obey(index);
    }

    /// The server whose recovery window may pass: nobody acts on a lease of an earlier term, since
    /// the window is longer than any.
    pub(crate) fn window(&self) -> Option<usize> {
        let waits = |host: &&ExploredServer| {
            let books = host.server.snapshot(host.now);
            let mut replicas = books.models.values().flat_map(|model| &model.replicas);
            books.recovers || replicas.any(|r| r.state == ReplicaState::Recovering)
        };
        let server = self.hosts.iter().position(|host| host.acts() && waits(&host))?;
        let term = self.hosts[server].server.term();
        let earlier = |index: usize| {
            let lease = self.workers[index].session.lease();
            self.is_bound(index) && lease.is_none_or(|lease| lease.term < term)
        };
        (!(0..self.workers.len()).any(earlier)).then_some(server)
    }

    /// Two leases pass at a server, in which those renew theirs that are there.
    pub(crate) fn close_window(&mut self, server: usize) {
        self.pass(server, LEASE, None);
        self.pass(server, LEASE, None);
    }

    /// While a server may know less than there is, nobody gives up what nobody else has (A5).
    pub(crate) fn check_given_up(&mut self, index: usize, server: usize, message: &ServerMessage) {
        let ServerMessage::Answered { result: Ok(Answer::Unpublished), .. } = message else {
            return;
        };
        let books = self.hosts[server].server.snapshot(self.hosts[server].now);
        let worker = &self.workers[index];
        let Some(version) = worker.session.version().filter(|_| books.recovers) else { return };
        if !books.models.values().any(|model| model.versions.contains_key(&version)) {
            let detail = format!("{} gives up {version} too early", worker.place.replica);
            self.breaks("A5", detail);
        }
    }

    /// When nothing more happens, one server acts and all sessions are open there (L5).
    pub(crate) fn is_together(&self) -> bool {
        let mut acting = self.hosts.iter().filter(|host| host.acts());
        let (Some(host), None) = (acting.next(), acting.next()) else { return false };
        self.workers.iter().all(|worker| {
            worker.session.lease().is_some_and(|lease| lease.term == host.server.term())
        })
    }
}
