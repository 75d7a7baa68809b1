//! The control plane's decoders, for the fuzzer alone.

use prost::Message;
use weightcast_plan::Layout;
use weightcast_protocol::Term;
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, RoutingAnswer, RoutingQuestion,
};
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::{FleetError, Inspection};

use crate::client::push::word::PushWord;
use crate::convert::AskedFleet;
use crate::error::Error;
use crate::{convert, manifest, wire};

/// Decodes a frame of a session, as the server takes it from a stranger. A message must be the same
/// after another trip over the wire.
///
/// # Panics
/// If the message is not the same.
pub fn client_message(bytes: &[u8]) -> Option<ClientMessage> {
    let message = convert::client_message(wire::ClientFrame::decode(bytes).ok()?).ok()?;
    let again = wire::ClientFrame::decode(&*client_frame(message.clone())).ok()?;
    assert_eq!(convert::client_message(again).ok().as_ref(), Some(&message));
    Some(message)
}

/// Decodes a frame of the server, as a session takes it.
///
/// # Panics
/// If a message is another after another trip over the wire.
pub fn server_message(bytes: &[u8]) -> Option<ServerMessage> {
    let frame = wire::ServerFrame::decode(bytes).ok()?;
    let message = convert::Assembly::default().take(frame).ok()??;
    let mut assembly = convert::Assembly::default();
    let again = convert::Encoder::default().frames(message.clone()).into_iter().map(|frame| {
        let again = wire::ServerFrame::decode(&*frame.encode_to_vec()).expect("our own decode");
        assembly.take(again).expect("our own make sense")
    });
    assert_eq!(again.last().flatten().as_ref(), Some(&message));
    Some(message)
}

/// Decodes a reply about a replica. False if it makes no sense.
///
/// # Panics
/// If the reply is not the same after another trip over the wire.
pub fn inspect_reply(bytes: &[u8]) -> bool {
    let Ok(reply) = wire::InspectReply::decode(bytes) else { return false };
    let Ok(seen) = convert::inspection(reply) else { return false };
    let again = convert::inspect_reply(seen.clone()).encode_to_vec();
    let again = wire::InspectReply::decode(&*again).expect("our own replies decode");
    assert_eq!(convert::inspection(again).ok().as_ref(), Some(&seen));
    true
}

/// Decodes a question to the register of a fleet or to the table of its routing leases, as the server takes it from a stranger, and an answer to one. False if
/// the bytes are neither.
///
/// # Panics
/// If either is not the same after another trip over the wire.
pub fn fleet(bytes: &[u8]) -> bool {
    let asked = wire::FleetRequest::decode(bytes).ok();
    let asked = asked.and_then(|request| convert::fleet_question(request).ok());
    if let Some((model, question)) = &asked {
        let request = match question.clone() {
            AskedFleet::Register(question) => convert::fleet_request(model, question),
            AskedFleet::Routing(question) => convert::routing_request(model, question),
        };
        assert_eq!(convert::fleet_question(request).ok(), asked);
    }
    let engines = |reply| convert::routing_told("policy", reply).ok();
    let routed = wire::FleetReply::decode(bytes).ok().and_then(engines);
    if let Some(answer) = &routed {
        assert_eq!(engines(convert::routing_reply(answer.clone())).as_ref(), Some(answer));
    }
    let told = |reply| convert::fleet_told("policy", reply).ok();
    let heard = wire::FleetReply::decode(bytes).ok().and_then(told);
    if let Some(answer) = &heard {
        assert_eq!(told(convert::fleet_reply(answer.clone())).as_ref(), Some(answer));
    }
    asked.is_some() || heard.is_some() || routed.is_some()
}

/// Decodes a word of a push, as a data port takes it from a holder of the token. False if it is none.
///
/// # Panics
/// If the word is not the same after another trip over the wire.
pub fn push_word(bytes: &[u8]) -> bool {
    let Ok(word) = PushWord::decode(bytes) else { return false };
    // JSON of ours may be longer than what came, and then beyond what a data port takes.
    if let Ok(again) = word.encode() {
        assert_eq!(PushWord::decode(&again).as_ref(), Ok(&word));
    }
    true
}

/// One encoded word of each kind: for corpora.
pub fn push_word_seeds() -> Vec<Vec<u8>> {
    crate::client::push::samples::samples().iter().filter_map(|word| word.encode().ok()).collect()
}

/// The encoded question and answer: for corpora.
pub fn fleet_seeds(
    question: FleetQuestion,
    answer: Result<FleetAnswer, FleetError>,
) -> [Vec<u8>; 2] {
    let question = convert::fleet_request("policy", question).encode_to_vec();
    [question, convert::fleet_reply(answer).encode_to_vec()]
}

/// The same of routing leases.
pub fn routing_seeds(
    question: RoutingQuestion,
    answer: Result<RoutingAnswer, FleetError>,
) -> [Vec<u8>; 2] {
    let question = convert::routing_request("policy", question).encode_to_vec();
    [question, convert::routing_reply(answer).encode_to_vec()]
}

/// The encoded reply that tells of this inspection.
pub fn inspection(term: Term, of: Inspection) -> Vec<u8> {
    convert::inspect_reply(convert::inspected(term, of)).encode_to_vec()
}

/// A manifest, as a reader takes it from the server.
///
/// # Panics
/// If a layout has another manifest after another trip.
pub fn manifest(bytes: &[u8]) -> Option<Layout> {
    let layout = manifest::decode(bytes).ok()?;
    let encoded = manifest::encode(&layout);
    let again = manifest::decode(&encoded).expect("our own manifests decode");
    assert_eq!((manifest::encode(&again), again.digest()), (encoded, layout.digest()));
    Some(layout)
}

/// Decodes a manifest without a second trip, or says why it is refused.
///
/// # Errors
/// The bytes are no layout's manifest.
pub fn layout(bytes: &[u8]) -> Result<Layout, Error> {
    manifest::decode(bytes)
}

/// A session's message as bytes.
pub fn client_frame(message: ClientMessage) -> Vec<u8> {
    convert::client_frame(message).encode_to_vec()
}

/// A server's message as bytes: the last of its frames, the only one unless it is large.
pub fn server_frame(message: ServerMessage) -> Vec<u8> {
    let frames = convert::Encoder::default().frames(message);
    frames.last().expect("the message itself").encode_to_vec()
}

/// A layout's manifest.
pub fn manifest_of(layout: &Layout) -> Vec<u8> {
    manifest::encode(layout)
}
