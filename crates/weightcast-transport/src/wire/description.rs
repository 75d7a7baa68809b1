//! What a source says of an export: how large it is, what memory it lies in, and what each lane to it
//! needs to know.
//!
//! | field | bytes | |
//! |---|---|---|
//! | filling | 1 | 1 if the export is still being filled |
//! | regions | 8 | how many |
//! | region, each | 9 | length, and [`MemoryKind`] |
//! | descriptor, each | 16 + n | number of its lane, n, and n bytes that only the lane understands |
//!
//! A reader skips the descriptor of a lane that it does not know, and takes a kind of memory that it
//! does not know for one that only the source can read.

use crate::base::limits::{MAX_DESCRIPTORS, MAX_REGIONS};
use crate::memory::kind::MemoryKind;
use crate::wire::bodies::Fields;
use crate::wire::frames::{Decoded, Malformed, put};

/// Bytes of one region in a description.
const REGION_BYTES: usize = 9;

/// How large an export is, and how it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportDescription {
    /// Whether it is still being filled.
    pub(crate) filling: bool,
    pub(crate) regions: Vec<RegionDescription>,
    /// At most one for each lane.
    pub(crate) descriptors: Vec<LaneDescriptor>,
}

/// One region of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionDescription {
    /// Bytes.
    pub(crate) len: u64,
    /// `None` for a kind of a later release.
    pub(crate) kind: Option<MemoryKind>,
}

/// What a reader must know of an export to use one lane to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneDescriptor {
    /// The number of the lane.
    pub(crate) lane: u64,
    /// A format of the lane's own.
    pub(crate) bytes: Vec<u8>,
}

impl ExportDescription {
    /// Whether some of its bytes are made when they are read.
    pub(crate) fn is_made(&self) -> bool {
        self.regions.iter().any(|region| region.kind == Some(MemoryKind::Computed))
    }

    /// What the source says for a lane; `None` if it does not offer that lane.
    pub(crate) fn descriptor(&self, lane: u64) -> Option<&[u8]> {
        let found = self.descriptors.iter().find(|descriptor| descriptor.lane == lane);
        found.map(|descriptor| &descriptor.bytes[..])
    }
}

pub(crate) fn put_description(out: &mut Vec<u8>, description: &ExportDescription) {
    out.reserve(REGION_BYTES * description.regions.len());
    out.push(u8::from(description.filling));
    put(out, &[description.regions.len() as u64]);
    for region in &description.regions {
        put(out, &[region.len]);
        out.push(region.kind.map_or(0, MemoryKind::code));
    }
    for descriptor in &description.descriptors {
        put(out, &[descriptor.lane, descriptor.bytes.len() as u64]);
        out.extend_from_slice(&descriptor.bytes);
    }
}

pub(crate) fn decode_description(body: &[u8]) -> Decoded<ExportDescription> {
    let mut fields = Fields(body);
    let filling = match fields.bytes()? {
        [0] => false,
        [1] => true,
        _ => return Err(Malformed("neither whole nor filling")),
    };
    let regions = regions(&mut fields)?;
    let mut description = ExportDescription { filling, regions, descriptors: Vec::new() };
    while !fields.0.is_empty() {
        let lane = fields.u64()?;
        let known = description.descriptor(lane).is_some();
        if known || description.descriptors.len() == MAX_DESCRIPTORS {
            return Err(Malformed("descriptors of lanes"));
        }
        let len = fields.u64()?;
        let bytes = fields.take(len)?.to_vec();
        description.descriptors.push(LaneDescriptor { lane, bytes });
    }
    Ok(description)
}

fn regions(fields: &mut Fields<'_>) -> Decoded<Vec<RegionDescription>> {
    let count = usize::try_from(fields.u64()?).ok().filter(|count| *count <= MAX_REGIONS);
    let count = count.ok_or(Malformed("number of regions"))?;
    let mut records = Fields(fields.take((count * REGION_BYTES) as u64)?);
    let mut all = 0_u64;
    let mut regions = Vec::with_capacity(count);
    for _ in 0..count {
        let (len, [code]) = (records.u64()?, records.bytes()?);
        // No memory is larger; sums over it are then safe.
        all = all.checked_add(len).filter(|all| i64::try_from(*all).is_ok()).ok_or(BEYOND)?;
        regions.push(RegionDescription { len, kind: MemoryKind::from_code(code) });
    }
    Ok(regions)
}

const BEYOND: Malformed = Malformed("regions beyond memory");

#[cfg(test)]
mod tests;
