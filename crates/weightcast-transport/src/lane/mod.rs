//! Lanes: ways of moving bytes, all of one shape, so that the engine knows none of them by name.
//!
//! An [`Endpoint`] is what a peer is reached by, shared by all transfers; a [`Lane`] is what one
//! worker moves pieces over during one of them. A new way is a folder here and a line in
//! [`Peer`](crate::Peer), which holds its endpoints in order of preference.

use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::patience::Patience;
use crate::lane::way::Way;
use crate::piece::pieces::Piece;
use crate::wire::Description;

pub(crate) mod direct;
mod reference;
mod task;
mod tcp;
pub(crate) mod way;

pub(crate) use reference::InProcess;
pub(crate) use task::LaneTask;

/// What a way of moving bytes can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// It brings regions whose bytes are made when they are read.
    pub(crate) computed: bool,
    /// Pieces are under way while others arrive, so it is worth a worker of its own.
    pub(crate) ahead: bool,
}

/// The way to one peer.
pub(crate) trait Endpoint: Send + Sync {
    fn way(&self) -> Way;

    fn abilities(&self) -> Abilities;

    /// The process whose memory it reads, if it does, for measurements of the kernel alone.
    fn pid(&self) -> Option<i32> {
        None
    }

    /// Where an export lies.
    fn describe(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<Description, TransportError>;

    /// # Errors
    /// [`TransportError::SourceGone`] unless the other end lives and is the process of before. A way
    /// on which every answer proves this has nothing to do here.
    fn verify(&self) -> Result<(), TransportError>;

    /// A lane for one worker. `None` if the other end has no place left, and others read.
    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError>;
}

pub(crate) type OpenLane<'a> = Box<dyn Lane<'a> + 'a>;

/// One worker's use of an endpoint during a transfer. After an error it is dropped, and all that was
/// asked for over it is worth nothing.
pub(crate) trait Lane<'a> {
    /// Whether another piece should be asked for before one is waited for.
    fn has_room(&mut self) -> bool;

    /// Asks for a piece of checked copies: into the targets.
    fn submit(&mut self, piece: &'a Piece);

    /// Waits for the next piece that was asked for: it is there, and was served. `None` if none is
    /// under way.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], [`TransportError::SourceGone`], whatever ends the patience or,
    /// which is no fault of the source, [`TransportError::UnwritableTarget`].
    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError>;

    /// Nothing is left to read: what can be used again goes back.
    fn close(self: Box<Self>) {}
}
