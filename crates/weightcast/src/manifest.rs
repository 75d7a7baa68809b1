//! Layouts as bytes, which the server stores without looking inside. And the digests of a layout's
//! entries, which an export carries as its note.

use std::iter;

use prost::Message;
use weightcast_plan::limits::{MAX_BUFFERS, MAX_DIMS, MAX_ENTRIES, MAX_NAME_BYTES, MAX_TENSORS};
use weightcast_plan::{DType, Entry, Layout, LayoutError, Slice, Tensor};
use weightcast_protocol::ContentDigest;
use weightcast_transport::Digest;

use crate::convert::count::{ProtoFields, Value, varint};
use crate::error::Error;

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod wire {
    tonic::include_proto!("weightcast.manifest.v1");
}

/// The digest under which a manifest is stored: of its bytes, so that anyone can check it.
pub(crate) fn blob_digest(bytes: &[u8]) -> ContentDigest {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    ContentDigest(digest)
}

/// A layout's manifest. Equal layouts give equal bytes.
pub(crate) fn encode(layout: &Layout) -> Vec<u8> {
    let tensor = |t: &Tensor| wire::Tensor {
        name: t.name().to_owned(),
        dtype: u32::from(t.dtype().code()),
        shape: t.shape().to_vec(),
    };
    let entry = |e: Entry| wire::Entry {
        tensor: e.tensor,
        buffer: e.buffer,
        offset: e.offset,
        start: e.slice.start,
        len: e.slice.len,
        strides: e.strides,
    };
    wire::Layout {
        buffers: layout.buffers().to_vec(),
        tensors: layout.tensors().iter().map(tensor).collect(),
        entries: layout.entries().map(entry).collect(),
    }
    .encode_to_vec()
}

/// The layout in a manifest, checked as if a stranger had written it.
///
/// Everything is counted and checked before anything is made of it. Entries go one by one into the
/// form in which they stay, which is about as large as the manifest. So a stranger's manifest takes
/// a few times its size while it is looked at, and no more than twice afterwards
/// (`weightcast-fuzz/tests/memory`).
pub(crate) fn decode(bytes: &[u8]) -> Result<Layout, Error> {
    let parts = sketch(bytes).map_err(malformed)?;
    let (mut buffers, mut tensors) =
        (Vec::with_capacity(parts.buffers), Vec::with_capacity(parts.tensors));
    for (number, value) in ProtoFields::of(bytes).flatten() {
        match (number, value) {
            (BUFFERS, Value::Bytes(mut list)) => {
                buffers.extend(iter::from_fn(|| varint(&mut list)));
            }
            (TENSOR, Value::Bytes(bytes)) => tensors.push(tensor(bytes)?),
            _ => {}
        }
    }
    let entries = ProtoFields::of(bytes).flatten().filter_map(|(number, value)| match value {
        Value::Bytes(bytes) if number == ENTRY => Some(entry(bytes)),
        _ => None,
    });
    Layout::in_order(buffers, tensors, entries, (parts.entries, parts.entry_bytes))
}

fn tensor(bytes: &[u8]) -> Result<Tensor, Error> {
    let t = wire::Tensor::decode(bytes).map_err(|e| malformed(e.to_string()))?;
    let dtype = u8::try_from(t.dtype).ok().and_then(DType::from_code);
    let dtype = dtype.ok_or_else(|| malformed(format!("unknown dtype {}", t.dtype)))?;
    Ok(Tensor::new(t.name, dtype, t.shape).map_err(LayoutError::from)?)
}

fn entry(bytes: &[u8]) -> Result<Entry, Error> {
    let e = wire::Entry::decode(bytes).map_err(|e| malformed(e.to_string()))?;
    Ok(Entry {
        tensor: e.tensor,
        slice: Slice { start: e.start, len: e.len },
        buffer: e.buffer,
        offset: e.offset,
        strides: e.strides,
    })
}

fn malformed(problem: impl Into<String>) -> Error {
    Error::Config { what: "manifest".to_owned(), problem: problem.into() }
}

/// The fields of a layout that repeat, and the numbers of an entry's lists.
const BUFFERS: u64 = 1;
const TENSOR: u64 = 2;
const ENTRY: u64 = 3;
const LISTS: [u64; 3] = [4, 5, 6];

