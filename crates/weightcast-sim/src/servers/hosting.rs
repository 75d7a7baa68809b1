//! A server's runtime: hands messages to the server, carries out its outputs, checks its books.

use std::rc::Rc;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::ServerOutput;
use weightcast_protocol::{ConnectionId, Term};

use crate::checkers::Fact;
use crate::parts::queue::{ProcessStep, ServerStep, WorldEvent};
use crate::settings::fault_kinds::FaultKind;
use crate::world::World;

impl World {
    pub(crate) fn hear(&mut self, stream: ConnectionId, message: ClientMessage) {
        let Some(life) = self.network.client(stream) else { return };
        let Some(index) = self.network.host(stream) else { return };
        let (who, now) = (self.who(life), self.now);
        let host = &mut self.hosts[index];
        if host.paused_until > now {
            return self.queue.plan(host.paused_until, WorldEvent::ToServer(stream, message));
        }
        let term = host.term();
        self.observe(Fact::Heard { who, term, message: &message });
        let dies = self.dies_sealing(&message);
        // Half of these servers die before they handle the message, the others after.
        if dies && self.rng.chance(500) {
            return self.die_sealing(index);
        }
        let quiet = matches!(message, ClientMessage::Heartbeat { .. });
        let Some(server) = &mut self.hosts[index].server else { return };
        server.handle(now, stream, Box::new(message));
        if quiet {
            self.send_outputs(index)
        } else {
            self.after_server(index)
        }
        if dies {
            self.die_sealing(index);
        }
    }

    /// Sends what the server has put out, and checks its books.
    pub(crate) fn after_server(&mut self, host: usize) {
        self.send_outputs(host);
        let Some(server) = &self.hosts[host].server else { return };
        let (valid, snapshot) = (server.validate(), Rc::new(server.snapshot(self.now)));
        if let Err(violation) = valid {
            // A broken T5 means state or work without bound: the rest of the world would only get
            // slower.
            self.over |= violation.invariant == "T5";
            self.violated(violation.invariant, violation.detail);
        }
        self.observe(Fact::Books(&snapshot));
    }

    fn send_outputs(&mut self, host: usize) {
        let term = self.hosts[host].term();
        let server = self.hosts[host].server.as_mut();
        let mut outputs: Vec<ServerOutput> = server
            .map_or_else(Vec::new, |server| std::iter::from_fn(|| server.poll_output()).collect());
        let dies = self.server_dies_halfway(host, &mut outputs);
        for output in outputs {
            self.fingerprint.server_output(&output);
            match output {
                ServerOutput::Send { to, message } => self.send_down(to, term, message),
                ServerOutput::Disconnect { connection } => {
                    let at = self.network.down(connection, self.now, &mut self.rng);
                    let client = self.network.client(connection);
                    if let (Some(at), Some(client)) = (at, client) {
                        self.queue
                            .plan(at, WorldEvent::Process(client, ProcessStep::Gone(connection)));
                    }
                }
            }
        }
        if let Some(down) = dies {
            let (kind, until) = (FaultKind::ServerCrash, self.now + down);
            self.observe(Fact::Struck { kind, process: None, until });
            return self.crash_server(host, until);
        }
        let (seat, host) = (self.seat(host), &mut self.hosts[host]);
        let next = host.server.as_ref().and_then(|server| server.next_timeout());
        if let Some(at) = next.filter(|at| host.timer.is_none_or(|planned| planned > *at)) {
            host.timer = Some(at);
            self.queue.plan(at.max(self.now), WorldEvent::Server(seat, ServerStep::Timer));
        }
    }

    fn send_down(&mut self, stream: ConnectionId, term: Term, message: ServerMessage) {
        let Some(client) = self.network.client(stream) else {
            return self.pretender_hears(&message);
        };
        if let ServerMessage::Opened { ticket, .. } = message {
            self.joined.insert(client, ticket.incarnation);
        }
        let who = self.who(client);
        self.observe(Fact::Said { who, term, message: &message });
        if let Some(at) = self.network.down(stream, self.now, &mut self.rng) {
            self.queue
                .plan(at, WorldEvent::Process(client, ProcessStep::Message(stream, term, message)));
        }
    }
}
