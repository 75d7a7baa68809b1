//! Layouts as bytes: what the server stores without looking inside. And the digests of a layout's
//! entries: what an export carries as its note.

use prost::Message;
use weightcast_plan::{DType, Entry, Layout, LayoutError, Slice, Tensor};
use weightcast_protocol::ContentDigest;
use weightcast_transport::Digest;

use crate::Error;

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod wire {
    tonic::include_proto!("weightcast.manifest.v1");
}

/// Name of a manifest: of its bytes, so that anyone can check it.
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
    let entry = |e: &Entry| wire::Entry {
        tensor: e.tensor,
        buffer: e.buffer,
        offset: e.offset,
        start: e.slice.start.clone(),
        len: e.slice.len.clone(),
        strides: e.strides.clone(),
    };
    wire::Layout {
        buffers: layout.buffers().to_vec(),
        tensors: layout.tensors().iter().map(tensor).collect(),
        entries: layout.entries().iter().map(entry).collect(),
    }
    .encode_to_vec()
}

/// The layout in a manifest, checked as if a stranger had written it.
pub(crate) fn decode(bytes: &[u8]) -> Result<Layout, Error> {
    let malformed = |problem: String| Error::Config { what: "manifest".to_owned(), problem };
    let wire = wire::Layout::decode(bytes).map_err(|e| malformed(e.to_string()))?;
    let mut tensors = Vec::with_capacity(wire.tensors.len());
    for t in wire.tensors {
        let dtype = u8::try_from(t.dtype).ok().and_then(DType::from_code);
        let dtype = dtype.ok_or_else(|| malformed(format!("unknown dtype {}", t.dtype)))?;
        tensors.push(Tensor::new(t.name, dtype, t.shape).map_err(LayoutError::from)?);
    }
    let entry = |e: wire::Entry| Entry {
        tensor: e.tensor,
        slice: Slice { start: e.start, len: e.len },
        buffer: e.buffer,
        offset: e.offset,
        strides: e.strides,
    };
    Ok(Layout::new(wire.buffers, tensors, wire.entries.into_iter().map(entry).collect())?)
}

/// The digests of a layout's entries, in order.
pub(crate) fn encode_parts(parts: &[Digest]) -> Vec<u8> {
    wire::Parts { lanes: parts.iter().flat_map(|digest| digest.0).collect() }.encode_to_vec()
}

/// The same from a stranger; `None` unless there is one for each of so many entries.
pub(crate) fn decode_parts(bytes: &[u8], entries: usize) -> Option<Vec<Digest>> {
    let lanes = wire::Parts::decode(bytes).ok()?.lanes;
    let parts = lanes.as_chunks::<2>().0.iter().copied().map(Digest);
    (lanes.len() == 2 * entries).then(|| parts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_their_number_is_checked() {
        let parts = [Digest([1, u64::MAX]), Digest::ZERO, Digest([3, 4])];
        let bytes = encode_parts(&parts);
        assert_eq!(decode_parts(&bytes, 3), Some(parts.to_vec()));
        assert_eq!(decode_parts(&bytes, 2), None);
        assert_eq!(decode_parts(&bytes[..bytes.len() - 1], 3), None);
        assert_eq!(decode_parts(b"", 0), Some(Vec::new()));
        assert!(bytes.len() <= 3 * 16 + 8);
    }
}
