//! Reads one piece straight from another process's memory.
//!
//! The fence word is read before and after the piece's bytes, in the same system call: the kernel
//! completes remote ranges in the order given. If it holds the export's id both times, the bytes
//! between were served.

use crate::connect::Direct;
use crate::copy::SourceJob;
use crate::error::TransportError;
use crate::pieces::{Piece, Pieces};
use crate::region::Region;
use crate::sys::{self, Ranges};
use crate::wire::Description;
use std::ptr::addr_of_mut;

/// Reads pieces of one job; its buffers are reused from piece to piece.
pub(crate) struct DirectReader<'a> {
    pub(crate) job: &'a SourceJob<'a>,
    pub(crate) direct: &'a Direct,
    pub(crate) description: &'a Description,
    pub(crate) targets: &'a [Region],
    local: Ranges,
    remote: Ranges,
}

impl<'a> DirectReader<'a> {
    pub(crate) fn new(
        job: &'a SourceJob<'a>,
        direct: &'a Direct,
        description: &'a Description,
        targets: &'a [Region],
    ) -> Self {
        let (local, remote) = (Ranges::default(), Ranges::default());
        Self { job, direct, description, targets, local, remote }
    }

    /// Reads a piece of checked copies into the targets.
    ///
    /// # Errors
    /// [`TransportError::Fenced`] or [`TransportError::SourceGone`]; the piece's bytes are then
    /// worth nothing.
    pub(crate) fn read(&mut self, pieces: &Pieces, piece: &Piece) -> Result<(), TransportError> {
        let mut words = [0_u64; 2];
        let [before, after] = [0, 1].map(|i| addr_of_mut!(words[i]).expose_provenance() as u64);
        self.local.clear();
        self.remote.clear();
        self.local.push_apart(before, 8);
        self.remote.push_apart(self.description.word, 8);
        pieces.rows(piece, |copy, row, len| {
            let target = self.targets[copy.target_region as usize].address();
            let (source, _) = self.description.regions[copy.source_region as usize];
            self.local.push(target + row.target, len);
            self.remote.push(source + row.source, len);
        });
        self.local.push_apart(after, 8);
        self.remote.push_apart(self.description.word, 8);
        let wanted = self.local.bytes();
        // SAFETY: the words are ours; the other local ranges lie in writable target regions
        // (checked before the transfer), which their owners keep mapped.
        let read = unsafe { sys::read_process(self.direct.pid(), &self.local, &self.remote) };
        let id = self.job.export.0;
        match read {
            Ok(count) if count == wanted && words == [id; 2] => Ok(()),
            outcome => Err(self.diagnose(outcome)),
        }
    }

    /// Why a piece did not come whole and served.
    fn diagnose(&self, outcome: std::io::Result<usize>) -> TransportError {
        let fenced = TransportError::Fenced { export: self.job.export };
        if let Err(gone) = self.direct.verify() {
            return gone;
        }
        match outcome {
            // The process lives but no longer lends the memory, whole or in part: withdrawn.
            Ok(_) => fenced,
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => fenced,
            Err(error) => {
                TransportError::System { call: "process_vm_readv", what: error.to_string() }
            }
        }
    }
}
