//! The machines that the reference servers run on: which runs, which is held up, who reaches whom.

use weightcast_protocol::server::{Server, ServerConfig, Snapshot};
use weightcast_protocol::{Span, Term, Time};

use crate::processes::staging::INSTALL_DEADLINE;
use crate::settings::options::Options;
use crate::world::World;
use crate::world::queue::{Event, Seat, ServerStep, Step};
use crate::world::rng::mix;

/// A machine with a reference server.
#[derive(Debug)]
pub(crate) struct Host {
    /// `None` while it is down.
    pub(crate) server: Option<Server>,
    /// How often the server has been started.
    pub(crate) life: u32,
    /// Suspended until then: the zombie of its own term, if another one acts meanwhile.
    pub(crate) paused_until: Time,
    /// It dies in the middle of what it says next, for so long.
    pub(crate) dies_halfway: Option<Span>,
    /// When the server's timer was last planned for.
    pub(crate) timer: Option<Time>,
}

impl Host {
    pub(crate) fn new(options: &Options, index: usize) -> Self {
        let server = Some(start(options, index, 0));
        Self { server, life: 0, paused_until: Time(0), dies_halfway: None, timer: None }
    }

    /// The term that it acts in; zero if it does not.
    pub(crate) fn term(&self) -> Term {
        self.server.as_ref().map_or(Term(0), Server::term)
    }
}

/// A server that remembers nothing. Its lives are told apart by a random number, as those of a real
/// one.
fn start(options: &Options, index: usize, life: u32) -> Server {
    Server::new(ServerConfig {
        life: mix(&[index as u64, life.into()]),
        index: index as u32,
        depth_limit: options.depth_limit,
        lease: options.lease,
        fanout: options.fanout,
        stripes: options.stripes,
        drain_deadline: options.drain_deadline,
        offload_deadline: options.offload_deadline,
        seed_deadline: options.seed_deadline,
        install_deadline: INSTALL_DEADLINE,
        limits: options.limits.clone(),
        safeguards: options.safeguards,
        secret: [index as u64, life.into()],
        ..ServerConfig::default()
    })
}

impl World {
    pub(crate) fn seat(&self, host: usize) -> Seat {
        Seat { host, life: self.hosts[host].life }
    }

    /// The server of the latest term.
    pub(crate) fn leader(&self) -> usize {
        let term = |index: &usize| (self.hosts[*index].term(), usize::MAX - index);
        (0..self.hosts.len()).max_by_key(term).expect("there is a server")
    }

    /// What the server of the latest term knows.
    pub(crate) fn books(&self) -> Option<Snapshot> {
        let server = self.hosts[self.leader()].server.as_ref();
        server.map(|server| server.snapshot(self.now))
    }

    /// Whether a process reaches a server: a new stream, or a question, gets there.
    pub(crate) fn reaches(&self, process: usize, host: usize) -> bool {
        let trouble = &self.processes[process].trouble;
        let cut_off =
            trouble.cut_off_until.max(trouble.rift_until.get(&host).copied().unwrap_or_default());
        cut_off <= self.now && self.hosts[host].server.is_some()
    }

    /// Something happens to a server.
    pub(crate) fn serve(&mut self, seat: Seat, step: ServerStep) {
        let host = &mut self.hosts[seat.host];
        if host.life != seat.life {
            return;
        }
        if host.paused_until > self.now {
            return self.queue.plan(host.paused_until, Event::Server(seat, step));
        }
        let now = self.now;
        match (step, &mut host.server) {
            (ServerStep::Start, server) => {
                *server = Some(start(&self.options, seat.host, seat.life));
            }
            (ServerStep::Timer, Some(server)) => {
                host.timer = None;
                server.excuse_delay(now);
                server.handle_timeout(now);
            }
            (ServerStep::Gone(stream), Some(server)) => server.handle_disconnect(now, stream),
            (ServerStep::Probe { client, told }, Some(server)) => {
                let acts = server.handle_probe(now, told);
                if self.reaches(client.process, seat.host) {
                    let step = Step::Probed { server: seat.host, told: told.term, acts };
                    let at = now + self.delay();
                    self.queue.plan(at, Event::Process(client, step));
                }
            }
            (_, None) => return,
        }
        self.after_server(seat.host);
    }

    /// A server's process dies, with all that it knows; it is started again.
    pub(crate) fn crash_server(&mut self, index: usize, until: Time) {
        for stream in self.network.streams_of(index) {
            self.break_wire(stream);
        }
        let host = &mut self.hosts[index];
        host.life += 1;
        host.server = None;
        host.dies_halfway = None;
        host.timer = None;
        let seat = self.seat(index);
        self.queue.plan(until, Event::Server(seat, ServerStep::Start));
    }

    /// Some processes do not reach a server, which goes on for the others.
    pub(crate) fn rift(&mut self, index: usize, until: Time) {
        for process in 0..self.processes.len() {
            if self.rng.chance(500) {
                self.processes[process].trouble.rift_until.insert(index, until);
                let stream = self.processes[process].stream;
                if stream.is_some_and(|stream| self.network.host(stream) == Some(index)) {
                    self.break_stream(process);
                }
            }
        }
    }
}
