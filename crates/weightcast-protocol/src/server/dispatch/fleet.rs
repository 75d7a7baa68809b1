//! Questions to the register of a fleet (the engines that serve one model), and to the table of its routing leases.
//!
//! The register is the model's: made at the first question, forgotten with the model, and at the end of the server's term.
//! Then the next register has another life, and says of everything before that it does not know
//! ([`FleetRegister`]).

use thiserror::Error;

use crate::Time;
use crate::engine_update::{
    FleetAnswer, FleetQuestion, FleetRegister, RoutingAnswer, RoutingError, RoutingQuestion,
    RoutingTable,
};
use crate::limits::ROUTING_LEASE;
use crate::server::Server;
use crate::server::stores::model::Model;

/// Why a question to a fleet's register has no answer. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FleetError {
    /// This server does not act.
    #[error("this reference server is passive; ask the one that acts")]
    Passive,
    /// Nobody has opened the model, or all have left it.
    #[error("no handle of model {model} is open here; open one, then ask for its fleet")]
    NoModel {
        /// The model that was asked about.
        model: String,
    },
    /// The table of routing leases does not take the notice.
    #[error(transparent)]
    Routing(#[from] RoutingError),
}

impl Server {
    /// Asks the register of the fleet that serves a model. A server that has taken over answers within its recovery window
    /// too: its register is a new one.
    ///
    /// # Errors
    /// The server is passive, or nobody is in the model.
    pub fn ask_fleet(
        &mut self,
        model: &str,
        question: FleetQuestion,
    ) -> Result<FleetAnswer, FleetError> {
        let own = self.terms.acting().ok_or(FleetError::Passive)?;
        let Some(of) = self.models.get_mut(model) else {
            return Err(no_model(model));
        };
        let register = of.fleet.get_or_insert_with(|| {
            let life = self.numbers.next_register(self.config.life, own.term);
            FleetRegister::new(life, self.config.safeguards)
        });
        Ok(register.answer(question))
    }

    /// Tells or asks the table of a fleet's routing leases. The table is as short-lived as the register; engines tell the
    /// next one within a lease.
    ///
    /// # Errors
    /// The server is passive, nobody is in the model, or the table does not take the notice.
    pub fn ask_routing(
        &mut self,
        now: Time,
        model: &str,
        question: RoutingQuestion,
    ) -> Result<RoutingAnswer, FleetError> {
        self.terms.acting().ok_or(FleetError::Passive)?;
        let safeguards = self.config.safeguards;
        let of = self.models.get_mut(model).ok_or_else(|| no_model(model))?;
        let Model { fleet, routing, .. } = of;
        let version = fleet.as_ref().and_then(FleetRegister::version);
        let table = routing.get_or_insert_with(|| RoutingTable::new(ROUTING_LEASE, safeguards));
        Ok(table.answer(now, version, question)?)
    }
}

fn no_model(model: &str) -> FleetError {
    FleetError::NoModel { model: model.to_owned() }
}
