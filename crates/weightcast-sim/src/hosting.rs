//! The server's runtime: hands it messages, does what it says, checks its books.

use std::rc::Rc;

use weightcast_protocol::ConnectionId;
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::ServerOutput;

use crate::checkers::Fact;
use crate::queue::{Event, Step};
use crate::world::World;

impl World {
    pub(crate) fn hear(&mut self, stream: ConnectionId, message: ClientMessage) {
        let Some(life) = self.network.client(stream) else { return };
        let who = self.who(life);
        self.observe(Fact::Heard { who, message: &message });
        let quiet = matches!(message, ClientMessage::Heartbeat { .. });
        self.server.handle(self.now, stream, message);
        if quiet { self.send_outputs() } else { self.after_server() }
    }

    /// The server has done something: its messages leave, its books are checked.
    pub(crate) fn after_server(&mut self) {
        self.send_outputs();
        if let Err(violation) = self.server.validate() {
            self.violated(violation.invariant, violation.detail);
        }
        let snapshot = Rc::new(self.server.snapshot(self.now));
        self.observe(Fact::Books(&snapshot));
    }

    fn send_outputs(&mut self) {
        while let Some(output) = self.server.poll_output() {
            match output {
                ServerOutput::Send { to, message } => self.send_down(to, message),
                ServerOutput::Disconnect { connection } => {
                    let at = self.network.down(connection, self.now, &mut self.rng);
                    let client = self.network.client(connection);
                    if let (Some(at), Some(client)) = (at, client) {
                        self.queue.plan(at, Event::Process(client, Step::Gone(connection)));
                    }
                }
            }
        }
        let next = self.server.next_timeout();
        if let Some(at) = next.filter(|at| self.server_timer.is_none_or(|planned| planned > *at)) {
            self.server_timer = Some(at);
            self.queue.plan(at.max(self.now), Event::ServerTimer);
        }
    }

    fn send_down(&mut self, stream: ConnectionId, message: ServerMessage) {
        let Some(client) = self.network.client(stream) else { return };
        if let ServerMessage::Opened { incarnation, .. } = message {
            self.joined.insert(client, incarnation);
        }
        let who = self.who(client);
        self.observe(Fact::Said { who, message: &message });
        if let Some(at) = self.network.down(stream, self.now, &mut self.rng) {
            self.queue.plan(at, Event::Process(client, Step::Message(stream, message)));
        }
    }
}
