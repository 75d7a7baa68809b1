//! The machines of the reference servers: which server runs, which is held up, which process
//! reaches which server.

use weightcast_protocol::Time;
use weightcast_protocol::server::Snapshot;

use crate::parts::host::start;
use crate::parts::queue::{ProcessStep, Seat, ServerStep, WorldEvent};
use crate::world::World;

impl World {
    pub(crate) fn seat(&self, host: usize) -> Seat {
        Seat { host, life: self.hosts[host].life }
    }

    /// The server of the latest term.
    pub(crate) fn leader(&self) -> usize {
        let term = |index: &usize| (self.hosts[*index].term(), usize::MAX - index);
        (0..self.hosts.len()).max_by_key(term).expect("there is a server")
    }

    /// The books of the server of the latest term.
    pub(crate) fn books(&self) -> Option<Snapshot> {
        let server = self.hosts[self.leader()].server.as_ref();
        server.map(|server| server.snapshot(self.now))
    }

    /// Whether a process reaches a server with a new stream or a probe.
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
            return self.queue.plan(host.paused_until, WorldEvent::Server(seat, step));
        }
        let now = self.now;
        match (step, &mut host.server) {
            (ServerStep::Start, server) => {
                *server = Some(start(&self.options, seat.host, seat.life));
            }
            (ServerStep::Timer, Some(server)) => {
                host.timer = None;
                server.handle_timeout(now);
            }
            (ServerStep::Gone(stream), Some(server)) => server.handle_disconnect(now, stream),
            (ServerStep::Probe { client, told }, Some(server)) => {
                let acts = server.handle_probe(now, told);
                if self.reaches(client.process, seat.host) {
                    let step = ProcessStep::Probed { server: seat.host, told: told.term, acts };
                    let at = now + self.delay();
                    self.queue.plan(at, WorldEvent::Process(client, step));
                }
            }
            (_, None) => return,
        }
        self.after_server(seat.host);
    }

    /// A server's process dies with everything that it knows, and is started again at `until`.
    pub(crate) fn crash_server(&mut self, index: usize, until: Time) {
        for stream in self.network.streams_of(index) {
            self.break_wire(stream);
        }
        self.keep_server(index);
        let host = &mut self.hosts[index];
        host.life += 1;
        host.dies_halfway = None;
        host.timer = None;
        let seat = self.seat(index);
        self.queue.plan(until, WorldEvent::Server(seat, ServerStep::Start));
    }

    /// About half of the processes can't reach a server, which goes on for the others.
    pub(crate) fn rift(&mut self, index: usize, until: Time) {
        for process in 0..self.processes.len() {
            if self.rng.chance(500) {
                self.processes[process].trouble.rift_until.insert(index, until);
                let stream = self.processes[process].host.stream;
                if stream.is_some_and(|stream| self.network.host(stream) == Some(index)) {
                    self.break_stream(process);
                }
            }
        }
    }
}
