//! The bytes of the data port: little-endian, a fixed header of 16 bytes, then a body.
//!
//! | header field | bytes | |
//! |---|---|---|
//! | magic | 4 | `WCD1` |
//! | kind | 1 | [`Kind`] |
//! | status | 1 | refusal code, or 1 for a fenced end |
//! | zero | 2 | |
//! | body | 8 | bytes that follow |
//!
//! A read is answered by `Data`, whose body is the extents' bytes back to back, and an `End` that
//! says whether they count; everything else by one frame. Answers keep the order of requests.
//! A length is checked before anything is allocated for it.

use crate::digest::Digest;
use crate::error::Refusal;
use crate::exports::ExportId;
use crate::identity::Identity;
use crate::limits::{MAX_EXTENTS, MAX_FRAME_BYTES, MAX_READ_BYTES, MAX_REGIONS};

pub(crate) const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"WCD1";
const EXTENT_BYTES: usize = 40;
const PLACED_BYTES: usize = EXTENT_BYTES + 16;

/// Bytes that are not the protocol. The connection they came from is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

type Decoded<T> = Result<T, Malformed>;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Request: who are you?
    Identify = 1,
    /// Request: where does this export lie?
    Describe = 2,
    /// Request: the bytes of these extents.
    Read = 3,
    /// Request: the digests of these extents.
    Digest = 4,
    /// Answer to `Identify`.
    Identity = 129,
    /// Answer to `Describe`.
    Description = 130,
    /// Answer to `Read`, followed by `End`.
    Data = 131,
    /// Answer to `Digest`.
    Digests = 132,
    /// The verdict on the data before it.
    End = 133,
    /// Any request may be refused; the status says why.
    Refused = 134,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        use Kind::*;
        let all =
            [Identify, Describe, Read, Digest, Identity, Description, Data, Digests, End, Refused];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// The fixed header of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) status: u8,
    pub(crate) body: usize,
}

impl Header {
    pub(crate) fn new(kind: Kind, body: usize) -> Self {
        Self { kind, status: 0, body }
    }

    /// The end of an answered read.
    pub(crate) fn end(served: bool) -> Self {
        Self { kind: Kind::End, status: u8::from(!served), body: 0 }
    }

    pub(crate) fn refusal(refusal: Refusal) -> Self {
        Self { kind: Kind::Refused, status: refusal.code(), body: 0 }
    }

    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.status;
        bytes[8..].copy_from_slice(&(self.body as u64).to_le_bytes());
        bytes
    }

    /// Checks everything about a header that does not need its body.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Decoded<Self> {
        let [m0, m1, m2, m3, kind, status, z0, z1, body @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC || [z0, z1] != [0, 0] {
            return Err(Malformed("not a frame"));
        }
        let kind = Kind::from_code(kind).ok_or(Malformed("unknown kind of frame"))?;
        let body = u64::from_le_bytes(body);
        let limit = match kind {
            Kind::Data => MAX_READ_BYTES,
            _ => MAX_FRAME_BYTES as u64,
        };
        if body > limit {
            return Err(Malformed("frame beyond its limit"));
        }
        Ok(Self { kind, status, body: body as usize })
    }
}

/// A rectangle of bytes of one region of the source: `rows` runs of `row_bytes`, `pitch` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the region in the export.
    pub region: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes of each run.
    pub row_bytes: u64,
    /// Number of runs.
    pub rows: u64,
    /// Bytes from the start of one run to the start of the next.
    pub pitch: u64,
}

/// An extent whose bytes lie at known positions of their logical tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedExtent {
    /// The bytes.
    pub extent: Extent,
    /// Position of the first byte.
    pub position: u64,
    /// Positions from one run to the next.
    pub position_pitch: u64,
}

/// A request about extents of one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask<E> {
    pub(crate) export: ExportId,
    pub(crate) generation: u64,
    pub(crate) extents: Vec<E>,
}

/// Where an export lies in its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// Address of the fence word.
    pub(crate) word: u64,
    /// Address and length of each region.
    pub(crate) regions: Vec<(u64, u64)>,
}

