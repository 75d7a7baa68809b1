//! Writes of a peer into memory of this process, by leave of its grants.

use crate::base::error::RequestRefusal;
use crate::export::grant::GrantedWrite;
use crate::export::table::ExportTable;
use crate::memory::region::Region;
use crate::piece::extent::Extent;
use crate::port::bounds;
use crate::wire::mac::Nonces;
use crate::wire::write_frame::WriteFrame;
use crate::wire::{Header, Malformed, WireCodec};
use std::net::IpAddr;
use std::time::Instant;

/// What one connection knows of the writer at its other end.
pub(crate) struct WriteSide {
    nonces: Nonces,
    host: Option<IpAddr>,
    /// Writes that came, granted or not.
    count: u64,
}

impl WriteSide {
    pub(crate) fn new(nonces: Nonces, host: Option<IpAddr>) -> Self {
        Self { nonces, host, count: 0 }
    }

    /// Copies the bytes of a write where it says, all of them or none.
    ///
    /// # Errors
    /// If the body is none of a write; within, why the write was refused.
    pub(crate) fn write(
        &mut self,
        exports: &ExportTable,
        header: Header,
        body: &[u8],
    ) -> Result<Result<(), RequestRefusal>, Malformed> {
        let frame = WriteFrame::decode(body)?;
        let (sequence, host) = (self.count, self.host);
        self.count += 1;
        let write = GrantedWrite { frame: &frame, nonces: &self.nonces, sequence, host };
        Ok(WireCodec::of(header).and_then(|_| carry_out(exports, &write)))
    }
}

fn carry_out(exports: &ExportTable, write: &GrantedWrite<'_>) -> Result<(), RequestRefusal> {
    let WriteFrame { claim, bytes, .. } = write.frame;
    let grant = exports.grant(claim.grant)?;
    let regions = grant.admit(write, Instant::now())?;
    bounds::of_write(&regions, &claim.extents, bytes)?;
    let mut left = *bytes;
    for extent in &claim.extents {
        left = fill(&regions[extent.region as usize], extent, left)?;
    }
    Ok(())
}

/// Fills the runs of a checked extent, and returns the bytes that are left.
fn fill<'a>(
    region: &Region,
    extent: &Extent,
    mut bytes: &'a [u8],
) -> Result<&'a [u8], RequestRefusal> {
    for offset in extent.runs() {
        let (run, rest) = bytes.split_at(extent.row_bytes as usize);
        region.write_at(offset as usize, run).map_err(|_| RequestRefusal::OutOfRange)?;
        bytes = rest;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
