//! The unit of work of a transfer: copies from one export of one peer.

use super::peer::Peer;
use crate::base::id::ExportId;
use crate::piece::copy::StridedCopy;

/// The copies to make from one export of one peer.
#[derive(Clone, Debug)]
pub struct SourceJob<'a> {
    /// The source.
    pub peer: &'a Peer,
    /// What to read.
    pub export: ExportId,
    /// The generation that the reader was told of.
    pub generation: u64,
    /// What goes where.
    pub copies: Vec<StridedCopy>,
}
