//! What must not be in a file: whoever has it could make a past up, take a session over, or foresee a challenge.

use super::*;
use crate::limits::SERVER_REEL;
use crate::message::{ClientMessage, EpochPolicy, Open, Role, ServerMessage};
use crate::server::{Server, ServerConfig, ServerInput, ServerOutput};
use crate::session::{Output, Session, SessionConfig, SessionInput};
use crate::{ConnectionId, Mac, PROTOCOL, SessionId, TermProof, Ticket, TicketKey};

const JOB: &[u8] = b"the secret of the servers of one job";
const SECRET: [u64; 2] = [0x1357_9bdf_0246_8ace, 0xfdb9_7531_eca8_6420];
const SESSION: u128 = 0x0123_4567_89ab_cdef_8899_aabb_ccdd_eeff;

pub(super) fn open(session: u128, ticket: Option<Ticket>) -> Open {
    Open {
        protocol: PROTOCOL,
        session: SessionId(session),
        model: "policy".into(),
        replica: "trainer".into(),
        shard: 0,
        num_shards: 1,
        role: Role::Trainer,
        epoch: EpochPolicy::Current,
        retain: 0,
        offload_seeding: false,
        location: Default::default(),
        data_address: "host:1".into(),
        rejoins: ticket.is_some(),
        activate: true,
        ticket,
    }
}

pub(super) fn server(index: u32) -> RecordedMachine<Server> {
    let ticket_key = TicketKey::of_secret(JOB);
    let config = ServerConfig { index, ticket_key, secret: SECRET, ..ServerConfig::default() };
    RecordedMachine::new(Server::new(config), SERVER_REEL)
}

/// A message comes in; the tickets that are given for it.
pub(super) fn hears(server: &mut RecordedMachine<Server>, message: ClientMessage) -> Vec<Ticket> {
    let (from, message) = (ConnectionId(1), Box::new(message));
    // Long after a server was told of another one that acts.
    server.take(Time(60_000_000_000), ServerInput::Message { from, message });
    let outputs: Vec<_> = std::iter::from_fn(|| server.poll_output()).collect();
    let ticket = |output: &ServerOutput| match output {
        ServerOutput::Send { message: ServerMessage::Opened { ticket, .. }, .. } => Some(*ticket),
        _ => None,
    };
    outputs.iter().filter_map(ticket).collect()
}

/// Every eight bytes in a row of what is secret, in both orders.
fn windows(secret: &[u8]) -> Vec<Vec<u8>> {
    let turned: Vec<u8> = secret.iter().rev().copied().collect();
    [secret, &turned].iter().flat_map(|bytes| bytes.windows(8).map(<[u8]>::to_vec)).collect()
}

/// As numbers are written.
fn varint(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    coding::append(&number, &mut bytes, usize::MAX).unwrap();
    bytes
}

fn assert_without(recording: &Recording, secrets: &[Vec<u8>]) {
    let bytes = recording.encode();
    for secret in secrets {
        let found = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!found, "{secret:02x?}");
    }
}

#[test]
fn a_server_leaves_its_key_its_secret_all_proofs_and_half_of_each_name_out() {
    let mut first = server(0);
    let given = hears(&mut first, ClientMessage::Open(open(SESSION, None)));
    let [ticket] = given[..] else { panic!("{given:?}") };
    // The next server is shown the ticket, twice in what happens and once in what it knows.
    let mut second = server(1);
    second.take(Time(0), ServerInput::Probe { told: ticket.proof });
    while second.poll_output().is_some() {}
    let message = ClientMessage::Open(open(SESSION, Some(ticket)));
    let later = hears(&mut second, message);
    let mut secrets = vec![varint(SESSION as u64), varint(SECRET[0]), varint(SECRET[1])];
    secrets.extend(windows(&(SESSION as u64).to_le_bytes()));
    secrets.extend(SECRET.iter().flat_map(|word| windows(&word.to_le_bytes())));
    secrets.extend(windows(blake3_of(JOB).as_slice()));
    for ticket in [ticket, later[0]] {
        assert_ne!(ticket.mac, Mac::default(), "it would be found everywhere");
        secrets.extend([ticket.mac, ticket.proof.mac].iter().flat_map(|mac| windows(&mac.0)));
    }
    for server in [&first, &second] {
        let recording = server.recording(RecordingCause::Asked, 0).unwrap();
        assert_without(&recording, &secrets);
        // The same file does show what is none, so that this looks at the right bytes.
        let bytes = recording.encode();
        for shown in [b"trainer".to_vec(), varint((SESSION >> 64) as u64)] {
            assert!(bytes.windows(shown.len()).any(|window| window == shown));
        }
    }
}

