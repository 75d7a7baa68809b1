//! Tickets and the proofs of terms. What they say is for the servers to check.

use weightcast_protocol::{Epoch, Incarnation, Mac, Proved, Term, TermProof, Ticket};

use super::values::{sum, sum_frame, version, version_frame};
use super::{MalformedMessage, content_digest, need};
use crate::wire;

fn mac(bytes: &[u8]) -> Result<Mac, MalformedMessage> {
    bytes.try_into().map(Mac).map_err(|_| MalformedMessage("a keyed hash is not 32 bytes"))
}

pub(crate) fn term_proof(m: wire::TermProof) -> Result<TermProof, MalformedMessage> {
    Ok(TermProof { term: Term(m.term), origin: Term(m.origin), mac: mac(&m.mac)? })
}

pub(crate) fn term_proof_frame(m: TermProof) -> wire::TermProof {
    wire::TermProof { term: m.term.0, origin: m.origin.0, mac: m.mac.0.to_vec() }
}

pub(super) fn ticket(m: wire::Ticket) -> Result<Ticket, MalformedMessage> {
    let incarnation = need(m.incarnation, "incarnation")?;
    let proved = |m: wire::Proved| {
        Ok::<_, MalformedMessage>(Proved {
            version: version(m.version)?,
            catalog: content_digest(&m.catalog)?,
            sum: m.sum.map(sum),
        })
    };
    Ok(Ticket {
        proof: term_proof(need(m.proof, "term")?)?,
        incarnation: Incarnation { term: Term(incarnation.term), number: incarnation.number },
        epoch: Epoch(m.epoch),
        held: m.held.map(proved).transpose()?,
        mac: mac(&m.mac)?,
    })
}

pub(super) fn ticket_frame(m: Ticket) -> wire::Ticket {
    let Incarnation { term, number } = m.incarnation;
    wire::Ticket {
        proof: Some(term_proof_frame(m.proof)),
        incarnation: Some(wire::Incarnation { term: term.0, number }),
        epoch: m.epoch.0,
        held: m.held.map(|held| wire::Proved {
            version: Some(version_frame(held.version)),
            catalog: held.catalog.0.to_vec(),
            sum: held.sum.map(sum_frame),
        }),
        mac: m.mac.0.to_vec(),
    }
}
