//! What a worker brings to a lane.

use crate::exports::ExportId;
use crate::holds::Holds;
use crate::patience::Patience;
use crate::peer::Peer;
use crate::pieces::Pieces;
use crate::region::Region;
use crate::wire::Description;
use std::sync::atomic::AtomicUsize;

/// What a lane has to do: pieces of one job.
#[derive(Clone, Copy)]
pub(crate) struct LaneTask<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) export: ExportId,
    pub(crate) generation: u64,
    pub(crate) description: &'a Description,
    pub(crate) pieces: &'a Pieces,
    pub(crate) targets: &'a [Region],
    /// Lanes that were opened for the job: they read until nothing is left, or all fails.
    pub(crate) lanes: &'a AtomicUsize,
    pub(crate) patience: Patience<'a>,
    pub(crate) holds: &'a Holds,
}
