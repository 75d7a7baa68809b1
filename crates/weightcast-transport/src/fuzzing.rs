//! The data port's decoders, for the fuzzer alone.

use crate::base::id::GrantId;
use crate::base::secret::{Auth, Secret};
use crate::memory::kind::MemoryKind;
use crate::wire::bodies::{decode_identity, decode_lent};
use crate::wire::description::{
    ExportDescription, LaneDescriptor, RegionDescription, decode_description, put_description,
};
use crate::wire::handshake::{HELLO_BYTES, PROOF_BYTES, ReaderSide, SourceSide, VERDICT_BYTES};
use crate::wire::mac::{Channel, GrantKey, Nonces};
use crate::wire::word_frame::{decode_word, word_request};
use crate::wire::write_frame::{WriteClaim, WriteFrame};
use crate::wire::{self, FrameKind, HEADER_BYTES, Header};

/// A frame from a stranger: a header, and a body of any kind. What decodes is encoded again the
/// same, and a length is bounded before anything is allocated for it.
///
/// # Panics
/// If that does not hold.
pub fn frame(bytes: &[u8]) {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return };
    let Ok(header) = Header::decode(header) else { return };
    assert_eq!(Header::decode(&header.encode()), Ok(header));
    match header.kind {
        FrameKind::Describe | FrameKind::Note | FrameKind::Lend => drop(wire::decode_named(body)),
        FrameKind::EarlyNote | FrameKind::News => drop(wire::decode_numbered(body)),
        FrameKind::Read | FrameKind::Await => asked(body),
        FrameKind::Digest => placed(body),
        FrameKind::Write => written(body),
        FrameKind::Word => said(body),
        FrameKind::Identity => drop(decode_identity(body)),
        FrameKind::Description => described(body),
        FrameKind::Digests => drop(wire::decode_digests(body)),
        FrameKind::Noted => drop(wire::decode_noted(body)),
        FrameKind::Lent => lent(body),
        FrameKind::Identify
        | FrameKind::Data
        | FrameKind::End
        | FrameKind::Refused
        | FrameKind::Progress
        | FrameKind::Written
        | FrameKind::Heard => {}
    }
}

fn lent(body: &[u8]) {
    let Ok(places) = decode_lent(body) else { return };
    let mut again = Vec::new();
    wire::put_lent(&mut again, &places);
    assert_eq!(again, body);
}

fn asked(body: &[u8]) {
    let Ok(ask) = wire::decode_read(body) else { return };
    let mut again = Vec::new();
    wire::put(&mut again, &[ask.export.0, ask.generation]);
    ask.extents.iter().for_each(|extent| wire::put_extent(&mut again, extent));
    assert_eq!(again, body);
}

/// And no stranger's proof is believed.
fn written(body: &[u8]) {
    let Ok(frame) = WriteFrame::decode(body) else { return };
    let mut again = Vec::new();
    let claim = &frame.claim;
    wire::put(&mut again, &[claim.grant.0, claim.generation, claim.extents.len() as u64]);
    claim.extents.iter().for_each(|extent| wire::put_extent(&mut again, extent));
    let proof = again.len()..again.len() + 32;
    again.extend_from_slice(&body[proof]);
    again.extend_from_slice(frame.bytes);
    assert_eq!(again, body);
    let key = GrantKey::new(&Secret::new("the secret"));
    assert!(!frame.is_proved(&key, &Nonces::NONE, 0));
}

/// No stranger's word is believed.
fn said(body: &[u8]) {
    let key = Auth::with_token(Secret::new("the token")).word_key();
    assert!(!matches!(decode_word(&key, body), Ok(Some(_))));
}

fn described(body: &[u8]) {
    let Ok(description) = decode_description(body) else { return };
    let mut again = Vec::new();
    put_description(&mut again, &description);
    assert_eq!(again.len(), body.len());
    assert_eq!(decode_description(&again), Ok(description));
}

