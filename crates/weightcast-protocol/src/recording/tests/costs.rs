//! How many bytes the recorder keeps of what comes often, and of what is large.

use super::secrets::{hears, open, server};
use super::*;
use crate::message::{Answer, Call, ClientMessage, Listing, Location, ServerMessage};
use crate::server::{Server, ServerInput};
use crate::session::{Session, SessionConfig, SessionInput};
use crate::{ContentDigest, ExportId, OpSeq, Revision, Selector, Term, Version};

fn entries<M: Recordable>(machine: &RecordedMachine<M>) -> usize {
    machine.recording(RecordingCause::Asked, 0).expect("something has happened").entries.len()
}

fn kept(server: &mut RecordedMachine<Server>, message: ClientMessage) -> usize {
    let before = entries(server);
    hears(server, message);
    entries(server) - before
}

#[test]
fn a_message_costs_some_tens_of_bytes() {
    let mut server = server(0);
    let location = Location { datacentre: "west".into(), host: "node-17".into(), spot: false };
    let open = ClientMessage::Open(crate::message::Open { location, ..open(1 << 64, None) });
    hears(&mut server, open.clone());
    let register = Call::Register {
        layout: ContentDigest([1; 16]),
        export: ExportId(u64::MAX),
        bytes: 1 << 34,
    };
    let update = Call::Update { selector: Selector::Latest, allow_rollback: false, staged: false };
    let called =
        |seq, call| ClientMessage::Call { seq: OpSeq(seq), call, deadline: Span::from_secs(60) };
    for (message, most) in [
        (ClientMessage::Heartbeat { sent_at: u64::MAX }, 32),
        (called(1, register), 64),
        (called(2, update), 32),
        (open, 96),
    ] {
        let bytes = kept(&mut server, message.clone());
        assert!((1..=most).contains(&bytes), "{bytes} bytes of {message:?}");
    }
}

/// Whatever its size: bytes that may be many are not copied.
#[test]
fn a_manifest_costs_its_name_and_a_listing_its_revision() {
    let mut server = server(0);
    hears(&mut server, ClientMessage::Open(open(1 << 64, None)));
    let before = entries(&server);
    server.put_manifest(Time(1), ContentDigest([1; 16]), vec![7; 1 << 20]).expect("there is room");
    while server.poll_output().is_some() {}
    assert!(entries(&server) - before < 48);
    assert!(server.has_manifest(Time(1), ContentDigest([1; 16])));

    let mut session =
        RecordedMachine::new(Session::new(SessionConfig::new(open(1, None), "one"), Time(0)), WIDE);
    session.take(Time(1), SessionInput::Connected);
    while session.poll_output().is_some() {}
    let before = entries(&session);
    let replicas = || (0..100).map(|number| format!("replica-{number}")).collect();
    let versions = (0..100).map(|number| (Version { epoch: crate::Epoch(1), number }, replicas()));
    let revision = Revision { term: Term(1), number: 7 };
    let listing = Listing { revision, versions: versions.collect() };
    let result = Ok(Answer::Listed(listing.into()));
    let message = ServerMessage::Answered { seq: OpSeq(9), result };
    session.take(Time(1), SessionInput::Message(Box::new(message)));
    while session.poll_output().is_some() {}
    assert!(entries(&session) - before < 48);
}

/// The image of a server: a fraction of a kilobyte for each session.
#[test]
fn an_image_grows_with_its_sessions() {
    let image = |sessions: u32| {
        let mut server = server(0);
        for shard in 0..sessions {
            let from = crate::ConnectionId(shard.into());
            let open = crate::message::Open {
                shard,
                num_shards: 1_000,
                ..open((u128::from(shard) + 1) << 64, None)
            };
            server.take(
                Time(0),
                ServerInput::Message { from, message: Box::new(ClientMessage::Open(open)) },
            );
            while server.poll_output().is_some() {}
        }
        let mut bytes = Vec::new();
        coding::append(&*server, &mut bytes, usize::MAX).expect("no bound was set");
        bytes.len()
    };
    let each = (image(200) - image(100)) / 100;
    assert!((20..300).contains(&each), "{each}");
}
