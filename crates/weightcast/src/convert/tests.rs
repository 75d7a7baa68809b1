//! Every message with every field drawn at random goes over the wire and comes back as it was; what
//! makes no message is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use weightcast_protocol::limits::DETAIL_CHARS;
use weightcast_protocol::message::{
    Answer, Assignment, Call, ClientMessage, ReadFailure, ServerMessage, Sibling, SourceShard,
};
use weightcast_protocol::server::{Inspection, ReplicaState};
use weightcast_protocol::{
    Attempt, ContentDigest, Epoch, ExportId, Generation, OpSeq, Term, Version,
};

use self::draw::MessageDraw;
use super::*;
use crate::limits::PAGE_BYTES;
use crate::wire;
use crate::wire::{client_frame as from_client, server_frame};

mod draw;

fn over_the_wire(message: ClientMessage) -> Result<ClientMessage, MalformedMessage> {
    let bytes = client_frame(message).encode_to_vec();
    client_message(wire::ClientFrame::decode(&*bytes).expect("it was encoded"))
}

fn from_server(encoder: &mut Encoder, message: ServerMessage) -> Option<ServerMessage> {
    let mut assembly = Assembly::default();
    let mut whole = None;
    for frame in encoder.frames(message) {
        assert_eq!(whole, None, "the last frame completes it");
        let frame = wire::ServerFrame::decode(&*frame.encode_to_vec()).expect("it was encoded");
        whole = assembly.take(frame).expect("it makes sense");
    }
    whole
}

#[test]
fn what_a_client_says_is_what_the_server_hears() {
    let mut draw = MessageDraw(1);
    for round in 0..300 {
        for kind in 0..MessageDraw::CLIENT_MESSAGES {
            let message = draw.client_message(kind);
            let heard = over_the_wire(message.clone()).expect("it makes sense");
            assert_eq!(heard, message, "{round}");
        }
    }
}

#[test]
fn what_the_server_says_is_what_a_client_hears() {
    let (mut draw, mut encoder) = (MessageDraw(2), Encoder::default());
    for round in 0..300 {
        for kind in 0..MessageDraw::SERVER_MESSAGES {
            let message = draw.server_message(kind);
            // One encoder for all: what it keeps is of one message alone.
            assert_eq!(from_server(&mut encoder, message.clone()), Some(message), "{round}");
        }
    }
}

#[test]
fn what_is_told_of_a_replica_is_what_comes() {
    let mut draw = MessageDraw(3);
    let states = [None, Some(ReplicaState::Empty), Some(ReplicaState::Sealed)];
    for state in states.into_iter().cycle().take(100) {
        let copy = draw.maybe(MessageDraw::assignment);
        let as_published = draw.maybe(MessageDraw::is);
        let term = Term(draw.number());
        let of = inspected(term, Inspection { state, copy: copy.clone(), as_published });
        let bytes = inspect_reply(of.clone()).encode_to_vec();
        let seen = inspection(wire::InspectReply::decode(&*bytes).expect("it was encoded"));
        let seen = seen.expect("it makes sense");
        assert_eq!(seen, of);
        assert_eq!((seen.term, seen.copy, seen.as_published), (term, copy, as_published));
        assert_eq!(seen.state, state.map(state_name).unwrap_or_default());
    }
}

/// Each state has a word of its own.
#[test]
fn states_are_told_apart() {
    use ReplicaState as S;
    let words: BTreeMap<&str, S> = [
        S::Opening,
        S::Recovering,
        S::Empty,
        S::Reading,
        S::Published,
        S::Sealed,
        S::Draining,
        S::Installing,
        S::Fenced,
        S::Closing,
        S::Broken,
    ]
    .map(|state| (state_name(state), state))
    .into();
    assert_eq!(words.len(), 11);
    for (word, state) in words {
        assert_eq!(format!("{state:?}").to_lowercase(), word);
    }
}

