//! Questions to the register of a fleet, and its answers.

use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, FleetTransaction, FleetVerdict, RoutingQuestion,
};
use weightcast_protocol::limits::NAME_BYTES;
use weightcast_protocol::server::FleetError;

use super::fleet_refusal::{refusal, refused_as};
use super::routing::serving_notice;
use super::values::{version, version_frame};
use super::{MalformedMessage, need};
use crate::wire;
use crate::wire::fleet_reply::Reply;
use crate::wire::fleet_request::Question;

/// What is asked about a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedFleet {
    /// Its register.
    Register(FleetQuestion),
    /// The table of its routing leases.
    Routing(RoutingQuestion),
}

/// To a request.
pub(crate) fn fleet_request(model: &str, question: FleetQuestion) -> wire::FleetRequest {
    let question = match question {
        FleetQuestion::State => Question::State(wire::FleetState {}),
        FleetQuestion::Number { key, heard } => {
            Question::Number(wire::FleetNumber { key, heard, of_pushes: false })
        }
        FleetQuestion::PushNumber { key, heard } => {
            Question::Number(wire::FleetNumber { key, heard, of_pushes: true })
        }
        FleetQuestion::Verdict { transaction, wanted, version } => {
            Question::Decision(wire::FleetDecision {
                transaction: Some(wire::FleetTransaction {
                    driver: transaction.driver,
                    number: transaction.number,
                }),
                wanted: verdict_frame(wanted),
                version: Some(version_frame(version)),
            })
        }
    };
    wire::FleetRequest { model: model.to_owned(), question: Some(question) }
}

/// From a request: the model, and what is asked.
pub(crate) fn fleet_question(
    request: wire::FleetRequest,
) -> Result<(String, AskedFleet), MalformedMessage> {
    if request.model.len() > NAME_BYTES {
        return Err(MalformedMessage("the model's name is too long"));
    }
    let question = match need(request.question, "question")? {
        Question::State(_) => AskedFleet::Register(FleetQuestion::State),
        Question::Number(wire::FleetNumber { key, heard, of_pushes }) => {
            AskedFleet::Register(match of_pushes {
                false => FleetQuestion::Number { key, heard },
                true => FleetQuestion::PushNumber { key, heard },
            })
        }
        Question::Decision(of) => {
            let wire::FleetTransaction { driver, number } = need(of.transaction, "transaction")?;
            AskedFleet::Register(FleetQuestion::Verdict {
                transaction: FleetTransaction { driver, number },
                wanted: verdict(of.wanted)?,
                version: version(of.version)?,
            })
        }
        Question::Serving(notice) => AskedFleet::Routing(serving_notice(notice)?),
        Question::Engines(_) => AskedFleet::Routing(RoutingQuestion::Engines),
    };
    Ok((request.model, question))
}

/// To a reply.
pub(crate) fn fleet_reply(told: Result<FleetAnswer, FleetError>) -> wire::FleetReply {
    let reply = match told {
        Ok(answer) => Reply::Answer(wire::FleetAnswer {
            driver: answer.driver,
            superseded: answer.superseded,
            version: answer.version.map(version_frame),
            verdict: answer.verdict.map(verdict_frame),
        }),
        Err(error) => refusal(error),
    };
    wire::FleetReply { reply: Some(reply) }
}

/// From a reply about this model.
pub(crate) fn fleet_told(
    model: &str,
    reply: wire::FleetReply,
) -> Result<Result<FleetAnswer, FleetError>, MalformedMessage> {
    Ok(match need(reply.reply, "reply")? {
        Reply::Answer(answer) => Ok(FleetAnswer {
            driver: answer.driver,
            superseded: answer.superseded,
            version: answer.version.map(|of| version(Some(of))).transpose()?,
            verdict: answer.verdict.map(verdict).transpose()?,
        }),
        Reply::Engines(_) => return Err(MalformedMessage("engines, which were not asked for")),
        refused => Err(refused_as(model, refused)?),
    })
}

fn verdict_frame(of: FleetVerdict) -> i32 {
    match of {
        FleetVerdict::Commit => wire::FleetVerdict::Commit as i32,
        FleetVerdict::Abort => wire::FleetVerdict::Abort as i32,
    }
}

