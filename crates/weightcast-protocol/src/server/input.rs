//! What happens to a server, as values: what a recording is made of.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine_update::{FleetQuestion, RoutingQuestion};
use crate::message::{ClientMessage, Open};
use crate::server::Server;
use crate::{ConnectionId, ContentDigest, Nonce, TermProof, Ticket, TicketKey, Time};

/// One thing that happens to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerInput {
    /// [`Server::handle`].
    Message {
        /// The stream.
        from: ConnectionId,
        /// What came in.
        message: Box<ClientMessage>,
    },
    /// [`Server::handle_disconnect`].
    Disconnected {
        /// The stream.
        connection: ConnectionId,
    },
    /// [`Server::excuse_delay`], then [`Server::handle_timeout`].
    Timeout,
    /// [`Server::put_manifest`], of which the size stands for the bytes.
    PutManifest {
        /// Its name.
        digest: ContentDigest,
        /// Its size in bytes.
        bytes: usize,
    },
    /// [`Server::has_manifest`].
    HasManifest {
        /// Its name.
        digest: ContentDigest,
    },
    /// [`Server::handle_probe`].
    Probe {
        /// What was shown.
        told: TermProof,
    },
    /// [`Server::ask_fleet`].
    AskFleet {
        /// The model that the fleet serves.
        model: String,
        /// What its register is asked.
        question: FleetQuestion,
    },
    /// [`Server::ask_routing`].
    AskRouting {
        /// The model that the fleet serves.
        model: String,
        /// What its table of routing leases is told or asked.
        question: RoutingQuestion,
    },
}

impl Server {
    /// Lets something happen. What [`Server::put_manifest`], [`Server::has_manifest`], [`Server::handle_probe`],
    /// [`Server::ask_fleet`] and [`Server::ask_routing`] return is for those who call them themselves.
    pub fn take(&mut self, now: Time, input: ServerInput) {
        match input {
            ServerInput::Message { from, message } => self.handle(now, from, *message),
            ServerInput::Disconnected { connection } => self.handle_disconnect(now, connection),
            ServerInput::Timeout => {
                self.excuse_delay(now);
                self.handle_timeout(now);
            }
            ServerInput::PutManifest { digest, bytes } => {
                let _too_large = self.put_blob(now, digest, (Arc::default(), bytes));
            }
            ServerInput::HasManifest { digest } => drop(self.has_manifest(now, digest)),
            ServerInput::Probe { told } => drop(self.handle_probe(now, told)),
            ServerInput::AskFleet { model, question } => drop(self.ask_fleet(&model, question)),
            ServerInput::AskRouting { model, question } => {
                drop(self.ask_routing(now, &model, question));
            }
        }
    }

    /// Whether an input shows a past that a server of this job has given in writing.
    pub(crate) fn believes(&self, input: &ServerInput) -> bool {
        let key = &self.config.ticket_key;
        match input {
            ServerInput::Probe { told } => key.has_proved(told),
            input => input.opened().is_some_and(|open| {
                open.ticket.as_ref().is_some_and(|ticket| key.has_granted(ticket, open.into()))
            }),
        }
    }

    /// How many challenges were drawn so far.
    pub(crate) fn drawn(&self) -> u64 {
        self.challenges.drawn()
    }

    /// The numbers of those after the first so many, in this term.
    pub(crate) fn drawn_after(&self, count: u64) -> Vec<Nonce> {
        self.challenges.drawn_after(count, self.config.secret, self.terms.own.term)
    }

    /// The numbers of the next challenges.
    pub(crate) fn give(&mut self, nonces: Vec<Nonce>) {
        self.challenges.give(nonces);
    }
}

impl ServerInput {
    fn opened(&self) -> Option<&Open> {
        let Self::Message { message, .. } = self else { return None };
        let ClientMessage::Open(open) = &**message else { return None };
        Some(open)
    }

    /// The same, shown to a server whose key is the one that everybody knows.
    pub(crate) fn signed(mut self) -> Self {
        let key = TicketKey::known();
        let signed = self.opened().and_then(|open| {
            let ticket = open.ticket?;
            let proof = key.prove(ticket.proof.term, ticket.proof.origin);
            Some(key.grant(Ticket { proof, ..ticket }, open.into()))
        });
        match &mut self {
            Self::Probe { told } => *told = key.prove(told.term, told.origin),
            Self::Message { message, .. } => {
                if let ClientMessage::Open(open) = &mut **message {
                    open.ticket = signed;
                }
            }
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{EpochPolicy, Role};
    use crate::server::ServerConfig;
    use crate::{PROTOCOL, SessionId, Span};

    /// A process that stood still has heard nobody meanwhile.
    #[test]
    fn a_server_that_wakes_late_excuses_its_clients_before_it_counts_their_silence() {
        let mut server = Server::new(ServerConfig::default());
        let open = Open {
            protocol: PROTOCOL,
            session: SessionId(1),
            model: "policy".into(),
            replica: "rollout".into(),
            shard: 0,
            num_shards: 1,
            role: Role::Rollout,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: Default::default(),
            data_address: String::new(),
            ticket: None,
            rejoins: false,
            activate: true,
        };
        let (from, message) = (ConnectionId(1), Box::new(ClientMessage::Open(open)));
        server.take(Time(0), ServerInput::Message { from, message });
        let due = server.next_timeout().expect("a lease runs out");
        let late = due + Span::from_secs(60);
        server.take(late, ServerInput::Timeout);
        assert_eq!(server.snapshot(late).sessions, 1);
        let again = server.next_timeout().expect("it has been renewed, once");
        server.take(again, ServerInput::Timeout);
        assert_eq!(server.snapshot(again).sessions, 0);
    }
}
