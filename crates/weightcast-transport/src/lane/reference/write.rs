//! Writes pieces within this process, one byte range after the other, by leave of a grant as any other.

use super::InProcess;
use crate::base::error::{RequestRefusal, TransportError};
use crate::base::holds::HoldPoint;
use crate::export::grant::GrantedWrite;
use crate::export::table::ExportTable;
use crate::lane::endpoint::{Lane, OpenLane, WriteEndpoint};
use crate::lane::task::WriteTask;
use crate::piece::pieces::Piece;
use crate::wire::HEADER_BYTES;
use crate::wire::mac::Nonces;
use crate::wire::write_frame::{WriteClaim, WriteFrame};
use std::time::Instant;

impl WriteEndpoint for InProcess {
    fn open_writer<'a>(
        &'a self,
        task: WriteTask<'a>,
    ) -> Result<Option<OpenLane<'a>>, TransportError> {
        Ok(Some(Box::new(ReferenceWriteLane { exports: &self.0, task, asked: None })))
    }
}

/// Writes pieces of one job.
struct ReferenceWriteLane<'a> {
    exports: &'a ExportTable,
    task: WriteTask<'a>,
    /// The piece that was asked for.
    asked: Option<&'a Piece>,
}

impl<'a> Lane<'a> for ReferenceWriteLane<'a> {
    fn has_room(&mut self) -> bool {
        self.asked.is_none()
    }

    fn submit(&mut self, piece: &'a Piece) {
        self.asked = Some(piece);
    }

    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        let Some(piece) = self.asked.take() else { return Ok(None) };
        self.task.patience.check("writing")?;
        self.task.holds.at(HoldPoint::Asking);
        self.write(piece)?;
        Ok(Some(piece))
    }
}

impl ReferenceWriteLane<'_> {
    fn write(&self, piece: &Piece) -> Result<(), TransportError> {
        let WriteTask { grant, key, pieces, sources, .. } = self.task;
        let claim =
            WriteClaim { grant: grant.id, generation: grant.generation, extents: Vec::new() };
        let mut frame = Vec::new();
        claim.put(&mut frame, |claimed| key.mac(&Nonces::NONE, 0, claimed));
        let frame = WriteFrame::decode(&frame[HEADER_BYTES..]);
        let frame = &frame.map_err(|_| RequestRefusal::NotGranted)?;
        let write = GrantedWrite { frame, nonces: &Nonces::NONE, sequence: 0, host: None };
        let grant = self.exports.grant(claim.grant)?;
        let targets = grant.admit(&write, Instant::now())?;
        let mut written = Ok(());
        pieces.rows(piece, |copy, row, len| {
            let source = &sources[copy.source_region as usize];
            let Some(target) = targets.get(copy.target_region as usize) else {
                written = Err(RequestRefusal::OutOfRange);
                return;
            };
            let (from, to) = (row.source as usize, row.target as usize);
            if target.copy_plainly(to, source, from, len).is_err() {
                written = Err(RequestRefusal::OutOfRange);
            }
        });
        Ok(written?)
    }
}