fn placed(body: &[u8]) {
    let Ok(ask) = wire::decode_digest(body) else { return };
    let mut again = Vec::new();
    wire::put(&mut again, &[ask.export.0, ask.generation]);
    ask.extents.iter().for_each(|extent| wire::put_placed(&mut again, extent));
    assert_eq!(again, body);
}

/// A peer without the token: whatever it says, neither side believes it.
///
/// # Panics
/// If one does.
pub fn handshake(bytes: &[u8]) {
    let key = Auth::with_token(Secret::new("the token")).mac_key();
    let Some((hello, rest)) = bytes.split_first_chunk::<HELLO_BYTES>() else { return };
    let reader = ReaderSide::new(Channel::Tcp, hello);
    let Some((proof, rest)) = rest.split_first_chunk::<PROOF_BYTES>() else { return };
    assert!(SourceSide::new(Channel::Tcp).judge(&key, proof).1.is_err());
    if let (Ok(reader), Some((verdict, _))) = (reader, rest.split_first_chunk::<VERDICT_BYTES>()) {
        assert!(reader.check(&key, verdict).is_err());
    }
}

/// One well-formed frame of each kind of request, and a handshake's messages, to start from.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    use crate::piece::extent::{Extent, PlacedExtent};
    let extent = Extent { region: 1, offset: 64, row_bytes: 32, rows: 3, pitch: 128 };
    let request = |kind: FrameKind, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        let start = wire::begin(&mut out, kind);
        fill(&mut out);
        wire::finish(&mut out, start);
        out
    };
    let named = |out: &mut Vec<u8>| wire::put(out, &[7, 1]);
    let placed = PlacedExtent { extent, position: 4096, position_pitch: 512 };
    let region = |len, kind| RegionDescription { len, kind: Some(kind) };
    let descriptor = |lane, bytes: &[u8]| LaneDescriptor { lane, bytes: bytes.to_vec() };
    let description = ExportDescription {
        filling: true,
        regions: vec![region(512, MemoryKind::Host), region(64, MemoryKind::Computed)],
        descriptors: vec![descriptor(2, &[7; 24]), descriptor(9, b"unknown")],
    };
    let key = Auth::default().mac_key();
    let source = SourceSide::new(Channel::Tcp);
    let proof = ReaderSide::new(Channel::Tcp, &source.hello()).map(|reader| reader.proof(&key));
    let proof = proof.expect("a hello of ours");
    let shaken = [&source.hello()[..], &proof, &source.judge(&key, &proof).0].concat();
    let mut write = Vec::new();
    let claim = WriteClaim { grant: GrantId(7), generation: 1, extents: vec![extent] };
    let secret = GrantKey::new(&Secret::new("another secret"));
    claim.put(&mut write, |claimed| secret.mac(&Nonces::NONE, 0, claimed));
    write.resize(write.len() + 96, 5);
    vec![
        ("frame", request(FrameKind::Identify, &|_| {})),
        ("frame", request(FrameKind::Describe, &named)),
        ("frame", request(FrameKind::Note, &named)),
        (
            "frame",
            request(FrameKind::Read, &|out| {
                named(out);
                wire::put_extent(out, &extent);
            }),
        ),
        (
            "frame",
            request(FrameKind::Digest, &|out| {
                named(out);
                wire::put_placed(out, &placed);
            }),
        ),
        ("frame", write),
        ("frame", word_request(&Auth::default().word_key(), b"{}")),
        ("frame", request(FrameKind::Description, &|out| put_description(out, &description))),
        ("frame", request(FrameKind::Digests, &|out| wire::put(out, &[1, 2, 3, 4]))),
        ("frame", request(FrameKind::Noted, &|out| out.extend_from_slice(b"\x01a note"))),
        ("frame", request(FrameKind::Identity, &|out| out.extend_from_slice(&[5; 16]))),
        ("handshake", shaken),
    ]
}
