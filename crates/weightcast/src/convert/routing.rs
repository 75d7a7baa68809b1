//! Notices and questions to the table of a fleet's routing leases, and its answers.

use weightcast_protocol::Span;
use weightcast_protocol::engine_update::{
    RoutingAnswer, RoutingLease, RoutingQuestion, RoutingState, ServingNotice,
};
use weightcast_protocol::limits::{NAME_BYTES, ROUTED_ENGINES};
use weightcast_protocol::server::FleetError;

use super::fleet_refusal::{refusal, refused_as};
use super::values::{version, version_frame};
use super::{MalformedMessage, need};
use crate::wire;
use crate::wire::fleet_reply::Reply;
use crate::wire::fleet_request::Question;

/// To a request.
pub(crate) fn routing_request(model: &str, question: RoutingQuestion) -> wire::FleetRequest {
    let question = match question {
        RoutingQuestion::Engines => Question::Engines(wire::FleetEngines {}),
        RoutingQuestion::Serves(ServingNotice { engine, life, worker, workers, count, serves }) => {
            let serves = serves.map(version_frame);
            Question::Serving(wire::ServingNotice { engine, life, worker, workers, count, serves })
        }
    };
    wire::FleetRequest { model: model.to_owned(), question: Some(question) }
}

/// From a request's notice.
pub(super) fn serving_notice(of: wire::ServingNotice) -> Result<RoutingQuestion, MalformedMessage> {
    let wire::ServingNotice { engine, life, worker, workers, count, serves } = of;
    if engine.len() > NAME_BYTES {
        return Err(MalformedMessage("the engine's name is too long"));
    }
    let serves = serves.map(|of| version(Some(of))).transpose()?;
    let notice = ServingNotice { engine, life, worker, workers, count, serves };
    Ok(RoutingQuestion::Serves(notice))
}

/// To a reply.
pub(crate) fn routing_reply(told: Result<RoutingAnswer, FleetError>) -> wire::FleetReply {
    let reply = match told {
        Ok(RoutingAnswer { lease, engines }) => Reply::Engines(wire::FleetLeases {
            lease_ns: lease.0,
            engines: engines.into_iter().map(lease_frame).collect(),
        }),
        Err(error) => refusal(error),
    };
    wire::FleetReply { reply: Some(reply) }
}

/// From a reply about this model.
pub(crate) fn routing_told(
    model: &str,
    reply: wire::FleetReply,
) -> Result<Result<RoutingAnswer, FleetError>, MalformedMessage> {
    Ok(match need(reply.reply, "reply")? {
        Reply::Engines(wire::FleetLeases { engines, .. }) if engines.len() > ROUTED_ENGINES => {
            return Err(MalformedMessage("more engines than a table has"));
        }
        Reply::Engines(wire::FleetLeases { lease_ns, engines }) => Ok(RoutingAnswer {
            lease: Span(lease_ns),
            engines: engines.into_iter().map(lease).collect::<Result<_, _>>()?,
        }),
        refused => Err(refused_as(model, refused)?),
    })
}

fn lease_frame(of: RoutingLease) -> wire::RoutingLease {
    let RoutingLease { engine, life, state, version, left } = of;
    let state = match state {
        RoutingState::Admitted => wire::RoutingState::Admitted,
        RoutingState::Behind => wire::RoutingState::Behind,
        RoutingState::Standing => wire::RoutingState::Standing,
        RoutingState::Joining => wire::RoutingState::Joining,
    };
    let version = version.map(version_frame);
    wire::RoutingLease { engine, life, state: state.into(), version, left_ns: left.0 }
}

fn lease(of: wire::RoutingLease) -> Result<RoutingLease, MalformedMessage> {
    let state = match wire::RoutingState::try_from(of.state) {
        Ok(wire::RoutingState::Admitted) => RoutingState::Admitted,
        Ok(wire::RoutingState::Behind) => RoutingState::Behind,
        Ok(wire::RoutingState::Standing) => RoutingState::Standing,
        Ok(wire::RoutingState::Joining) => RoutingState::Joining,
        Ok(wire::RoutingState::Unspecified) | Err(_) => {
            return Err(MalformedMessage("unknown state of an engine"));
        }
    };
    let version = of.version.map(|of| version(Some(of))).transpose()?;
    Ok(RoutingLease { engine: of.engine, life: of.life, state, version, left: Span(of.left_ns) })
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weightcast_protocol::engine_update::RoutingError;
    use weightcast_protocol::{Epoch, Version};

    use super::*;

    const VERSION: Version = Version { epoch: Epoch(3), number: 4 };

    #[test]
    fn an_answer_goes_over_the_wire_and_comes_back_as_it_was() {
        let lease = |state, version| RoutingLease {
            engine: "http://host:8000".to_owned(),
            life: 5,
            state,
            version,
            left: Span(6),
        };
        let engines = vec![
            lease(RoutingState::Admitted, Some(VERSION)),
            lease(RoutingState::Behind, Some(VERSION)),
            lease(RoutingState::Standing, None),
            lease(RoutingState::Joining, None),
        ];
        for told in [
            Ok(RoutingAnswer { lease: Span(9), engines }),
            Ok(RoutingAnswer { lease: Span(9), engines: Vec::new() }),
            Err(FleetError::Passive),
            Err(FleetError::NoModel { model: "policy".into() }),
            Err(RoutingError::Full { limit: 4_096 }.into()),
            Err(RoutingError::NoSuchWorker { worker: 3, workers: 2 }.into()),
        ] {
            let bytes = routing_reply(told.clone()).encode_to_vec();
            let heard = wire::FleetReply::decode(&*bytes).expect("it was encoded");
            assert_eq!(routing_told("policy", heard).expect("it makes sense"), told);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let with = |engines| wire::FleetReply {
            reply: Some(Reply::Engines(wire::FleetLeases { lease_ns: 1, engines })),
        };
        let of = |state| wire::RoutingLease { state, ..wire::RoutingLease::default() };
        for state in [0, 5, -1] {
            assert!(routing_told("policy", with(vec![of(state)])).is_err());
        }
        assert!(routing_told("policy", with(vec![of(1); ROUTED_ENGINES])).is_ok());
        assert!(routing_told("policy", with(vec![of(1); ROUTED_ENGINES + 1])).is_err());
        assert!(routing_told("policy", wire::FleetReply { reply: None }).is_err());
        // The answer to the other kind of question.
        let answer = Reply::Answer(wire::FleetAnswer::default());
        assert!(routing_told("policy", wire::FleetReply { reply: Some(answer) }).is_err());
    }
}