/// Reasons are cut to what a frame has room for, between characters.
#[test]
fn a_reason_has_so_many_characters_at_most() {
    for (length, kept) in [(DETAIL_CHARS - 1, DETAIL_CHARS - 1), (DETAIL_CHARS, DETAIL_CHARS)]
        .into_iter()
        .chain([(DETAIL_CHARS + 1, DETAIL_CHARS), (2 * DETAIL_CHARS, DETAIL_CHARS)])
    {
        let (long, cut) = ("é".repeat(length), "é".repeat(kept));
        let (seq, attempt, generation) = (OpSeq(1), Attempt(2), Generation(3));
        let version = Version { epoch: Epoch(4), number: 5 };
        let messages = |said: &str| {
            let said = || said.to_owned();
            let source = ReadFailure::Source { shard: 6, reason: said() };
            let layout = ReadFailure::Layout { detail: said() };
            let call = Call::Decline { detail: said() };
            [
                ClientMessage::OffloadFailed { version, generation, reason: said() },
                ClientMessage::ReadFailed { seq, attempt, failure: source },
                ClientMessage::ReadFailed { seq, attempt, failure: layout },
                ClientMessage::Call { seq, deadline: weightcast_protocol::Span(7), call },
            ]
        };
        for (said, heard) in messages(&long).into_iter().zip(messages(&cut)) {
            assert_eq!(over_the_wire(said).expect("it makes sense"), heard, "{length}");
        }
    }
}

#[test]
fn what_a_client_leaves_out_or_cuts_short_is_refused() {
    use from_client::Body;
    let digest = |bytes: usize| vec![7; bytes];
    let call = |call| Body::Call(wire::Call { call: Some(call), ..wire::Call::default() });
    let registered = |bytes| {
        let layout = digest(bytes);
        call(wire::call::Call::Register(wire::Register { layout, ..wire::Register::default() }))
    };
    let open = |bytes, role: wire::Role| {
        Body::Open(wire::Open {
            session: digest(bytes),
            role: role as i32,
            ..wire::Open::default()
        })
    };
    for (body, right) in [
        (Some(open(16, wire::Role::Trainer)), true),
        (Some(open(15, wire::Role::Trainer)), false),
        (Some(open(17, wire::Role::Trainer)), false),
        (Some(open(16, wire::Role::Unspecified)), false),
        // Of no version.
        (Some(open(16, wire::Role::Offload)), false),
        (Some(open(16, wire::Role::Seed)), false),
        (Some(registered(16)), true),
        (Some(registered(15)), false),
        (Some(registered(17)), false),
        (Some(registered(0)), false),
        (Some(Body::Call(wire::Call::default())), false),
        (Some(call(wire::call::Call::Replicate(wire::Replicate::default()))), false),
        (Some(call(wire::call::Call::Wait(wire::Wait::default()))), false),
        (Some(Body::Sealed(wire::Sealed::default())), false),
        (Some(Body::Prepared(wire::Prepared::default())), false),
        (Some(Body::ReadFailed(wire::ReadFailed::default())), false),
        (Some(Body::OffloadFailed(wire::OffloadFailed::default())), false),
        (None, false),
    ] {
        let said = format!("{body:?}");
        assert_eq!(client_message(wire::ClientFrame { body }).is_ok(), right, "{said}");
    }
}

/// A source with so many shards, each as small as a shard can be.
fn of_shards(shards: usize, helpers: usize) -> wire::Assignment {
    let shard = SourceShard {
        data_address: String::new(),
        export: ExportId(0),
        generation: Generation(0),
        layout: ContentDigest([1; 16]),
    };
    let of = Assignment {
        version: Version { epoch: Epoch(1), number: 1 },
        catalog: ContentDigest([2; 16]),
        replica: "source".to_owned(),
        in_flight: false,
        staged: false,
        helpers: vec!["helper".to_owned(); helpers],
        shards: vec![shard; shards].into(),
    };
    let reply = inspect_reply(inspected(
        Term(1),
        Inspection { state: None, copy: Some(of), as_published: None },
    ));
    reply.copy.expect("it was given")
}

