//! The control plane's decoders, for the fuzzer alone.

use prost::Message;
use weightcast_plan::Layout;
use weightcast_protocol::Term;
use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::server::Inspection;

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
