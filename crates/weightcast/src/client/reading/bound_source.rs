//! One shard of the source of a read, reached.

use std::sync::Arc;

use tracing::{Span, info_span};
use weightcast_plan::Copy;
use weightcast_protocol::message::Assignment;
use weightcast_transport::{ExportId, Peer, SourceJob, StridedCopy, Way};

/// One shard of the source, reached, and the export to read.
pub(super) struct BoundSource {
    /// Its place in the assignment.
    pub(super) shard: usize,
    pub(super) peer: Arc<Peer>,
    pub(super) export: ExportId,
    pub(super) generation: u64,
}

impl BoundSource {
    /// The span in which so many bytes are read from this source.
    pub(super) fn span(&self, assignment: &Assignment, bytes: u64) -> Span {
        let (stripe, shard) = assignment.at(self.shard as u32);
        info_span!(
            "source",
            replica = assignment.sources()[stripe],
            shard,
            address = assignment.shards[self.shard].data_address,
            way = format!("{:?}", self.way()).to_lowercase(),
            bytes,
        )
    }

    /// How its bytes came.
    pub(super) fn way(&self) -> Way {
        self.peer.way_to(self.export, self.generation)
    }

    pub(super) fn job(&self, copies: Vec<StridedCopy>) -> SourceJob<'_> {
        SourceJob { peer: &self.peer, export: self.export, generation: self.generation, copies }
    }
}

/// Bytes that a job moves.
pub(super) fn bytes(job: &SourceJob<'_>) -> u64 {
    job.copies.iter().map(StridedCopy::bytes).sum()
}

/// A copy of the plan as the transport makes it.
pub(in crate::client) fn strided(c: &Copy) -> StridedCopy {
    StridedCopy {
        source_region: c.source_buffer,
        source_offset: c.source_offset,
        source_pitch: c.source_pitch,
        target_region: c.target_buffer,
        target_offset: c.target_offset,
        target_pitch: c.target_pitch,
        row_bytes: c.row_bytes,
        rows: c.rows,
        slot: c.cell,
        position: c.position,
        position_pitch: c.position_pitch,
    }
}
