//! What a worker brings to a lane: that it is to read pieces, or to write them.

use crate::base::holds::Holds;
use crate::base::id::ExportId;
use crate::base::patience::Patience;
use crate::export::grant::WriteGrant;
use crate::memory::region::Region;
use crate::piece::pieces::Pieces;
use crate::wire::description::ExportDescription;
use crate::wire::mac::GrantKey;
use crate::wire::pool::Pool;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pieces of one job that a lane is to read.
#[derive(Clone, Copy)]
pub(crate) struct LaneTask<'a> {
    /// The source's data port, for questions.
    pub(crate) port: &'a Pool,
    pub(crate) export: ExportId,
    pub(crate) generation: u64,
    pub(crate) description: &'a ExportDescription,
    pub(crate) pieces: &'a Pieces,
    pub(crate) targets: &'a [Region],
    /// Whether digests are wanted.
    pub(crate) digests: bool,
    /// Lanes that were opened for the job: they read until nothing is left, or all fails.
    pub(crate) lanes: &'a AtomicUsize,
    pub(crate) patience: Patience<'a>,
    pub(crate) holds: &'a Holds,
}

/// Pieces of one job that a lane is to write.
#[derive(Clone, Copy)]
pub(crate) struct WriteTask<'a> {
    pub(crate) grant: &'a WriteGrant,
    /// Made from the grant's secret.
    pub(crate) key: &'a GrantKey,
    pub(crate) pieces: &'a Pieces,
    pub(crate) sources: &'a [Region],
    /// As of a [`LaneTask`].
    pub(crate) lanes: &'a AtomicUsize,
    pub(crate) patience: Patience<'a>,
    pub(crate) holds: &'a Holds,
}

/// Whether nobody else moves what there is to move.
pub(crate) fn is_alone(lanes: &AtomicUsize, pieces: &Pieces) -> bool {
    lanes.load(Ordering::Acquire) == 0 && !pieces.is_drawn()
}
