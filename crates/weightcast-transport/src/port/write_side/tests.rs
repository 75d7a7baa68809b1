use super::*;
use crate::base::limits::{MAX_READ_ROWS, SLICE_COST};
use crate::export::grant::{GrantTerms, WriteGrant};
use crate::wire::mac::GrantKey;
use crate::wire::write_frame::WriteClaim;
use crate::wire::{FrameKind, HEADER_BYTES};
use std::time::Duration;

const RAW: Header = Header { kind: FrameKind::Write, status: 0, body: 0 };

fn granted(len: usize) -> (ExportTable, Region, WriteGrant) {
    let (table, memory) = (ExportTable::new(), Region::allocate(len).unwrap());
    let (regions, valid_for) = (vec![memory.clone()], Duration::from_secs(60));
    let terms = GrantTerms { generation: 4, regions, writer: None, valid_for };
    let grant = table.open_grant(terms).unwrap();
    (table, memory, grant)
}

fn side(source: u8) -> WriteSide {
    WriteSide::new(Nonces { source: [source; 32], reader: [2; 32] }, None)
}

/// A write as the writer on that connection sends it.
fn body(
    grant: &WriteGrant,
    (to, sequence): (&WriteSide, u64),
    extents: &[Extent],
    bytes: &[u8],
) -> Vec<u8> {
    let (grant_id, generation, extents) = (grant.id, grant.generation, extents.to_vec());
    let claim = WriteClaim { grant: grant_id, generation, extents };
    let mut frame = Vec::new();
    let key = GrantKey::new(&grant.secret);
    claim.put(&mut frame, |claimed| key.mac(&to.nonces, sequence, claimed));
    frame.extend_from_slice(bytes);
    frame.split_off(HEADER_BYTES)
}

fn extent(offset: u64, row_bytes: u64, rows: u64, pitch: u64) -> Extent {
    Extent { region: 0, offset, row_bytes, rows, pitch }
}

#[test]
fn runs_are_filled_in_order_and_nothing_beside() {
    let (table, memory, grant) = granted(12);
    let mut side = side(1);
    let extents = [extent(1, 2, 3, 4), extent(0, 0, 9, 1), extent(8, 1, 1, 1), extent(4, 1, 1, 0)];
    let write = body(&grant, (&side, 0), &extents, b"abcdefgh");
    assert_eq!(side.write(&table, RAW, &write), Ok(Ok(())));
    assert_eq!(memory.to_vec(), b"\0ab\0hcd\0gef\0");
}

/// What was overheard is worth nothing, on the same connection or on another.
#[test]
fn a_write_counts_once_and_on_its_connection() {
    let (table, memory, grant) = granted(1);
    let (mut own, mut other) = (side(1), side(3));
    let first = body(&grant, (&own, 0), &[extent(0, 1, 1, 1)], b"a");
    let second = body(&grant, (&own, 1), &[extent(0, 1, 1, 1)], b"b");
    assert_eq!(own.write(&table, RAW, &first), Ok(Ok(())));
    assert_eq!(other.write(&table, RAW, &first), Ok(Err(RequestRefusal::NotGranted)));
    assert_eq!(own.write(&table, RAW, &second), Ok(Ok(())));
    for replayed in [&first, &second, &first] {
        assert_eq!(own.write(&table, RAW, replayed), Ok(Err(RequestRefusal::NotGranted)));
        assert_eq!(memory.to_vec(), b"b");
    }
    let sixth = body(&grant, (&own, 5), &[extent(0, 1, 1, 1)], b"c");
    assert_eq!(own.write(&table, RAW, &sixth), Ok(Ok(())), "refused writes count as well");
    assert_eq!(memory.to_vec(), b"c");
}

/// All of its bytes, or none: the extents are checked before the first of them is filled.
#[test]
fn what_does_not_fit_changes_nothing() {
    let (table, memory, grant) = granted(8);
    let mut side = side(1);
    let good = extent(0, 1, 1, 1);
    let far = Extent { region: 1, ..good };
    let table_of_refusals = [
        (vec![good, extent(8, 1, 1, 1)], 2, RequestRefusal::OutOfRange),
        (vec![good, extent(u64::MAX, 1, 1, 1)], 2, RequestRefusal::OutOfRange),
        (vec![good, extent(7, 1, 2, 1)], 3, RequestRefusal::OutOfRange),
        (vec![good, far], 2, RequestRefusal::OutOfRange),
        (vec![good, good], 1, RequestRefusal::OutOfRange),
        (vec![good, good], 3, RequestRefusal::OutOfRange),
        (vec![good, extent(0, 1, MAX_READ_ROWS, 0)], 9, RequestRefusal::TooMuch),
        (vec![good, extent(0, 8, SLICE_COST << 20, 0)], 9, RequestRefusal::TooMuch),
    ];
    for (number, (extents, bytes, refusal)) in table_of_refusals.into_iter().enumerate() {
        let write = body(&grant, (&side, number as u64), &extents, &vec![7; bytes]);
        assert_eq!(side.write(&table, RAW, &write), Ok(Err(refusal)), "{extents:?}");
        assert_eq!(memory.to_vec(), [0; 8]);
    }
}

/// A stranger learns nothing of what is granted from how it is refused.
#[test]
fn a_stranger_is_refused_alike_whatever_it_asks() {
    let (table, memory, grant) = granted(8);
    let mut side = side(1);
    let stranger = WriteGrant { secret: crate::Secret::new("guessed"), ..grant };
    let extents = [extent(0, 1, 1, 1), extent(9, 1, 1, 1), extent(0, 1, 1 << 40, 0)];
    for (number, extent) in extents.into_iter().enumerate() {
        let write = body(&stranger, (&side, number as u64), &[extent], b"x");
        assert_eq!(side.write(&table, RAW, &write), Ok(Err(RequestRefusal::NotGranted)));
    }
    assert_eq!(memory.to_vec(), [0; 8]);
    assert!(side.write(&table, RAW, b"short").is_err());
}

/// Its bytes are not those of memory. It counts as any write that was refused.
#[test]
fn a_write_in_an_unknown_codec_is_refused_by_number() {
    let (table, memory, grant) = granted(4);
    let mut side = side(1);
    let coded = body(&grant, (&side, 0), &[extent(0, 4, 1, 4)], b"code");
    let refused = side.write(&table, Header { status: 5, ..RAW }, &coded);
    assert_eq!(refused, Ok(Err(RequestRefusal::UnknownCodec { codec: 5 })));
    let raw = body(&grant, (&side, 1), &[extent(0, 4, 1, 4)], b"byte");
    assert_eq!(side.write(&table, RAW, &raw), Ok(Ok(())));
    assert_eq!(memory.to_vec(), b"byte");
}
