//! Round trips, limits, and bodies of noise.

use super::*;
use crate::base::limits::MAX_EXTENTS;
use crate::piece::extent::{Extent, PlacedExtent};
use crate::wire::bodies::{EXTENT_BYTES, PLACED_BYTES, decode_identity};
use crate::wire::local_name::LocalName;
use crate::wire::*;
use proptest::prelude::*;

fn extent() -> impl Strategy<Value = Extent> {
    (any::<u32>(), any::<[u64; 4]>()).prop_map(|(region, [offset, row_bytes, rows, pitch])| {
        Extent { region, offset, row_bytes, rows, pitch }
    })
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_read(&bytes);
        let _ = decode_digest(&bytes);
        let _ = decode_named(&bytes);
        let _ = decode_numbered(&bytes);
        let _ = decode_noted(&bytes);
        let _ = crate::wire::description::decode_description(&bytes);
        let _ = decode_digests(&bytes);
        let _ = decode_identity(&bytes);
        if let Some((header, _)) = bytes.split_first_chunk() {
            let _ = Header::decode(header);
        }
    }

    #[test]
    fn requests_survive(export: u64, generation: u64, extents in prop::collection::vec(extent(), 0..20)) {
        let mut frame = Vec::new();
        let start = begin(&mut frame, FrameKind::Read);
        put(&mut frame, &[export, generation]);
        extents.iter().for_each(|e| put_extent(&mut frame, e));
        finish(&mut frame, start);
        let (header, body) = frame.split_first_chunk().unwrap();
        let header = Header::decode(header).unwrap();
        prop_assert_eq!(header, Header::new(FrameKind::Read, body.len()));
        let ask = decode_read(body).unwrap();
        prop_assert_eq!(ask, Ask { export: ExportId(export), generation, extents });
        prop_assert!(decode_read(&body[..body.len() - 1]).is_err());
    }
}

#[test]
fn headers_are_bounded() {
    let limits = [
        (FrameKind::Read, MAX_REQUEST_BYTES),
        (FrameKind::Description, MAX_ANSWER_BYTES),
        (FrameKind::Data, MAX_READ_BYTES as usize),
        (FrameKind::Noted, MAX_NOTE_BYTES + 1),
    ];
    for (kind, limit) in limits {
        assert!(Header::decode(&Header::new(kind, limit).encode()).is_ok());
        assert!(Header::decode(&Header::new(kind, limit + 1).encode()).is_err());
    }
    let good = Header::end(false).encode();
    assert_eq!(Header::decode(&good).unwrap().status, 1);
    for place in [0, 3, 4, 6, 7] {
        let mut bad = good;
        bad[place] ^= 0x55;
        assert!(Header::decode(&bad).is_err(), "byte {place}");
    }
}

#[test]
fn a_note_is_absent_empty_or_full() {
    let table: [(&[u8], _); 5] = [
        (&[0], Ok(None)),
        (&[1], Ok(Some(vec![]))),
        (&[1, 0, 7], Ok(Some(vec![0, 7]))),
        (&[0, 7], Err(Malformed("note"))),
        (&[2], Err(Malformed("note"))),
    ];
    for (body, note) in table {
        assert_eq!(decode_noted(body), note);
    }
    assert!(decode_noted(&[]).is_err());
}

#[test]
fn as_many_extents_as_allowed_fit_into_a_frame() {
    const { assert!(MAX_EXTENTS * PLACED_BYTES + 16 <= MAX_REQUEST_BYTES) };
    let body = |count: usize| vec![0; 16 + count * EXTENT_BYTES];
    assert_eq!(decode_read(&body(MAX_EXTENTS)).unwrap().extents.len(), MAX_EXTENTS);
    assert!(decode_read(&body(MAX_EXTENTS + 1)).is_err());
}

/// Every kind by its number: they are a format.
#[test]
fn kinds_are_known_numbers() {
    use FrameKind::*;
    let requests =
        [Identify, Describe, Read, Digest, Note, Await, Write, EarlyNote, Word, Lend, News];
    let answers =
        [Identity, Description, Data, Digests, End, Refused, Noted, Progress, Written, Heard, Lent];
    let table: Vec<(u8, FrameKind)> = (1..).zip(requests).chain((129..).zip(answers)).collect();
    for code in 0..=255 {
        let kind = table.iter().find(|(number, _)| *number == code).map(|(_, kind)| *kind);
        assert_eq!(FrameKind::from_code(code), kind, "{code}");
        if let Some(kind) = kind {
            assert_eq!(kind as u8, code);
            assert_eq!(kind.is_request(), code <= 11, "{kind:?}");
            let limit = match kind {
                Data => MAX_READ_BYTES as usize,
                Noted => 1 + MAX_NOTE_BYTES,
                _ if code <= 11 => MAX_REQUEST_BYTES,
                _ => MAX_ANSWER_BYTES,
            };
            for (body, fits) in [(0, true), (limit, true), (limit + 1, false)] {
                let header = Header { kind, status: code, body };
                let decoded = Header::decode(&header.encode());
                assert_eq!(
                    decoded,
                    fits.then_some(header).ok_or(Malformed("frame beyond its limit"))
                );
            }
        }
    }
}