/// Counts of a manifest's parts.
struct Parts {
    buffers: usize,
    tensors: usize,
    entries: usize,
    /// Most bytes that the entries take without the names of their fields; four more for each
    /// entry, for zeros that are left out on the wire.
    entry_bytes: usize,
}

/// Counts what a manifest has, and refuses what no layout is, without allocating anything.
fn sketch(bytes: &[u8]) -> Result<Parts, String> {
    let (mut buffers, mut tensors, mut entries, mut scalars) = (0, 0, 0, 0);
    let mut entry_bytes = 0;
    for field in ProtoFields::of(bytes) {
        match field.ok_or("it is cut short")? {
            (BUFFERS, Value::Bytes(list)) => buffers += numbers(list)?,
            (TENSOR, Value::Bytes(tensor)) => {
                check_tensor(tensor)?;
                tensors += 1;
            }
            (ENTRY, Value::Bytes(entry)) => {
                scalars += usize::from(dimensions(entry)? == 0);
                entries += 1;
                entry_bytes += entry.len() + 4;
            }
            (number, _) => return Err(format!("a layout has no field {number} of that kind")),
        }
    }
    // A layout holds each element once, and a scalar is one element: at most one such entry a
    // tensor.
    for (what, got, most) in [
        ("buffers", buffers, MAX_BUFFERS),
        ("tensors", tensors, MAX_TENSORS),
        ("entries", entries, MAX_ENTRIES),
        ("entries without dimensions for so many tensors", scalars, tensors),
    ] {
        if got > most {
            return Err(format!("{got} {what}: at most {most}"));
        }
    }
    Ok(Parts { buffers, tensors, entries, entry_bytes })
}

/// A tensor has a name and few dimensions.
fn check_tensor(tensor: &[u8]) -> Result<(), String> {
    let (mut named, mut dims) = (false, 0);
    for field in ProtoFields::of(tensor) {
        match field.ok_or("a tensor is cut short")? {
            (1, Value::Bytes(name)) => named = !name.is_empty() && name.len() <= MAX_NAME_BYTES,
            (3, Value::Bytes(shape)) => dims += numbers(shape)?,
            (2, Value::Varint(_)) => {}
            (number, _) => return Err(format!("a tensor has no field {number} of that kind")),
        }
    }
    match named && dims <= MAX_DIMS {
        true => Ok(()),
        false => Err(format!("a tensor has a name and at most {MAX_DIMS} dimensions")),
    }
}

/// In how many dimensions an entry is a box: the same in all its lists.
fn dimensions(entry: &[u8]) -> Result<usize, String> {
    let mut counts = [0; 3];
    for field in ProtoFields::of(entry) {
        match field.ok_or("an entry is cut short")? {
            (number, Value::Bytes(list)) if LISTS.contains(&number) => {
                counts[(number - LISTS[0]) as usize] += numbers(list)?;
            }
            (1..=3, Value::Varint(_)) => {}
            (number, _) => return Err(format!("an entry has no field {number} of that kind")),
        }
    }
    match counts {
        [start, len, strides] if start == len && len == strides && start <= MAX_DIMS => Ok(start),
        _ => Err(format!("an entry has start, len and strides in {counts:?} dimensions")),
    }
}

/// How many numbers a packed list has.
fn numbers(mut list: &[u8]) -> Result<usize, String> {
    let mut count = 0;
    while !list.is_empty() {
        varint(&mut list).ok_or("a list is cut short")?;
        count += 1;
    }
    Ok(count)
}

/// A note: the digests of a layout's entries, in order, and of its cells in its group. Digests of
/// cells that equal those of the entries are left out.
pub(crate) fn encode_parts(parts: &[Digest], cells: &[Digest]) -> Vec<u8> {
    let lanes = |digests: &[Digest]| digests.iter().flat_map(|digest| digest.0).collect();
    let cells = if parts == cells { Vec::new() } else { lanes(cells) };
    wire::Parts { lanes: lanes(parts), cells, known: Vec::new() }.encode_to_vec()
}

