//! What the frames carry.

use crate::base::id::ExportId;
use crate::base::limits::{MAX_EXTENTS, MAX_REGIONS};
use crate::memory::digest::Digest;
use crate::piece::extent::{Extent, PlacedExtent};
use crate::wire::frames::{Decoded, Malformed, put};
use crate::wire::local_name::LocalName;

pub(super) const EXTENT_BYTES: usize = 40;
pub(super) const PLACED_BYTES: usize = EXTENT_BYTES + 16;

/// Where a region begins in memory that is lent: a file, the first of which is number 1, and a place in it. Zeros for a
/// region without bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LentPlace {
    pub(crate) file: u16,
    pub(crate) offset: u64,
}

/// A request about extents of one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask<E> {
    pub(crate) export: ExportId,
    pub(crate) generation: u64,
    pub(crate) extents: Vec<E>,
}

pub(crate) fn put_extent(out: &mut Vec<u8>, e: &Extent) {
    put(out, &[u64::from(e.region), e.offset, e.row_bytes, e.rows, e.pitch]);
}

pub(crate) fn put_placed(out: &mut Vec<u8>, e: &PlacedExtent) {
    put_extent(out, &e.extent);
    put(out, &[e.position, e.position_pitch]);
}

pub(crate) fn put_identity(out: &mut Vec<u8>, name: Option<LocalName>) {
    out.extend_from_slice(name.as_ref().map_or(&[], |name| &name.0));
}

/// Reads fields off the front of a body.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64) -> Decoded<&'a [u8]> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.0.len());
        let (bytes, rest) = self.0.split_at(len.ok_or(Malformed("body too short"))?);
        self.0 = rest;
        Ok(bytes)
    }

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

    pub(super) fn extent(&mut self) -> Decoded<Extent> {
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

/// The export that a request without extents names.
pub(crate) fn decode_named(body: &[u8]) -> Decoded<(ExportId, u64)> {
    let mut fields = Fields(body);
    let asked = (ExportId(fields.u64()?), fields.u64()?);
    fields.end()?;
    Ok(asked)
}

/// An export and a number: the milliseconds that its note may be waited for, or the units that are known to be
/// final.
pub(crate) fn decode_numbered(body: &[u8]) -> Decoded<(ExportId, u64, u64)> {
    let mut fields = Fields(body);
    let asked = (ExportId(fields.u64()?), fields.u64()?, fields.u64()?);
    fields.end()?;
    Ok(asked)
}

pub(crate) fn decode_digests(body: &[u8]) -> Decoded<Vec<Digest>> {
    Fields(body).records(16, MAX_EXTENTS, |f| Ok(Digest::from_bytes(f.bytes()?)))
}

pub(crate) fn decode_noted(body: &[u8]) -> Decoded<Option<Vec<u8>>> {
    match body {
        [0] => Ok(None),
        [1, note @ ..] => Ok(Some(note.to_vec())),
        _ => Err(Malformed("note")),
    }
}

/// Of each region of an export that is lent: where it lies. The number of its file takes the upper 16 bits.
pub(crate) fn put_lent(out: &mut Vec<u8>, places: &[LentPlace]) {
    for place in places {
        put(out, &[u64::from(place.file) << LENT_OFFSET_BITS | place.offset]);
    }
}

pub(crate) fn decode_lent(body: &[u8]) -> Decoded<Vec<LentPlace>> {
    Fields(body).records(8, MAX_REGIONS, |fields| {
        let number = fields.u64()?;
        let file = (number >> LENT_OFFSET_BITS) as u16;
        Ok(LentPlace { file, offset: number & ((1 << LENT_OFFSET_BITS) - 1) })
    })
}

/// More than an address space has.
const LENT_OFFSET_BITS: u32 = 48;

pub(crate) fn decode_identity(body: &[u8]) -> Decoded<Option<LocalName>> {
    match body {
        [] => Ok(None),
        name => Ok(Some(LocalName(name.try_into().map_err(|_| Malformed("name of a socket"))?))),
    }
}
