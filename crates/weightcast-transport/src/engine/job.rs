//! The unit of work of a transfer: copies from one export of one peer, or into the grant of one.

use super::peer::Peer;
use crate::base::id::ExportId;
use crate::export::grant::WriteGrant;
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

/// The copies to make into memory of one peer, by leave of one grant. Their source regions are those of
/// this process, their target regions those of the grant.
#[derive(Clone, Debug)]
pub struct TargetJob<'a> {
    /// The target.
    pub peer: &'a Peer,
    /// The leave of the target's owner.
    pub grant: &'a WriteGrant,
    /// What goes where.
    pub copies: Vec<StridedCopy>,
}