/// An early note: the digests of a layout's entries, in order, as far as they are known.
pub(crate) fn encode_early(parts: &[Option<Digest>]) -> Vec<u8> {
    let lanes = parts.iter().flat_map(|part| part.unwrap_or_default().0).collect();
    let mut known = vec![0_u8; parts.len().div_ceil(8)];
    for (entry, part) in parts.iter().enumerate() {
        known[entry / 8] |= u8::from(part.is_some()) << (entry % 8);
    }
    wire::Parts { lanes, cells: Vec::new(), known }.encode_to_vec()
}

/// The entries' digests in a stranger's note; `None` unless there are exactly `entries` of them, all
/// known.
pub(crate) fn decode_parts(bytes: &[u8], entries: usize) -> Option<Vec<Digest>> {
    let parts = wire::Parts::decode(bytes).ok()?;
    digests(&parts.lanes, entries).filter(|_| parts.known.is_empty())
}

/// The entries' digests in a stranger's note, early or not, as far as they are known; `None` unless
/// the note is one of exactly `entries`.
pub(crate) fn decode_early(bytes: &[u8], entries: usize) -> Option<Vec<Option<Digest>>> {
    let parts = wire::Parts::decode(bytes).ok()?;
    let digests = digests(&parts.lanes, entries)?;
    let all = parts.known.is_empty();
    if !all && parts.known.len() != entries.div_ceil(8) {
        return None;
    }
    let known = |entry: usize| all || parts.known[entry / 8] >> (entry % 8) & 1 == 1;
    let told = |(entry, digest)| known(entry).then_some(digest);
    Some(digests.into_iter().enumerate().map(told).collect())
}

/// The cells' digests in a stranger's note; `None` unless there are exactly `cells` of them.
pub(crate) fn decode_cells(bytes: &[u8], cells: usize) -> Option<Vec<Digest>> {
    let parts = wire::Parts::decode(bytes).ok().filter(|parts| parts.known.is_empty())?;
    // Left out, they equal those of the entries. But a shard that holds only empty entries has no
    // cells.
    digests(if parts.cells.is_empty() && cells > 0 { &parts.lanes } else { &parts.cells }, cells)
}

