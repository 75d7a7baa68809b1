//! The inputs of a server, past its recorder.

use crate::engine_update::{FleetAnswer, FleetQuestion, RoutingAnswer, RoutingQuestion};
use crate::message::ClientMessage;
use crate::recording::machine::RecordedMachine;
use crate::server::{FleetError, Server, ServerInput, StageChange};
use crate::{CallError, ConnectionId, ContentDigest, TermProof, Time};

impl RecordedMachine<Server> {
    /// [`Server::handle`].
    pub fn handle(&mut self, now: Time, from: ConnectionId, message: Box<ClientMessage>) {
        self.take(now, ServerInput::Message { from, message });
    }

    /// [`Server::handle_disconnect`].
    pub fn handle_disconnect(&mut self, now: Time, connection: ConnectionId) {
        self.take(now, ServerInput::Disconnected { connection });
    }

    /// [`Server::excuse_delay`], since the process may have stood still, then [`Server::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.take(now, ServerInput::Timeout);
    }

    /// [`Server::put_manifest`].
    ///
    /// # Errors
    /// `Limit` for one that is too large, or too many.
    pub fn put_manifest(
        &mut self,
        now: Time,
        digest: ContentDigest,
        content: Vec<u8>,
    ) -> Result<(), CallError> {
        self.note(now, &ServerInput::PutManifest { digest, bytes: content.len() });
        self.noted().put_manifest(now, digest, content)
    }

    /// [`Server::has_manifest`].
    pub fn has_manifest(&mut self, now: Time, digest: ContentDigest) -> bool {
        self.note(now, &ServerInput::HasManifest { digest });
        self.noted().has_manifest(now, digest)
    }

    /// [`Server::handle_probe`].
    pub fn handle_probe(&mut self, now: Time, told: TermProof) -> Option<TermProof> {
        self.note(now, &ServerInput::Probe { told });
        self.noted().handle_probe(now, told)
    }

    /// [`Server::ask_fleet`]. The name has at most [`NAME_BYTES`](crate::limits::NAME_BYTES), since it is recorded.
    ///
    /// # Errors
    /// Those of the server.
    pub fn ask_fleet(
        &mut self,
        now: Time,
        model: &str,
        question: FleetQuestion,
    ) -> Result<FleetAnswer, FleetError> {
        self.note(now, &ServerInput::AskFleet { model: model.to_owned(), question });
        self.noted().ask_fleet(model, question)
    }

    /// [`Server::ask_routing`]. Names have at most [`NAME_BYTES`](crate::limits::NAME_BYTES), since they are recorded.
    ///
    /// # Errors
    /// Those of the server.
    pub fn ask_routing(
        &mut self,
        now: Time,
        model: &str,
        question: RoutingQuestion,
    ) -> Result<RoutingAnswer, FleetError> {
        let input = ServerInput::AskRouting { model: model.to_owned(), question: question.clone() };
        self.note(now, &input);
        self.noted().ask_routing(now, model, question)
    }

    /// [`Server::poll_stage`], which changes nothing that counts: a recording has no stages.
    pub fn poll_stage(&mut self) -> Option<StageChange> {
        self.noted().poll_stage()
    }
}
