//! Outputs that differ in what a recording has differ in their marks; those that differ in secrets alone do not.

use super::secrets::open;
use super::*;
use crate::message::{Answer, Assignment, ClientMessage, ServerMessage, SourceShard};
use crate::recording::marks::{mark_server, mark_session};
use crate::server::ServerOutput;
use crate::session::Output;
use crate::{
    Attempt, ConnectionId, ContentDigest, Epoch, ExportId, Generation, Incarnation, Mac, OpSeq,
    Term, TermProof, Ticket, Version,
};

fn of_server(message: ServerMessage) -> u32 {
    let mut mark = OutputMark::default();
    mark_server(&ServerOutput::Send { to: ConnectionId(1), message }, &mut mark);
    mark.take()
}

fn of_session(output: &Output) -> u32 {
    let mut mark = OutputMark::default();
    mark_session(output, &mut mark);
    mark.take()
}

fn ticket(number: u64, mac: u8) -> Ticket {
    let mac = Mac([mac; 32]);
    let proof = TermProof { term: Term(1), origin: Term(1), mac };
    let incarnation = Incarnation { term: Term(1), number };
    Ticket { proof, incarnation, epoch: Epoch(1), held: None, mac }
}

fn assigned(attempt: u64, shards: usize) -> ServerMessage {
    let version = Version { epoch: Epoch(1), number: 1 };
    let shard = SourceShard {
        data_address: "host:1".into(),
        export: ExportId(1),
        generation: Generation(1),
        layout: ContentDigest([1; 16]),
    };
    let assignment = Assignment {
        version,
        catalog: ContentDigest([2; 16]),
        replica: "trainer".into(),
        in_flight: false,
        staged: false,
        helpers: Vec::new(),
        shards: vec![shard; shards].into(),
    };
    ServerMessage::Assigned {
        seq: OpSeq(1),
        attempt: Attempt(attempt),
        since: Attempt(1),
        assignment,
    }
}

#[test]
fn what_a_recording_has_makes_a_difference_and_a_secret_makes_none() {
    let lease = Span(5);
    let opened =
        |number, mac| of_server(ServerMessage::Opened { ticket: ticket(number, mac), lease });
    assert_eq!(opened(1, 1), opened(1, 2));
    assert_ne!(opened(1, 1), opened(2, 1));
    assert_ne!(of_server(assigned(1, 2)), of_server(assigned(2, 2)));
    assert_ne!(of_server(assigned(1, 2)), of_server(assigned(1, 3)));
    let answered = |seq| {
        let version = Version { epoch: Epoch(1), number: 1 };
        let result = Ok(Answer::Published { version });
        of_server(ServerMessage::Answered { seq: OpSeq(seq), result })
    };
    assert_ne!(answered(1), answered(2));

    let opens = |session, mac, rejoins| {
        let open = open(session, Some(ticket(1, mac)));
        of_session(&Output::Send(ClientMessage::Open(crate::message::Open { rejoins, ..open })))
    };
    assert_eq!(opens(1, 1, true), opens(2, 2, true));
    assert_ne!(opens(1, 1, true), opens(1, 1, false));
}

/// The order of outputs counts, and so does one that is missing.
#[test]
fn outputs_are_marked_in_their_order() {
    let mark = |generations: &[u64]| {
        let mut mark = OutputMark::default();
        for generation in generations {
            mark_session(&Output::Fence(Generation(*generation)), &mut mark);
        }
        mark.take()
    };
    let marks = [mark(&[]), mark(&[1]), mark(&[1, 2]), mark(&[2, 1]), mark(&[1, 2, 2])];
    for (place, one) in marks.iter().enumerate() {
        assert!(marks[place + 1..].iter().all(|other| other != one), "{marks:?}");
    }
}