fn digests(lanes: &[u64], wanted: usize) -> Option<Vec<Digest>> {
    let digests = lanes.as_chunks::<2>().0.iter().copied().map(Digest);
    (lanes.len() == 2 * wanted).then(|| digests.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_their_number_is_checked() {
        let parts = [Digest([1, u64::MAX]), Digest::ZERO, Digest([3, 4])];
        let bytes = encode_parts(&parts, &parts);
        assert_eq!(decode_cells(&bytes, 3), Some(parts.to_vec()));
        let finer = encode_parts(&parts, &parts[..1]);
        assert_eq!(decode_cells(&finer, 1), Some(parts[..1].to_vec()));
        assert_eq!((decode_parts(&finer, 3), decode_cells(&finer, 3)), (Some(parts.into()), None));
        assert_eq!(decode_parts(&bytes, 3), Some(parts.to_vec()));
        assert_eq!(decode_parts(&bytes, 2), None);
        assert_eq!(decode_parts(&bytes[..bytes.len() - 1], 3), None);
        assert_eq!(decode_parts(b"", 0), Some(Vec::new()));
        let empty = encode_parts(&parts[..2], &[]);
        assert_eq!(
            (decode_parts(&empty, 2), decode_cells(&empty, 0)),
            (Some(parts[..2].to_vec()), Some(vec![]))
        );
        assert!(bytes.len() <= 3 * 16 + 8);
    }

    #[test]
    fn an_early_note_has_gaps_and_is_no_note() {
        let digest = |number| Some(Digest([number, !number]));
        for count in [1, 2, 7, 8, 9, 17] {
            for gaps in 0..3 {
                let parts: Vec<_> =
                    (0..count).map(|at| digest(at).filter(|_| at % 3 >= gaps)).collect();
                let (bytes, count) = (encode_early(&parts), count as usize);
                assert_eq!(decode_early(&bytes, count), Some(parts.clone()));
                assert_eq!(decode_early(&bytes, count + 1), None);
                assert_eq!(
                    (decode_parts(&bytes, count), decode_cells(&bytes, count)),
                    (None, None)
                );
            }
        }
        let whole = [Digest([1, 2]), Digest([3, 4])];
        let told = whole.iter().copied().map(Some).collect();
        assert_eq!(decode_early(&encode_parts(&whole, &whole[..1]), 2), Some(told));
        // Too few bits for the entries, and too many.
        for known in [vec![0; 2], vec![0; 4]] {
            let lanes = vec![0; 2 * 17];
            let bytes = wire::Parts { lanes, cells: Vec::new(), known }.encode_to_vec();
            assert_eq!(decode_early(&bytes, 17), None);
        }
        assert_eq!(decode_early(b"", 0), Some(Vec::new()));
        assert_eq!(decode_early(b"\xff", 0), None);
    }

    fn layout() -> Layout {
        let tensor = |name: &str, shape: &[u64]| Tensor::new(name, DType::BF16, shape).unwrap();
        let entry = |tensor, buffer, offset, len: &[u64], strides: &[u64]| Entry {
            tensor,
            slice: Slice::new(vec![0; len.len()], len),
            buffer,
            offset,
            strides: strides.to_vec(),
        };
        let tensors = vec![tensor("scalar", &[]), tensor("empty", &[0, 3]), tensor("w", &[4, 3])];
        let entries = vec![
            entry(0, 0, 0, &[], &[]),
            entry(1, 0, 0, &[0, 3], &[6, 2]),
            entry(2, 1, 2, &[4, 3], &[6, 2]),
        ];
        Layout::new(vec![2, 26], tensors, entries).unwrap()
    }

    #[test]
    fn a_manifest_comes_back_and_no_part_of_it_does() {
        let bytes = encode(&layout());
        assert_eq!(decode(&bytes).unwrap(), layout());
        for end in 0..bytes.len() {
            assert_ne!(decode(&bytes[..end]).ok(), Some(layout()), "{end}");
        }
    }

    /// An entry all of whose fields are zero, and a buffer without bytes between others.
    #[test]
    fn what_takes_no_bytes_comes_back_too() {
        let tensor = |name, shape: &[u64]| Tensor::new(name, DType::BF16, shape).unwrap();
        let entry = |tensor, buffer, len: &[u64], strides: &[u64]| Entry {
            tensor,
            slice: Slice::new(vec![0; len.len()], len),
            buffer,
            offset: 0,
            strides: strides.to_vec(),
        };
        let entries = vec![entry(0, 0, &[], &[]), entry(1, 2, &[4], &[2])];
        let tensors = vec![tensor("a", &[]), tensor("b", &[4])];
        let layout = Layout::new(vec![2, 0, 8], tensors, entries).unwrap();
        assert_eq!(decode(&encode(&layout)).unwrap(), layout);
    }

    /// Decoding neither sorts a manifest nor makes its strides, so a manifest must come as a layout
    /// gives it.
    #[test]
    fn what_is_not_as_a_layout_gives_it_is_refused() {
        let bytes = encode(&layout());
        let parts = wire::Layout::decode(&*bytes).unwrap();
        let changed = |change: &dyn Fn(&mut wire::Layout)| {
            let mut other = parts.clone();
            change(&mut other);
            decode(&other.encode_to_vec())
        };
        assert_eq!(changed(&|_| ()).unwrap(), layout());
        let refused = |change: &dyn Fn(&mut wire::Layout)| changed(change).unwrap_err().to_string();
        assert!(refused(&|l| l.tensors.swap(0, 1)).contains("tensor number 1 is not in canonical"));
        assert!(refused(&|l| l.entries.swap(1, 2)).contains("entry number 2 is not in canonical"));
        let twice = refused(&|l| l.tensors[1] = l.tensors[0].clone());
        assert!(twice.contains("tensor number 1 is not in canonical"));
        // Of the empty tensor, whose strides mean nothing.
        assert!(refused(&|l| l.entries[0].strides[0] = 7).contains("entry number 0"));
    }

    /// Before anything is made of it: two bytes on the wire would be ninety in memory.
    #[test]
    fn what_says_less_than_it_takes_is_refused() {
        let entry = |fields: &[u8]| [&[26, fields.len() as u8][..], fields].concat();
        let tensor = [18, 3, 10, 1, b'a'];
        for (bytes, said) in [
            (entry(&[]), "without dimensions"),
            ([&tensor[..], &entry(&[]), &entry(&[])].concat(), "without dimensions"),
            ([18, 0].to_vec(), "a name"),
            ([&[18, 14, 10, 1, b'a', 26, 9][..], &[1; 9]].concat(), "8 dimensions"),
            (entry(&[34, 1, 0]), "[1, 0, 0] dimensions"),
            (entry(&[34, 1, 0x80]), "list is cut short"),
            (entry(&[34, 2, 0]), "entry is cut short"),
            (entry(&[40, 0]), "no field 5"),
            ([32, 0].to_vec(), "no field 4"),
            ([10, 1].to_vec(), "cut short"),
            ([&[10, 0x81, 0x80, 0x40][..], &vec![0; MAX_BUFFERS + 1]].concat(), "buffers: at most"),
        ] {
            let error = decode(&bytes).unwrap_err().to_string();
            assert!(error.contains(said), "{said:?} in {error:?} of {bytes:?}");
        }
        // As many scalars as tensors are as they should be.
        assert!(sketch(&[&tensor[..], &entry(&[])].concat()).is_ok());
    }

    /// Digests of cells are left out only if they equal the digests of the entries, one by one.
    #[test]
    fn cells_that_are_not_the_entries_are_noted() {
        let [one, other] = [Digest([1, 2]), Digest([3, 4])];
        for cells in [vec![one, one], vec![one, other], vec![other, one], vec![other]] {
            let bytes = encode_parts(&[one, one], &cells);
            assert_eq!(decode_cells(&bytes, cells.len()), Some(cells));
            assert_eq!(decode_parts(&bytes, 2), Some(vec![one, one]));
        }
    }

    #[test]
    fn as_much_as_may_be_is_taken_and_no_more() {
        let tensor = |name: usize, dims: usize| {
            let (name, shape) = ("n".repeat(name), vec![1; dims]);
            let tensor = wire::Tensor { name, dtype: 1, shape }.encode_to_vec();
            [&[18][..], &length(tensor.len()), &tensor].concat()
        };
        for (bytes, said) in [
            (tensor(MAX_NAME_BYTES, 1), None),
            (tensor(MAX_NAME_BYTES + 1, 1), Some("a name")),
            (tensor(1, MAX_DIMS), None),
            (tensor(1, MAX_DIMS + 1), Some("dimensions")),
            (tensor(1, 1).repeat(MAX_TENSORS), None),
            (tensor(1, 1).repeat(MAX_TENSORS + 1), Some("tensors: at most")),
            (buffers(&[MAX_BUFFERS]), None),
            (buffers(&[MAX_BUFFERS - 1, 1]), None),
            (buffers(&[MAX_BUFFERS, 1]), Some("buffers: at most")),
            (buffers(&[1, MAX_BUFFERS]), Some("buffers: at most")),
            (entry_of([2, 2, 2]), None),
            (entry_of([2, 2, 1]), Some("[2, 2, 1] dimensions")),
            (entry_of([2, 1, 2]), Some("[2, 1, 2] dimensions")),
            (entry_of([1, 2, 2]), Some("[1, 2, 2] dimensions")),
            (entry_of([MAX_DIMS; 3]), None),
            (entry_of([MAX_DIMS + 1; 3]), Some("dimensions")),
        ] {
            let looked_at = sketch(&bytes).map(drop);
            match said {
                None => assert_eq!(looked_at, Ok(())),
                Some(said) => {
                    let problem = looked_at.unwrap_err();
                    assert!(problem.contains(said), "{said:?} in {problem:?}");
                }
            }
        }
    }

    fn length(bytes: usize) -> Vec<u8> {
        let mut length = Vec::new();
        prost::encoding::encode_varint(bytes as u64, &mut length);
        length
    }

    /// Lists of so many buffers without a byte each.
    fn buffers(lists: &[usize]) -> Vec<u8> {
        let list = |count: &usize| [&[10][..], &length(*count), &vec![0; *count]].concat();
        lists.iter().flat_map(list).collect()
    }

    /// An entry whose lists have so many numbers.
    fn entry_of([start, len, strides]: [usize; 3]) -> Vec<u8> {
        let entry = wire::Entry {
            start: vec![1; start],
            len: vec![1; len],
            strides: vec![1; strides],
            ..wire::Entry::default()
        };
        let entry = entry.encode_to_vec();
        [&[26][..], &length(entry.len()), &entry].concat()
    }
}
