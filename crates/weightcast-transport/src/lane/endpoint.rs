//! What a lane is to the engine.

use super::shared::ExportView;
use super::task::{LaneTask, WriteTask};
use super::way::Way;
use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::patience::Patience;
use crate::memory::digest::Digest;
use crate::piece::pieces::Piece;
use crate::wire::description::ExportDescription;

/// A lane to one peer.
pub(crate) trait Endpoint: Send + Sync {
    fn way(&self) -> Way;

    /// Why bytes come this way.
    fn why(&self) -> &'static str;

    /// Whether it carries whatever memory a process can give by an address.
    fn takes_any_memory(&self) -> bool {
        true
    }

    /// Whether pieces are under way while others arrive, so that a worker of its own is worth it.
    fn asks_ahead(&self) -> bool {
        false
    }

    /// # Errors
    /// [`TransportError::Protocol`] if the source's descriptor for this lane is none.
    fn check(&self, _: &ExportDescription) -> Result<(), TransportError> {
        Ok(())
    }

    /// Gets what the lane must have of an export beside its description, which was checked. Where that
    /// fails, the lane does not carry the export.
    ///
    /// # Errors
    /// That the source is gone, or no longer serves the export; whatever ends the patience.
    fn prepare(
        &self,
        _export: ExportId,
        _generation: u64,
        _: &ExportDescription,
        _: &Patience<'_>,
    ) -> Result<(), TransportError> {
        Ok(())
    }

    /// Whether it brings all bytes of an export that it was prepared for.
    fn carries(&self, export: ExportId, description: &ExportDescription) -> bool;

    /// Why it does not carry an export, where users would wonder.
    fn why_not(&self, _: ExportId, _: &ExportDescription) -> Option<String> {
        None
    }

    /// The memory of an export that it was prepared for, if that is mapped here.
    fn view(&self, _: ExportId) -> Option<ExportView> {
        None
    }

    /// # Errors
    /// [`TransportError::SourceGone`] unless the other end lives and is the process of before. A lane
    /// on which every answer proves this has nothing to do here.
    fn verify(&self) -> Result<(), TransportError>;

    /// The same endpoint as writers use it. `None` if the lane only reads.
    fn writer(&self) -> Option<&dyn WriteEndpoint> {
        None
    }

    /// A lane for one worker. `None` if the other end has no place left, and others read.
    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError>;
}

/// A lane to one peer that writes into memory of the peer, by leave of its grants.
pub(crate) trait WriteEndpoint: Send + Sync {
    /// A lane for one worker. `None` if the other end has no place left, and others write.
    fn open_writer<'a>(
        &'a self,
        task: WriteTask<'a>,
    ) -> Result<Option<OpenLane<'a>>, TransportError>;
}

pub(crate) type OpenLane<'a> = Box<dyn Lane<'a> + 'a>;

/// One worker's use of an endpoint during a transfer. After an error it is dropped, and all that was
/// asked for over it is worth nothing.
pub(crate) trait Lane<'a> {
    /// Makes pieces ready that a source has by now which is being filled; waits for one if nothing is under way. False
    /// if only those should be asked for.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    fn look(&mut self, _idle: bool) -> Result<bool, TransportError> {
        Ok(true)
    }

    /// Whether another piece should be asked for before one is waited for.
    fn has_room(&mut self) -> bool;

    /// Asks for a piece of checked copies: to be read into the targets, or written from the sources.
    fn submit(&mut self, piece: &'a Piece);

    /// Waits for the next piece that was asked for: it is there, and was served or granted. `None` if
    /// none is under way.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], [`TransportError::Refused`], [`TransportError::SourceGone`], whatever ends the patience or,
    /// which is no fault of the source, [`TransportError::UnwritableTarget`].
    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError>;

    /// Adds the digests of the piece that came last to those of their slots. False if the lane made none on
    /// the way: whoever wants them looks at the bytes.
    fn digested(&mut self, _: &mut [Digest]) -> bool {
        false
    }

    /// Nothing is left to read: what can be used again goes back.
    fn close(self: Box<Self>) {}
}
