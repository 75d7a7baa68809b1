//! What `inspect` tells of a replica.

use std::sync::Arc;

use weightcast_protocol::Term;
use weightcast_protocol::message::Assignment;
use weightcast_protocol::server::Inspection;

use super::large::{Encoder, Field};
use super::server::{assignment, assignment_frame};
use super::{MalformedMessage, state_name};
use crate::wire;

/// A replica, as a server tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspected {
    /// The server's term; zero if the server is passive.
    pub(crate) term: Term,
    /// What the replica is doing, for people; empty if there is no such replica.
    pub(crate) state: String,
    pub(crate) copy: Option<Assignment>,
    pub(crate) as_published: Option<bool>,
}

/// From the server's machine.
pub(crate) fn inspected(term: Term, inspection: Inspection) -> Inspected {
    Inspected {
        term,
        state: inspection.state.map(state_name).unwrap_or_default().to_owned(),
        copy: inspection.copy,
        as_published: inspection.as_published,
    }
}

/// To a reply.
pub(crate) fn inspect_reply(of: Inspected) -> wire::InspectReply {
    wire::InspectReply {
        term: of.term.0,
        state: of.state,
        copy: of.copy.map(|copy| {
            let shards = Encoder::default().shards(Arc::clone(&copy.shards));
            wire::Assignment { shards, ..assignment_frame(copy) }
        }),
        as_published: of.as_published,
    }
}

/// From a reply.
pub(crate) fn inspection(reply: wire::InspectReply) -> Result<Inspected, MalformedMessage> {
    Ok(Inspected {
        term: Term(reply.term),
        state: reply.state,
        copy: reply.copy.map(|copy| assignment(copy, &mut Field::default())).transpose()?,
        as_published: reply.as_published,
    })
}
