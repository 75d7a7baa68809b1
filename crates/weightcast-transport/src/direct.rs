//! Reads one piece straight from another process's memory.
//!
//! The fence word is read behind the piece's bytes, in the same system call: the kernel completes
//! remote ranges in the order given. The word moves once, from the export's id to zero, so if it
//! still holds the id, it held it before and while the bytes were read.
//!
//! Rows that lie close together are read as one range of the source, the gaps between them into a
//! bin: pages are looked up once, not once a row. Gaps lie between two rows of one region, so they
//! are served memory too.

use crate::connect::Direct;
use crate::copy::SourceJob;
use crate::error::TransportError;
use crate::limits::MAX_GAP_BYTES;
use crate::patience::Patience;
use crate::pieces::{Piece, Pieces};
use crate::region::Region;
use crate::sys::{self, Ranges};
use crate::units::Units;
use crate::wire::Description;

/// Reads pieces of one job; its buffers are reused from piece to piece.
pub(crate) struct DirectReader<'a> {
    pub(crate) job: &'a SourceJob<'a>,
    pub(crate) direct: &'a Direct,
    pub(crate) description: &'a Description,
    pub(crate) targets: &'a [Region],
    local: Ranges,
    remote: Ranges,
    /// Where gaps go.
    bin: Vec<u8>,
    /// Which units of a source that is being filled are known to be final.
    last_seen: Option<(Units, Vec<u8>)>,
}

impl<'a> DirectReader<'a> {
    pub(crate) fn new(
        job: &'a SourceJob<'a>,
        direct: &'a Direct,
        description: &'a Description,
        targets: &'a [Region],
    ) -> Self {
        let (local, remote) = (Ranges::default(), Ranges::default());
        let bin = vec![0; MAX_GAP_BYTES as usize];
        let lengths = description.regions.iter().map(|(_, length)| *length);
        let last_seen = description.filling.then(|| (Units::new(lengths), Vec::new()));
        Self { job, direct, description, targets, local, remote, bin, last_seen }
    }

    /// Waits until a piece is final at a source that is still being filled.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], or whatever ends the patience.
    pub(crate) fn wait(
        &mut self,
        pieces: &Pieces,
        piece: &Piece,
        patience: &Patience<'_>,
    ) -> Result<(), TransportError> {
        let Some((units, bits)) = &mut self.last_seen else { return Ok(()) };
        let mut is_final = true;
        pieces.rows(piece, |copy, row, len| {
            let mut touched = units.touched(copy.source_region, row.source, len as u64);
            is_final &= touched.all(|u| bits.get(u / 8).is_some_and(|b| b >> (u % 8) & 1 == 1));
        });
        if is_final {
            return Ok(());
        }
        let extents = pieces.spans(piece).iter().map(|span| span.extent(pieces.copies()));
        let SourceJob { peer, export, generation, .. } = self.job;
        let answer = peer.wait_final(*export, *generation, extents, patience);
        *bits = answer.map_err(|error| error.while_reading(*export))?;
        Ok(())
    }

    /// Reads a piece of checked copies into the targets.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], [`TransportError::SourceGone`] or, which is no fault of the
    /// source, [`TransportError::UnwritableTarget`]; the piece's bytes are then worth nothing.
    pub(crate) fn read(&mut self, pieces: &Pieces, piece: &Piece) -> Result<(), TransportError> {
        let mut word = 0_u64;
        self.local.clear();
        self.remote.clear();
        self.add_rows(pieces, piece);
        self.local.push_apart((&raw mut word).expose_provenance() as u64, 8);
        self.remote.push_apart(self.description.word, 8);
        let wanted = self.local.bytes();
        // SAFETY: the word and the bin are ours; the other local ranges lie in writable target regions
        // (checked before the transfer), which their owners keep mapped.
        let read = unsafe { sys::read_process(self.direct.pid(), &self.local, &self.remote) };
        match read {
            Ok(count) if count == wanted && word == self.job.export.0 => Ok(()),
            outcome => Err(self.diagnose(outcome)),
        }
    }

    /// The rows of a piece, and the small gaps between them.
    fn add_rows(&mut self, pieces: &Pieces, piece: &Piece) {
        let bin = self.bin.as_mut_ptr().expose_provenance() as u64;
        let mut last = (u32::MAX, 0);
        pieces.rows(piece, |copy, row, len| {
            let target = self.targets[copy.target_region as usize].address();
            let (source, _) = self.description.regions[copy.source_region as usize];
            let (region, end) = last;
            if region == copy.source_region
                && let Some(gap @ 1..=MAX_GAP_BYTES) = row.source.checked_sub(end)
            {
                self.local.push(bin, gap as usize);
                self.remote.push(source + end, gap as usize);
            }
            self.local.push(target + row.target, len);
            self.remote.push(source + row.source, len);
            last = (copy.source_region, row.source + len as u64);
        });
    }

    /// Why a piece did not come whole and served.
    fn diagnose(&mut self, outcome: std::io::Result<usize>) -> TransportError {
        let arrived = match &outcome {
            Ok(count) => Some(*count),
            Err(error) => (error.raw_os_error() == Some(libc::EFAULT)).then_some(0),
        };
        if let Some(arrived) = arrived {
            self.local.advance(arrived);
            // SAFETY: the piece's target ranges are ours to write while the transfer runs.
            if let Some(address) = unsafe { self.local.unwritable() } {
                return TransportError::UnwritableTarget { address };
            }
        }
        let fenced = TransportError::Fenced { export: self.job.export };
        if let Err(gone) = self.direct.verify() {
            return gone;
        }
        match outcome {
            // Its memory goes before its pidfd tells; and one that runs another program may forbid it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM)) => {
                self.direct.gone(error)
            }
            Err(error) if arrived.is_none() => {
                TransportError::System { call: "process_vm_readv", what: error.to_string() }
            }
            // The process lives but no longer lends the memory, whole or in part: withdrawn.
            _ => fenced,
        }
    }
}
