//! One worker's copies out of shared memory.

use super::mapped::Mapped;
use crate::base::error::TransportError;
use crate::base::holds::HoldPoint;
use crate::lane::endpoint::Lane;
use crate::lane::ready::ReadyPieces;
use crate::lane::rows::{ArrivingRows, PieceRow};
use crate::lane::task::LaneTask;
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::piece::pieces::Piece;
use crate::wire::local_source::LocalSource;
use std::sync::Arc;

/// Pieces between two looks whether the source lives: less than a millisecond's worth.
const LOOK_EVERY: usize = 16;

/// Copies pieces of one job.
pub(super) struct SharedLane<'a> {
    process: &'a LocalSource,
    mapped: Arc<Mapped>,
    /// Pieces until the next look.
    unlooked: usize,
    task: LaneTask<'a>,
    /// The piece that was asked for.
    asked: Option<&'a Piece>,
    ready: ReadyPieces,
    arriving: ArrivingRows,
}

impl<'a> SharedLane<'a> {
    pub(super) fn new(process: &'a LocalSource, mapped: Arc<Mapped>, task: LaneTask<'a>) -> Self {
        let ready = ReadyPieces::new(&task);
        Self {
            process,
            mapped,
            unlooked: 0,
            task,
            asked: None,
            ready,
            arriving: ArrivingRows::default(),
        }
    }

    /// # Errors
    /// [`TransportError::SourceGone`], now and then, if its process has died, which shows in nothing else.
    fn look_alive(&mut self) -> Result<(), TransportError> {
        if self.unlooked == 0 {
            self.process.verify()?;
        }
        self.unlooked = (self.unlooked + 1) % LOOK_EVERY;
        Ok(())
    }

    /// Copies a piece of checked copies into the targets, and digests it on the way if that is wanted. Each row is copied
    /// once the next one is known, so that its memory is asked for in time.
    fn copy(&mut self, piece: &Piece) {
        self.arriving.begin();
        let pieces = self.task.pieces;
        let mut last = None;
        pieces.rows(piece, |copy, run, len| {
            let row = PieceRow { copy: *copy, run, len };
            if let Some(last) = last.replace(row) {
                self.copy_row(last, self.place(&row));
            }
        });
        if let Some(last) = last {
            // What follows in memory is the likeliest.
            self.copy_row(last, self.place(&last).wrapping_add(last.len));
        }
        Region::order_copies();
    }

    /// Where a row lies at the source.
    fn place(&self, row: &PieceRow) -> *const u8 {
        self.mapped.regions[row.copy.source_region as usize].place(row.run.source as usize)
    }

    fn copy_row(&mut self, row: PieceRow, next: *const u8) {
        let source = &self.mapped.regions[row.copy.source_region as usize];
        self.arriving.copy(&self.task, &row, source, row.run.source as usize, next);
    }
}

impl<'a> Lane<'a> for SharedLane<'a> {
    fn look(&mut self, idle: bool) -> Result<bool, TransportError> {
        self.ready.look(&self.task, idle)
    }

    fn has_room(&mut self) -> bool {
        self.asked.is_none()
    }

    fn submit(&mut self, piece: &'a Piece) {
        self.asked = Some(piece);
    }

    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        let Some(piece) = self.asked.take() else { return Ok(None) };
        let LaneTask { export, patience, holds, .. } = self.task;
        patience.check("reading")?;
        self.look_alive()?;
        holds.at(HoldPoint::Asking);
        self.ready.wait(&self.task, piece)?;
        holds.at(HoldPoint::Taking);
        self.copy(piece);
        holds.at(HoldPoint::Judging);
        let served = self.mapped.word.is(export);
        served.then_some(Some(piece)).ok_or(TransportError::Fenced { export })
    }

    fn digested(&mut self, digests: &mut [Digest]) -> bool {
        self.arriving.add_to(digests);
        true
    }
}
