//! Runtimes: what the server and the sessions say is done.

use weightcast_protocol::server::ServerOutput;
use weightcast_protocol::session::Output;
use weightcast_protocol::{CallError, ConnectionId, Span};

use super::event::{Happening, ScenarioEvent};
use super::player::Player;
use super::worker::seconds;

/// Streams are named by the worker, in the low bits, and by how many there were before.
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

    /// Does what a session says, until it says no more.
    pub(super) fn obey_session(&mut self, index: usize) {
        while let Some(output) =
            self.workers[index].session.as_mut().and_then(|session| session.poll_output())
        {
            self.obey(index, output);
        }
        let worker = &mut self.workers[index];
        let next = worker.session.as_ref().and_then(|session| session.next_timeout());
        if let Some(at) = next.filter(|at| worker.timer_at.is_none_or(|planned| planned > *at)) {
            worker.timer_at = Some(at);
            let at = at.max(self.now);
            self.plan(at, ScenarioEvent::Worker(self.life(index), Happening::Timer));
        }
    }

    fn obey(&mut self, index: usize, output: Output) {
        let (control, units) = (self.control(), self.units());
        let worker = &mut self.workers[index];
        match output {
            Output::Connect { .. } => {
                self.streams += 1;
                let stream = ConnectionId(self.streams << WORKER_BITS | index as u64);
                self.plan_for(index, control, Happening::Connected(stream));
            }
            Output::Probe { .. } => {} // there is one server
            // Nothing is retained.
            Output::Offload { .. } | Output::StopOffload | Output::Prove { .. } => {}
            // No update is staged.
            Output::Install { .. } | Output::Unstage | Output::Refused { .. } => {}
            // Rates are those of the links: no source is slower than another for nothing.
            Output::Measure { .. } => {}
            Output::Seed { version, ask, .. } => self.begin_seed(index, version, ask),
            Output::Send(message) => {
                if let Some(stream) = worker.connection {
                    self.plan(self.now + control, ScenarioEvent::ToServer(stream, message));
                }
            }
            Output::Expose(generation) => {
                worker.serving = Some(generation);
                worker.filled = units;
            }
            Output::ExposeFilling(generation) => {
                worker.serving = Some(generation);
                worker.filled = 0;
            }
            Output::Fence(_) => {
                worker.serving = None;
                self.readers_lose(index, Span(0), "it has moved on");
            }
            Output::Seal(generation) => {
                let digest = seconds(self.setting.shard_gb / self.setting.latency.digest_gb_s);
                self.plan_for(index, digest, Happening::Sealed(generation));
            }
            Output::Read { seq, attempt, assignment, keep, .. } => {
                self.begin_read(index, seq, attempt, &assignment, keep);
            }
            Output::StopRead => self.stop_read(index),
            Output::Done { result, .. } => self.done(index, result),
            Output::Closed { error } => self.closed(index, error),
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
