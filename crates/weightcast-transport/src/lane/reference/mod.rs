//! The reference lane: memmove inside one process, one byte range after the other.
//!
//! What the other lanes are held against: no threads, no system calls, nothing to be clever about.

use super::endpoint::{Endpoint, Lane, OpenLane, WriteEndpoint};
use super::kind::{LaneKind, Meeting};
use super::task::LaneTask;
use crate::base::error::{RequestRefusal, TransportError};
use crate::base::holds::HoldPoint;
use crate::base::id::ExportId;
use crate::export::served::Export;
use crate::export::table::ExportTable;
use crate::lane::way::Way;
use crate::piece::pieces::{Piece, RunOffsets};
use crate::wire::description::ExportDescription;
use std::sync::Arc;

mod write;

/// The exports of this process.
struct InProcess(Arc<ExportTable>);

impl InProcess {
    fn find(&self, export: ExportId, generation: u64) -> Result<Arc<Export>, TransportError> {
        let export = self.0.get(export)?;
        let current = export.generation() == generation && export.is_served();
        current.then_some(export).ok_or_else(|| RequestRefusal::StaleGeneration.into())
    }
}

/// The lane within this very process, which only tests demand.
pub(super) struct ReferenceKind;

impl LaneKind for ReferenceKind {
    fn way(&self) -> Way {
        Way::Reference
    }

    fn number(&self) -> u64 {
        3
    }

    fn reach(&self, meeting: &Meeting<'_>) -> Result<Box<dyn Endpoint>, TransportError> {
        let (addr, what) = (meeting.port.addr(), "its exports were not given".to_owned());
        let exports = meeting.demand.exports.clone();
        Ok(Box::new(InProcess(exports.ok_or(TransportError::NoDirect { addr, what })?)))
    }
}

impl Endpoint for InProcess {
    fn way(&self) -> Way {
        Way::Reference
    }

    fn why(&self) -> &'static str {
        "this very process"
    }

    fn carries(&self, _: ExportId, _: &ExportDescription) -> bool {
        true
    }

    /// It lives as long as its reader.
    fn verify(&self) -> Result<(), TransportError> {
        Ok(())
    }

    fn writer(&self) -> Option<&dyn WriteEndpoint> {
        Some(self)
    }

    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        let export = self.find(task.export, task.generation);
        let export = export.map_err(|error| error.while_reading(task.export))?;
        Ok(Some(Box::new(ReferenceLane { export, task, asked: None })))
    }
}

/// Copies pieces of one job.
struct ReferenceLane<'a> {
    export: Arc<Export>,
    task: LaneTask<'a>,
    /// The piece that was asked for.
    asked: Option<&'a Piece>,
}

impl<'a> Lane<'a> for ReferenceLane<'a> {
    fn has_room(&mut self) -> bool {
        self.asked.is_none()
    }

    fn submit(&mut self, piece: &'a Piece) {
        self.asked = Some(piece);
    }

    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        let Some(piece) = self.asked.take() else { return Ok(None) };
        let LaneTask { holds, patience, .. } = self.task;
        patience.check("reading")?;
        holds.at(HoldPoint::Asking);
        let fenced = TransportError::Fenced { export: self.task.export };
        let ranges = self.rows(piece).into_iter().map(|(at, row, len)| (at.0, row.source, len));
        let wanted = || {
            holds.at(HoldPoint::Waiting);
            patience.check("waiting").is_ok()
        };
        if !self.export.wait_final(ranges, wanted) {
            patience.check("waiting for the source to be filled")?;
            return Err(fenced);
        }
        holds.at(HoldPoint::Taking);
        self.rows(piece).into_iter().for_each(|(at, row, len)| self.copy(at, row, len as usize));
        holds.at(HoldPoint::Judging);
        if self.export.is_served() { Ok(Some(piece)) } else { Err(fenced) }
    }
}

impl ReferenceLane<'_> {
    /// The regions, place and length of every row of a piece.
    fn rows(&self, piece: &Piece) -> Vec<((u32, u32), RunOffsets, u64)> {
        let mut rows = Vec::new();
        self.task.pieces.rows(piece, |copy, row, len| {
            rows.push(((copy.source_region, copy.target_region), row, len as u64));
        });
        rows
    }

    fn copy(&self, (source, target): (u32, u32), row: RunOffsets, len: usize) {
        let source = &self.export.regions()[source as usize];
        let target = &self.task.targets[target as usize];
        let (from, to) = (row.source as usize, row.target as usize);
        target.copy_plainly(to, source, from, len).expect("checked");
    }
}
