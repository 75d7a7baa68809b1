//! Round trips, limits, and bodies of noise.

use super::bodies::{EXTENT_BYTES, PLACED_BYTES};
use super::*;
use crate::limits::{MAX_EXTENTS, MAX_REGIONS};
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
        let _ = decode_noted(&bytes);
        let _ = decode_description(&bytes);
        let _ = decode_digests(&bytes);
        let _ = decode_identity(&bytes);
        if let Some((header, _)) = bytes.split_first_chunk() {
            let _ = Header::decode(header);
        }
    }

    #[test]
    fn requests_survive(export: u64, generation: u64, extents in prop::collection::vec(extent(), 0..20)) {
        let mut frame = Vec::new();
        let start = begin(&mut frame, Kind::Read);
        put(&mut frame, &[export, generation]);
        extents.iter().for_each(|e| put_extent(&mut frame, e));
        finish(&mut frame, start);
        let (header, body) = frame.split_first_chunk().unwrap();
        let header = Header::decode(header).unwrap();
        prop_assert_eq!(header, Header::new(Kind::Read, body.len()));
        let ask = decode_read(body).unwrap();
        prop_assert_eq!(ask, Ask { export: ExportId(export), generation, extents });
        prop_assert!(decode_read(&body[..body.len() - 1]).is_err());
    }
}

#[test]
fn headers_are_bounded() {
    let limits = [
        (Kind::Read, MAX_REQUEST_BYTES),
        (Kind::Description, MAX_ANSWER_BYTES),
        (Kind::Data, MAX_READ_BYTES as usize),
        (Kind::Noted, MAX_NOTE_BYTES + 1),
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
    const { assert!(MAX_REGIONS * 16 + 8 <= MAX_ANSWER_BYTES) };
    let body = |count: usize| vec![0; 16 + count * EXTENT_BYTES];
    assert_eq!(decode_read(&body(MAX_EXTENTS)).unwrap().extents.len(), MAX_EXTENTS);
    assert!(decode_read(&body(MAX_EXTENTS + 1)).is_err());
}
