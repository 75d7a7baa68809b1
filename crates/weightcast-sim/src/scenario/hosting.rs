//! Runtimes: they carry out what the server and the sessions ask for.

use weightcast_protocol::message::{Answer, ClientMessage};
use weightcast_protocol::server::ServerOutput;
use weightcast_protocol::session::{Output, ReadOrder};
use weightcast_protocol::{CallError, ConnectionId, Generation, OpSeq, Span, Version};
use weightcast_testkit::{Exposed, VirtualHost, VirtualRuntime, drive};

use super::event::{Happening, ScenarioEvent};
use super::player::Player;
use super::worker::{FlowRead, Worker, seconds};

/// Bits of a stream's name for its worker, the low ones. The other bits count streams.
const WORKER_BITS: u32 = 20;

impl Player<'_> {
    /// The server's messages leave.
    pub(super) fn serve(&mut self) {
        while let Some(output) = self.server.poll_output() {
            let (to, happening) = match output {
                ServerOutput::Send { to, message } => (to, Happening::Message(to, message)),
                ServerOutput::Disconnect { connection } => {
                    (connection, Happening::Gone(connection))
                }
            };
            let worker = (to.0 & ((1 << WORKER_BITS) - 1)) as usize;
            self.plan_for(worker, self.control(), happening);
        }
        let next = self.server.next_timeout();
        if let Some(at) = next.filter(|at| self.server_timer.is_none_or(|planned| planned > *at)) {
            self.server_timer = Some(at);
            self.plan(at.max(self.now), ScenarioEvent::ServerTimer);
        }
    }

    /// Does what a session asks for, until it asks for no more.
    pub(super) fn obey_session(&mut self, index: usize) {
        drive(&mut WorkerHost { player: self, index });
        let worker = &mut self.workers[index];
        let next = worker.session.as_ref().and_then(|session| session.next_timeout());
        if let Some(at) = next.filter(|at| worker.timer_at.is_none_or(|planned| planned > *at)) {
            worker.timer_at = Some(at);
            let at = at.max(self.now);
            self.plan(at, ScenarioEvent::Worker(self.life(index), Happening::Timer));
        }
    }

    fn closed(&mut self, index: usize, error: Option<CallError>) {
        if self.workers[index].ask.is_some() {
            return self.end_seed(index, error.is_some());
        }
        let why = error.map_or("it was closed".to_owned(), |error| error.to_string());
        self.outcome.failed(format!("a session ended: {why}"));
        self.end_life(index);
    }
}

/// A worker that does what its session asks for. There is one server, nothing is retained, and no
/// update is staged. Rates are those of the links: no source is slow by itself.
struct WorkerHost<'a, 'b> {
    player: &'a mut Player<'b>,
    index: usize,
}

impl WorkerHost<'_, '_> {
    fn worker(&mut self) -> &mut Worker {
        &mut self.player.workers[self.index]
    }
}

impl VirtualRuntime for WorkerHost<'_, '_> {
    type Reading = FlowRead;
    type Staged = ();

    fn host(&mut self) -> &mut VirtualHost<FlowRead> {
        &mut self.worker().host
    }

    fn next_output(&mut self) -> Option<Output> {
        self.worker().session.as_mut()?.poll_output()
    }

    fn connect(&mut self, _: usize) {
        self.player.streams += 1;
        let stream = ConnectionId(self.player.streams << WORKER_BITS | self.index as u64);
        let control = self.player.control();
        self.player.plan_for(self.index, control, Happening::Connected(stream));
    }

    fn send(&mut self, stream: ConnectionId, message: ClientMessage) {
        let at = self.player.now + self.player.control();
        self.player.plan(at, ScenarioEvent::ToServer(stream, message));
    }

    fn exposed(&mut self, _: Generation) {
        let units = self.player.units();
        self.worker().filled = units;
    }

    fn exposed_filling(&mut self, _: Generation) {
        self.worker().filled = 0;
    }

    fn fenced(&mut self, _: Generation, _: Option<Exposed>) {
        self.player.readers_lose(self.index, Span(0), "it has moved on");
    }

    fn seal(&mut self, generation: Generation) {
        let setting = self.player.setting;
        let digest = seconds(setting.shard_gb / setting.latency.digest_gb_s);
        self.player.plan_for(self.index, digest, Happening::Sealed(generation));
    }

    fn read(&mut self, order: ReadOrder) {
        self.player.begin_read(self.index, &order);
    }

    fn stopping_read(&mut self) {
        self.player.stop_read(self.index);
    }

    fn seed(&mut self, version: Version, ask: u64, _: Span) {
        self.worker().host.seeding.remove(&ask);
        self.player.begin_seed(self.index, version, ask);
    }

    fn answer(&mut self, _: OpSeq, result: Result<Answer, CallError>) {
        self.player.done(self.index, result);
    }

    fn end(&mut self, error: Option<CallError>) {
        self.player.closed(self.index, error);
    }
}
