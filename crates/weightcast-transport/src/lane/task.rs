//! What a worker brings to a lane.

use crate::base::holds::Holds;
use crate::base::id::ExportId;
use crate::base::patience::Patience;
use crate::memory::region::Region;
use crate::piece::pieces::Pieces;
use crate::wire::description::ExportDescription;
use crate::wire::pool::Pool;
use std::sync::atomic::AtomicUsize;

/// What a lane has to do: pieces of one job.
#[derive(Clone, Copy)]
pub(crate) struct LaneTask<'a> {
    /// The source's data port, for questions.
    pub(crate) port: &'a Pool,
    pub(crate) export: ExportId,
    pub(crate) generation: u64,
    pub(crate) description: &'a ExportDescription,
    pub(crate) pieces: &'a Pieces,
    pub(crate) targets: &'a [Region],
    /// Lanes that were opened for the job: they read until nothing is left, or all fails.
    pub(crate) lanes: &'a AtomicUsize,
    pub(crate) patience: Patience<'a>,
    pub(crate) holds: &'a Holds,
}
