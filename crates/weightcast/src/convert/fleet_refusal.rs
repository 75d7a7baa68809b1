//! Why a question about a fleet has no answer.

use weightcast_protocol::engine_update::RoutingError;
use weightcast_protocol::server::FleetError;

use super::MalformedMessage;
use crate::wire;
use crate::wire::fleet_reply::Reply;

/// To a reply: why there is no answer.
pub(super) fn refusal(error: FleetError) -> Reply {
    match error {
        FleetError::Passive => Reply::Passive(true),
        FleetError::NoModel { .. } => Reply::NoModel(true),
        FleetError::Routing(error) => Reply::Refused(routing_refusal(error)),
    }
}

/// From a reply without an answer about this model.
pub(super) fn refused_as(model: &str, reply: Reply) -> Result<FleetError, MalformedMessage> {
    match reply {
        Reply::Passive(_) => Ok(FleetError::Passive),
        Reply::NoModel(_) => Ok(FleetError::NoModel { model: model.to_owned() }),
        Reply::Refused(why) => Ok(FleetError::Routing(routing_error(why))),
        Reply::Answer(_) | Reply::Engines(_) => Err(MalformedMessage("another question's answer")),
    }
}

/// To a refusal.
fn routing_refusal(error: RoutingError) -> wire::RoutingRefusal {
    match error {
        RoutingError::Full { limit } => {
            wire::RoutingRefusal { limit: limit as u64, ..Default::default() }
        }
        RoutingError::NoSuchWorker { worker, workers } => {
            wire::RoutingRefusal { limit: 0, worker, workers }
        }
    }
}

/// From a refusal.
fn routing_error(of: wire::RoutingRefusal) -> RoutingError {
    match of {
        wire::RoutingRefusal { limit: 0, worker, workers } => {
            RoutingError::NoSuchWorker { worker, workers }
        }
        wire::RoutingRefusal { limit, .. } => RoutingError::Full { limit: limit as usize },
    }
}
