//! A short hash of outputs: whether a machine that is played back says what the recorded machine said.
//!
//! Keyed hashes and the names of sessions are left out, since a recording has none. Of lists that many are told (shards
//! of a source, layouts, listings) only the length or the revision counts: all of a group's shards are told the same list.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use crate::Ticket;
use crate::message::{Answer, Assignment, ClientMessage, Open, ServerMessage, Witnesses};
use crate::server::ServerOutput;
use crate::session::Output;

const START: u64 = 0x243f_6a88_85a3_08d3; // digits of pi: nothing up the sleeve
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio

/// What was put out since the last event. Quick, and no secret: an adversary can find two outputs of one mark.
#[derive(Clone, Debug)]
pub struct OutputMark(u64);

impl Default for OutputMark {
    fn default() -> Self {
        Self(START)
    }
}

impl OutputMark {
    /// The mark of what was added, which is forgotten.
    pub(super) fn take(&mut self) -> u32 {
        (std::mem::take(self).0 >> 32) as u32
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for OutputMark {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Adds what a server has put out.
pub(super) fn mark_server(output: &ServerOutput, into: &mut OutputMark) {
    let ServerOutput::Send { to, message } = output else { return output.hash(into) };
    (to, discriminant(message)).hash(into);
    match message {
        ServerMessage::Opened { ticket, lease } => {
            lease.hash(into);
            mark_ticket(ticket, into);
        }
        ServerMessage::Vouched { ticket } => mark_ticket(ticket, into),
        ServerMessage::Assigned { seq, attempt, since, assignment } => {
            (seq, attempt, since).hash(into);
            mark_assignment(assignment, into);
        }
        ServerMessage::Answered { seq, result: Ok(answer) } => {
            seq.hash(into);
            mark_answer(answer, into);
        }
        ServerMessage::Fenced { generation, error, witnesses } => {
            (generation, error).hash(into);
            mark_witnesses(witnesses, into);
        }
        message => message.hash(into),
    }
}

/// Adds what a session has put out.
pub(super) fn mark_session(output: &Output, into: &mut OutputMark) {
    discriminant(output).hash(into);
    match output {
        Output::Send(ClientMessage::Open(open)) => mark_open(open, into),
        Output::Probe { server, proof } => (server, proof.term, proof.origin).hash(into),
        Output::Read { seq, attempt, since, assignment, keep, deadline } => {
            (seq, attempt, since, keep, deadline).hash(into);
            mark_assignment(assignment, into);
        }
        Output::Refused { witnesses } => mark_witnesses(witnesses, into),
        Output::Done { seq, result: Ok(answer) } => {
            seq.hash(into);
            mark_answer(answer, into);
        }
        output => output.hash(into),
    }
}

fn mark_open(open: &Open, into: &mut OutputMark) {
    (&open.model, &open.replica, open.shard, open.rejoins, open.activate).hash(into);
    open.ticket.iter().for_each(|ticket| mark_ticket(ticket, into));
}

fn mark_ticket(ticket: &Ticket, into: &mut OutputMark) {
    let Ticket { proof, incarnation, epoch, held, mac: _ } = ticket;
    (proof.term, proof.origin, incarnation, epoch, held).hash(into);
}

fn mark_witnesses(witnesses: &Witnesses, into: &mut OutputMark) {
    let witnesses = [&witnesses.copy, &witnesses.holder];
    witnesses.into_iter().flatten().for_each(|witness| mark_assignment(witness, into));
}

fn mark_assignment(assignment: &Assignment, into: &mut OutputMark) {
    let Assignment { version, catalog, replica, in_flight, staged, helpers, shards } = assignment;
    (version, catalog, replica, in_flight, staged, helpers, shards.len()).hash(into);
}

fn mark_answer(answer: &Answer, into: &mut OutputMark) {
    discriminant(answer).hash(into);
    match answer {
        Answer::Registered { layouts, siblings } => {
            layouts.len().hash(into);
            siblings.iter().for_each(|sibling| sibling.hash(into));
        }
        Answer::Described { version, layouts } => (version, layouts.len()).hash(into),
        Answer::Listed(listing) => listing.revision.hash(into),
        answer => answer.hash(into),
    }
}