fn assigned(assignment: wire::Assignment) -> Result<Option<ServerMessage>, MalformedMessage> {
    let assignment = Some(assignment);
    let body = server_frame::Body::Assigned(wire::Assigned { assignment, ..Default::default() });
    Assembly::default().take(wire::ServerFrame { body: Some(body) })
}

#[test]
fn each_source_has_as_many_shards_as_the_first() {
    for (shards, helpers, right) in [
        (1, 0, true),
        (9, 0, true),
        (1, 1, false),
        (2, 1, true),
        (3, 1, false),
        (4, 2, false),
        (6, 2, true),
    ] {
        let told = assigned(of_shards(shards, helpers));
        assert_eq!(told.is_ok(), right, "{shards} shards, {helpers} helpers");
    }
    // Nor is one less than its own name.
    let mut cut = of_shards(2, 0);
    cut.shards = cut.shards.slice(..cut.shards.len() - 1);
    assert!(assigned(cut).is_err());
}

/// Layouts that take exactly a page go with their message; one more makes two pages.
#[test]
fn a_field_that_is_larger_than_a_page_comes_before_its_message() {
    let most = PAGE_BYTES / 16;
    for (layouts, frames) in [(most - 1, 1), (most, 1), (most + 1, 3), (2 * most, 3)] {
        let layouts: Arc<[ContentDigest]> =
            (0..layouts).map(|at| ContentDigest((at as u128).to_le_bytes())).collect();
        let version = Version { epoch: Epoch(1), number: 1 };
        let described = Answer::Described { version, layouts };
        let message = ServerMessage::Answered { seq: OpSeq(1), result: Ok(described) };
        let mut encoder = Encoder::default();
        assert_eq!(encoder.frames(message.clone()).len(), frames);
        assert_eq!(from_server(&mut encoder, message.clone()), Some(message));
    }
}

#[test]
fn half_a_digest_is_refused() {
    use server_frame::Body;
    use wire::answer::Answer as W;
    for (bytes, right) in [(0, true), (15, false), (16, true), (17, false), (32, true)] {
        let layouts = wire::Described {
            layouts: Bytes::from(vec![1; bytes]),
            version: Some(wire::Version::default()),
        };
        let answer = wire::Answer { answer: Some(W::Described(layouts)) };
        let result = Some(wire::answered::Result::Answer(answer));
        let body = Some(Body::Answered(wire::Answered { seq: 1, result }));
        let taken = Assembly::default().take(wire::ServerFrame { body });
        assert_eq!(taken.is_ok(), right, "{bytes} bytes");
    }
}

/// The last field that was made is used again for messages with the same field, and for no others.
#[test]
fn a_field_is_made_once_for_those_who_are_told_the_same() {
    let meter = ByteMeter::default();
    let mut encoder = Encoder::new(meter.clone());
    let siblings: Arc<[Sibling]> = [].into();
    let registered = |layouts: &Arc<[ContentDigest]>| {
        let (layouts, siblings) = (Arc::clone(layouts), Arc::clone(&siblings));
        ServerMessage::Answered {
            seq: OpSeq(1),
            result: Ok(Answer::Registered { layouts, siblings }),
        }
    };
    let [one, other]: [Arc<[ContentDigest]>; 2] =
        [1, 2].map(|byte| vec![ContentDigest([byte; 16]); 10].into());
    let mut sent = Vec::new();
    // Three bytes say what follows, and how long it is.
    for (layouts, fields) in [(&one, 1), (&one, 1), (&other, 2), (&other, 2), (&one, 3)] {
        let alive = fields * 163;
        sent.push(encoder.frames(registered(layouts)));
        assert_eq!(meter.alive(), alive);
        assert_eq!(from_server(&mut encoder, registered(layouts)), Some(registered(layouts)));
        assert_eq!(meter.alive(), alive);
    }
    drop(sent);
    assert_eq!(meter.alive(), 163, "the last is kept");
}