/// The bytes of a key, which nothing shows.
fn blake3_of(secret: &[u8]) -> [u8; 32] {
    blake3::derive_key("weightcast 2026 tickets of reference servers", secret)
}

#[test]
fn a_session_leaves_its_tickets_and_half_of_its_name_out() {
    let mut server = server(0);
    let [ticket] = hears(&mut server, ClientMessage::Open(open(SESSION, None)))[..] else {
        panic!("it is opened")
    };
    let config = SessionConfig::new(open(SESSION, None), "one,two");
    let mut session = RecordedMachine::new(Session::new(config, Time(0)), SERVER_REEL);
    while session.poll_output().is_some() {}
    let mut tell = |input| {
        session.take(Time(1), input);
        std::iter::from_fn(|| session.poll_output()).collect::<Vec<Output>>()
    };
    tell(SessionInput::Connected);
    let lease = crate::Span::from_secs(5);
    tell(SessionInput::Message(Box::new(ServerMessage::Opened { ticket, lease })));
    let outputs = tell(SessionInput::Timeout);
    assert!(outputs.iter().any(|output| matches!(output, Output::Probe { .. })), "{outputs:?}");
    tell(SessionInput::Probed { server: 1, told: ticket.proof.term, acts: Some(ticket.proof) });
    let mut secrets = windows(&(SESSION as u64).to_le_bytes());
    secrets.push(varint(SESSION as u64));
    secrets.extend([ticket.mac, ticket.proof.mac].iter().flat_map(|mac| windows(&mac.0)));
    let recording = session.recording(RecordingCause::Asked, 0).unwrap();
    assert_without(&recording, &secrets);
    let mut playback = recording.play::<Session>().unwrap();
    while let Some(event) = playback.next().unwrap() {
        let came = playback.play(event);
        assert!(matches!(came, PlayedEvent::Settled { as_recorded: true, .. }), "{came:?}");
    }
}

/// Also without what proves a past, a server that is played back believes what the recorded one believed.
#[test]
fn a_past_is_believed_again_or_refused_again() {
    let mut first = server(0);
    let [ticket] = hears(&mut first, ClientMessage::Open(open(SESSION, None)))[..] else {
        panic!("it is opened")
    };
    let forged = Ticket { mac: Mac([7; 32]), ..ticket };
    let made_up = TermProof { mac: Mac([7; 32]), ..ticket.proof };
    for (ticket, proof, believed) in [(ticket, ticket.proof, true), (forged, made_up, false)] {
        let mut second = server(1);
        second.take(Time(0), ServerInput::Probe { told: proof });
        while second.poll_output().is_some() {}
        let opened = hears(&mut second, ClientMessage::Open(open(SESSION, Some(ticket))));
        assert_eq!(opened.len(), usize::from(believed));
        let recording = second.recording(RecordingCause::Asked, 0).unwrap();
        let mut playback = recording.play::<Server>().unwrap();
        while let Some(event) = playback.next().unwrap() {
            let came = playback.play(event);
            assert!(matches!(came, PlayedEvent::Settled { as_recorded: true, .. }), "{came:?}");
        }
        assert_eq!(playback.machine().term().step(), if believed { 2 } else { 0 });
    }
}