fn verdict(of: i32) -> Result<FleetVerdict, MalformedMessage> {
    match wire::FleetVerdict::try_from(of) {
        Ok(wire::FleetVerdict::Commit) => Ok(FleetVerdict::Commit),
        Ok(wire::FleetVerdict::Abort) => Ok(FleetVerdict::Abort),
        Ok(wire::FleetVerdict::Unspecified) | Err(_) => Err(MalformedMessage("unknown verdict")),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weightcast_protocol::engine_update::ServingNotice;
    use weightcast_protocol::{Epoch, Version};

    use super::super::routing::routing_request;
    use super::*;

    const VERSION: Version = Version { epoch: Epoch(3), number: 4 };

    fn questions() -> Vec<FleetQuestion> {
        let verdict = |wanted| FleetQuestion::Verdict {
            transaction: FleetTransaction { driver: 1, number: u64::MAX },
            wanted,
            version: VERSION,
        };
        vec![
            FleetQuestion::State,
            FleetQuestion::Number { key: 5, heard: None },
            FleetQuestion::Number { key: 0, heard: Some(0) },
            FleetQuestion::Number { key: 5, heard: Some(u64::MAX) },
            FleetQuestion::PushNumber { key: 5, heard: None },
            FleetQuestion::PushNumber { key: 0, heard: Some(0) },
            verdict(FleetVerdict::Commit),
            verdict(FleetVerdict::Abort),
        ]
    }

    #[test]
    fn a_question_goes_over_the_wire_and_comes_back_as_it_was() {
        for question in questions() {
            let bytes = fleet_request("policy", question).encode_to_vec();
            let heard = wire::FleetRequest::decode(&*bytes).expect("it was encoded");
            let heard = fleet_question(heard).expect("it makes sense");
            assert_eq!(heard, ("policy".to_owned(), AskedFleet::Register(question)));
        }
    }

    #[test]
    fn an_answer_goes_over_the_wire_and_comes_back_as_it_was() {
        let verdicts = [None, Some(FleetVerdict::Commit), Some(FleetVerdict::Abort)];
        let mut told =
            vec![Err(FleetError::Passive), Err(FleetError::NoModel { model: "policy".into() })];
        for verdict in verdicts {
            for (superseded, version) in [(false, None), (true, Some(VERSION))] {
                told.push(Ok(FleetAnswer { driver: 7, superseded, version, verdict }));
            }
        }
        for told in told {
            let bytes = fleet_reply(told.clone()).encode_to_vec();
            let heard = wire::FleetReply::decode(&*bytes).expect("it was encoded");
            assert_eq!(fleet_told("policy", heard).expect("it makes sense"), told);
        }
    }

    #[test]
    fn a_notice_and_a_question_for_routers_go_over_the_wire_and_come_back_as_they_were() {
        let notice = |serves| ServingNotice {
            engine: "http://host:8000".to_owned(),
            life: u64::MAX,
            worker: 1,
            workers: 2,
            count: 7,
            serves,
        };
        let notices = [None, Some(VERSION)].map(|serves| RoutingQuestion::Serves(notice(serves)));
        for question in notices.into_iter().chain([RoutingQuestion::Engines]) {
            let bytes = routing_request("policy", question.clone()).encode_to_vec();
            let heard = wire::FleetRequest::decode(&*bytes).expect("it was encoded");
            let heard = fleet_question(heard).expect("it makes sense");
            assert_eq!(heard, ("policy".to_owned(), AskedFleet::Routing(question)));
        }
        for (length, taken) in [(NAME_BYTES, true), (NAME_BYTES + 1, false)] {
            let named = ServingNotice { engine: "e".repeat(length), ..notice(None) };
            let named = routing_request("policy", RoutingQuestion::Serves(named));
            assert_eq!(fleet_question(named).is_ok(), taken);
        }
    }

    #[test]
    fn a_question_that_lacks_a_part_or_has_an_unknown_one_is_refused() {
        let whole = || fleet_request("policy", *questions().last().expect("some"));
        let with = |change: fn(&mut wire::FleetDecision)| {
            let mut request = whole();
            let Some(Question::Decision(of)) = &mut request.question else { unreachable!() };
            change(of);
            request
        };
        for wrong in [
            wire::FleetRequest { question: None, ..whole() },
            wire::FleetRequest { model: "m".repeat(NAME_BYTES + 1), ..whole() },
            with(|of| of.transaction = None),
            with(|of| of.version = None),
            with(|of| of.wanted = 0),
            with(|of| of.wanted = 3),
            with(|of| of.wanted = -1),
        ] {
            assert!(fleet_question(wrong).is_err());
        }
        let longest = wire::FleetRequest { model: "m".repeat(NAME_BYTES), ..whole() };
        assert!(fleet_question(longest).is_ok() && fleet_question(whole()).is_ok());
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_refused() {
        let with = |verdict| wire::FleetReply {
            reply: Some(Reply::Answer(wire::FleetAnswer { verdict, ..Default::default() })),
        };
        assert!(fleet_told("policy", wire::FleetReply { reply: None }).is_err());
        assert!([Some(0), Some(3)].into_iter().all(|of| fleet_told("policy", with(of)).is_err()));
        assert!(fleet_told("policy", with(None)).is_ok());
        // The answer to the other kind of question.
        let engines =
            wire::FleetReply { reply: Some(Reply::Engines(wire::FleetLeases::default())) };
        assert!(fleet_told("policy", engines).is_err());
    }
}
