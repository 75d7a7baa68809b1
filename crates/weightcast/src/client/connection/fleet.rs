//! Questions to the register of a fleet and to the table of its routing leases, asked of the server that acts.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};
use weightcast_protocol::CallError;
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, RoutingAnswer, RoutingQuestion,
};
use weightcast_protocol::server::FleetError;

use super::grpc::CONNECT;
use super::{PAUSE, PAUSE_MAX, ServerConnection};
use crate::convert::{MalformedMessage, fleet_request, fleet_told, routing_request, routing_told};
use crate::error::Error;
use crate::wire::{FleetReply, FleetRequest};

/// An answer or an error that asking again would not change; or an error that may pass.
type FleetAsked<A> = ControlFlow<Result<A, Error>, Error>;

/// What a reply about a model says.
type FleetDecoder<A> = fn(&str, FleetReply) -> Result<Result<A, FleetError>, MalformedMessage>;

impl ServerConnection {
    /// Asks the register of a model's fleet, until a server that acts has answered: meanwhile the session turns to that
    /// one. A register answers alike whoever asks twice, so an answer that was lost does no harm.
    ///
    /// # Errors
    /// No server that acts has answered within the deadline; or one refuses, whenever it is asked.
    pub(crate) async fn ask_fleet(
        &self,
        model: &str,
        question: FleetQuestion,
        deadline: Duration,
    ) -> Result<FleetAnswer, Error> {
        self.ask_until(&fleet_request(model, question), fleet_told, deadline).await
    }

    /// Tells or asks the table of routing leases, in the same way.
    ///
    /// # Errors
    /// As [`ServerConnection::ask_fleet`]; [`CallError::Misuse`] if the table does not take a notice.
    pub(crate) async fn ask_routing(
        &self,
        model: &str,
        question: RoutingQuestion,
        deadline: Duration,
    ) -> Result<RoutingAnswer, Error> {
        self.ask_until(&routing_request(model, question), routing_told, deadline).await
    }

    /// The same, of the server that the connection leads to now, once.
    pub(super) async fn engines_once(
        &self,
        model: &str,
        left: Duration,
    ) -> Result<RoutingAnswer, Error> {
        let request = routing_request(model, RoutingQuestion::Engines);
        match self.ask_once(&request, routing_told, left).await {
            ControlFlow::Break(said) => said,
            ControlFlow::Continue(failed) => Err(failed),
        }
    }

    async fn ask_until<A>(
        &self,
        request: &FleetRequest,
        told: FleetDecoder<A>,
        deadline: Duration,
    ) -> Result<A, Error> {
        let until = Instant::now() + deadline;
        let mut pause = PAUSE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let failed = match self.ask_once(request, told, left).await {
                ControlFlow::Break(said) => return said,
                ControlFlow::Continue(failed) => failed,
            };
            if until.saturating_duration_since(Instant::now()) <= pause {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    async fn ask_once<A>(
        &self,
        request: &FleetRequest,
        told: FleetDecoder<A>,
        left: Duration,
    ) -> FleetAsked<A> {
        // Not longer than it takes to find another server.
        let patience = left.min(CONNECT);
        let reply = self.current().1.fleet(request.clone());
        match tokio::time::timeout(patience, reply).await {
            Err(_) => {
                let late = Status::deadline_exceeded("it did not answer in time");
                ControlFlow::Continue(self.unreachable(&late))
            }
            Ok(Err(status)) => self.refused_to_ask(&status),
            Ok(Ok(reply)) => match told(&request.model, reply) {
                Err(malformed) => ControlFlow::Break(Err(Error::Bug(malformed.to_string()))),
                Ok(Ok(answer)) => ControlFlow::Break(Ok(answer)),
                Ok(Err(passive @ FleetError::Passive)) => {
                    let failed = Status::failed_precondition(passive.to_string());
                    ControlFlow::Continue(self.unreachable(&failed))
                }
                // The handle's own group may be about to come over.
                Ok(Err(none @ FleetError::NoModel { .. })) => {
                    ControlFlow::Continue(Error::misuse(none.to_string()))
                }
                Ok(Err(refused @ FleetError::Routing(_))) => {
                    ControlFlow::Break(Err(Error::misuse(refused.to_string())))
                }
            },
        }
    }

    fn refused_to_ask<A>(&self, status: &Status) -> FleetAsked<A> {
        match status.code() {
            Code::Unimplemented => {
                let reason =
                    "it is older than this client, and keeps no register of a fleet: update it";
                let server = self.current().0.clone();
                let old = CallError::ServerUnreachable { server, reason: reason.to_owned() };
                ControlFlow::Break(Err(old.into()))
            }
            Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
                ControlFlow::Break(Err(self.unreachable(status)))
            }
            _ => ControlFlow::Continue(self.unreachable(status)),
        }
    }
}

#[cfg(test)]
mod tests;