/// Starts a request frame; the length is filled in by [`finish`].
pub(crate) fn begin(out: &mut Vec<u8>, kind: Kind) -> usize {
    let start = out.len();
    out.extend_from_slice(&Header::new(kind, 0).encode());
    start
}

/// Fills in the length of the frame that began at `start`.
pub(crate) fn finish(out: &mut [u8], start: usize) {
    let body = (out.len() - start - HEADER_BYTES) as u64;
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&body.to_le_bytes());
}

pub(crate) fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn put_extent(out: &mut Vec<u8>, e: &Extent) {
    put(out, &[u64::from(e.region), e.offset, e.row_bytes, e.rows, e.pitch]);
}

pub(crate) fn put_placed(out: &mut Vec<u8>, e: &PlacedExtent) {
    put_extent(out, &e.extent);
    put(out, &[e.position, e.position_pitch]);
}

pub(crate) fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    put(out, &[u64::from(identity.pid), identity.start_time, identity.nonce_address]);
    out.extend_from_slice(&identity.boot);
    out.extend_from_slice(&identity.nonce);
}

/// Reads fields off the front of a body.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn bytes<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed("body too short"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Decoded<u32> {
        u32::try_from(self.u64()?).map_err(|_| Malformed("number beyond 32 bits"))
    }

    fn extent(&mut self) -> Decoded<Extent> {
        Ok(Extent {
            region: self.u32()?,
            offset: self.u64()?,
            row_bytes: self.u64()?,
            rows: self.u64()?,
            pitch: self.u64()?,
        })
    }

    fn placed(&mut self) -> Decoded<PlacedExtent> {
        let extent = self.extent()?;
        Ok(PlacedExtent { extent, position: self.u64()?, position_pitch: self.u64()? })
    }

    pub(crate) fn end(&self) -> Decoded<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("body too long")) }
    }

    /// The rest as records of `size` bytes, `limit` at most.
    fn records<T>(
        &mut self,
        size: usize,
        limit: usize,
        read: impl Fn(&mut Self) -> Decoded<T>,
    ) -> Decoded<Vec<T>> {
        if !self.0.len().is_multiple_of(size) || self.0.len() / size > limit {
            return Err(Malformed("number of records"));
        }
        (0..self.0.len() / size).map(|_| read(self)).collect()
    }
}

pub(crate) fn decode_read(body: &[u8]) -> Decoded<Ask<Extent>> {
    let mut fields = Fields(body);
    let (export, generation) = (ExportId(fields.u64()?), fields.u64()?);
    let extents = fields.records(EXTENT_BYTES, MAX_EXTENTS, Fields::extent)?;
    Ok(Ask { export, generation, extents })
}

pub(crate) fn decode_digest(body: &[u8]) -> Decoded<Ask<PlacedExtent>> {
    let mut fields = Fields(body);
    let (export, generation) = (ExportId(fields.u64()?), fields.u64()?);
    let extents = fields.records(PLACED_BYTES, MAX_EXTENTS, Fields::placed)?;
    Ok(Ask { export, generation, extents })
}

pub(crate) fn decode_describe(body: &[u8]) -> Decoded<(ExportId, u64)> {
    let mut fields = Fields(body);
    let asked = (ExportId(fields.u64()?), fields.u64()?);
    fields.end()?;
    Ok(asked)
}

pub(crate) fn decode_description(body: &[u8]) -> Decoded<Description> {
    let mut fields = Fields(body);
    let word = fields.u64()?;
    let regions = fields.records(16, MAX_REGIONS, |f| Ok((f.u64()?, f.u64()?)))?;
    Ok(Description { word, regions })
}

pub(crate) fn decode_digests(body: &[u8]) -> Decoded<Vec<Digest>> {
    Fields(body).records(16, MAX_EXTENTS, |f| Ok(Digest::from_bytes(f.bytes()?)))
}

pub(crate) fn decode_identity(body: &[u8]) -> Decoded<Identity> {
    let mut fields = Fields(body);
    let identity = Identity {
        pid: fields.u32()?,
        start_time: fields.u64()?,
        nonce_address: fields.u64()?,
        boot: fields.bytes()?,
        nonce: fields.bytes()?,
    };
    fields.end()?;
    Ok(identity)
}

#[cfg(test)]
mod tests;
