//! prost types to protocol types and back, at the edge: nothing past here sees a wire type, and
//! nothing malformed gets past here.

mod client;
mod condition;
pub(crate) mod count;
mod error;
mod fleet;
mod fleet_refusal;
mod frames;
mod inspect;
mod large;
mod preview;
mod routing;
mod server;
mod ticket;
mod values;

pub(crate) use client::{client_frame, client_message};
pub(crate) use fleet::{AskedFleet, fleet_question, fleet_reply, fleet_request, fleet_told};
pub(crate) use frames::Assembly;
pub(crate) use inspect::{Inspected, inspect_reply, inspected, inspection};
pub(crate) use large::{ByteMeter, Encoder, Hold};
pub(crate) use preview::{preview_frame, previewed};
pub(crate) use routing::{routing_reply, routing_request, routing_told};
pub(crate) use ticket::{term_proof, term_proof_frame};
pub(crate) use values::{content_digest, role_name, state_name, sum, sum_frame};

/// A frame that decoded as protobuf but makes no message.
#[derive(Debug, thiserror::Error)]
#[error("malformed frame: {0}")]
pub(crate) struct MalformedMessage(pub(crate) &'static str);

/// Takes a field that is optional in proto3, and required here.
fn need<T>(field: Option<T>, name: &'static str) -> Result<T, MalformedMessage> {
    field.ok_or(MalformedMessage(name))
}

#[cfg(test)]
mod tests;
