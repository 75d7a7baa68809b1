//! Layouts as bytes: what the server stores without looking inside.

use prost::Message;
use weightcast_plan::{DType, Entry, Layout, LayoutError, Slice, Tensor};
use weightcast_protocol::ContentDigest;

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