#[test]
fn frames_are_these_bytes() {
    let header = Header { kind: FrameKind::Data, status: 7, body: 0x0102_0304 };
    assert_eq!(header.encode(), *b"WCD1\x83\x07\0\0\x04\x03\x02\x01\0\0\0\0");
    assert_eq!(Header::new(FrameKind::End, 3), Header { kind: FrameKind::End, status: 0, body: 3 });
    assert_eq!(Header::end(true), Header { kind: FrameKind::End, status: 0, body: 0 });
    assert_eq!(Header::end(false), Header { kind: FrameKind::End, status: 1, body: 0 });
    let refused = Header { kind: FrameKind::Refused, status: 4, body: 0 };
    assert_eq!(Header::refusal(RequestRefusal::TooMuch), refused);
    let asked = named(FrameKind::Note, ExportId(258), 3);
    assert_eq!(
        asked,
        [&Header::new(FrameKind::Note, 16).encode()[..], &numbers(&[258, 3])].concat()
    );
    // A frame behind another has a length of its own.
    let mut frames = asked.clone();
    let start = begin(&mut frames, FrameKind::Read);
    assert_eq!(start, 32);
    put(&mut frames, &[1, 2, 3]);
    finish(&mut frames, start);
    let second = [&Header::new(FrameKind::Read, 24).encode()[..], &numbers(&[1, 2, 3])].concat();
    assert_eq!(frames, [asked, second].concat());
    let extent = Extent { region: 1, offset: 2, row_bytes: 3, rows: 4, pitch: 5 };
    let mut out = Vec::new();
    put_extent(&mut out, &extent);
    assert_eq!(out, numbers(&[1, 2, 3, 4, 5]));
    put_placed(&mut out, &PlacedExtent { extent, position: 6, position_pitch: 7 });
    assert_eq!(out, numbers(&[1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7]));
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn bodies_are_whole_or_malformed() {
    let extent = |at: u64| Extent { region: 1, offset: at, row_bytes: 3, rows: 4, pitch: 5 };
    let whole = numbers(&[9, 8, 1, 2, 3, 4, 5, 1, 6, 3, 4, 5]);
    let ask = Ask { export: ExportId(9), generation: 8, extents: vec![extent(2), extent(6)] };
    let placed = |at| PlacedExtent { extent: extent(at), position: 70, position_pitch: 71 };
    let placed_ask =
        Ask { export: ExportId(9), generation: 8, extents: vec![placed(2), placed(6)] };
    let body = numbers(&[9, 8, 1, 2, 3, 4, 5, 70, 71, 1, 6, 3, 4, 5, 70, 71]);
    for len in 0..whole.len() {
        let records = (len >= 16 && (len - 16).is_multiple_of(40)).then(|| (len - 16) / 40);
        let found = decode_read(&whole[..len]).ok().map(|ask| ask.extents.len());
        assert_eq!(found, records, "{len}");
    }
    for len in 0..body.len() {
        let records = (len >= 16 && (len - 16).is_multiple_of(56)).then(|| (len - 16) / 56);
        let found = decode_digest(&body[..len]).ok().map(|ask| ask.extents.len());
        assert_eq!(found, records, "{len}");
    }
    assert_eq!(decode_read(&whole), Ok(ask));
    assert_eq!(decode_digest(&body), Ok(placed_ask));
    let beyond = numbers(&[9, 8, 1 << 32, 2, 3, 4, 5]);
    assert_eq!(decode_read(&beyond), Err(Malformed("number beyond 32 bits")));
    for len in 0..40 {
        let asked = decode_named(&whole[..len]);
        assert_eq!(asked.ok(), (len == 16).then_some((ExportId(9), 8)), "{len}");
    }
    let name = LocalName(std::array::from_fn(|i| i as u8));
    let mut out = Vec::new();
    put_identity(&mut out, None);
    assert_eq!((out.len(), decode_identity(&out)), (0, Ok(None)));
    put_identity(&mut out, Some(name));
    assert_eq!((out.len(), decode_identity(&out)), (16, Ok(Some(name))));
    assert!(decode_identity(&out[1..]).is_err() && decode_identity(&[0; 17]).is_err());
    let digests = numbers(&[1, 2, 3, 4]);
    let expected = vec![crate::Digest([1, 2]), crate::Digest([3, 4])];
    assert_eq!(decode_digests(&digests), Ok(expected));
    assert!(decode_digests(&digests[1..]).is_err());
    assert_eq!(decode_digests(&vec![0; 16 * MAX_EXTENTS]).unwrap().len(), MAX_EXTENTS);
    assert!(decode_digests(&vec![0; 16 * (MAX_EXTENTS + 1)]).is_err());
    let many = |count: usize| vec![0; 16 + count * PLACED_BYTES];
    assert_eq!(decode_digest(&many(MAX_EXTENTS)).unwrap().extents.len(), MAX_EXTENTS);
    assert!(decode_digest(&many(MAX_EXTENTS + 1)).is_err());
}

#[test]
fn runs_begin_a_pitch_apart() {
    let runs = |row_bytes, rows, pitch| {
        let extent = Extent { region: 0, offset: 100, row_bytes, rows, pitch };
        assert_eq!(extent.count(), extent.runs().count() as u64);
        extent.runs().collect::<Vec<_>>()
    };
    assert_eq!(runs(1, 3, 7), [100, 107, 114]);
    assert_eq!(runs(9, 2, 0), [100, 100]);
    assert!(runs(0, 3, 7).is_empty() && runs(1, 0, 7).is_empty());
}
