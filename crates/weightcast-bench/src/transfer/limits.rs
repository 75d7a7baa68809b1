//! Limits to compare a transfer's time with, measured on as many bytes.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use weightcast::transport::bench::{self, Slices, SocketShape};
use weightcast::transport::{Auth, ExportId, Peer, Region, Way};

use super::orders::BareExport;
use super::sockets;
use super::source::{BARE_GENERATION, SOON, contiguous};
use crate::weights::memory::{KnownMemory, warm, warm_shared};

/// One way to move bytes without weightcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Bare `process_vm_readv` from the source process with this many threads.
    Readv { threads: usize },
    /// The same, with the column slices of the case as separate ranges.
    ReadvSlices { threads: usize, slices: Slices },
    /// Raw loopback sockets, in the shape that was found to be the fastest.
    Sockets(SocketShape),
    /// The same, with a digest at both ends.
    DigestedSockets(SocketShape),
    /// Non-temporal copies within this process.
    Memcpy { threads: usize },
    /// The loop of reads of shared memory, which digests as it copies, over shared memory of this process.
    Fused { threads: usize },
    /// The same, with the column slices of the case row by row.
    FusedSlices { threads: usize, slices: Slices },
    /// Non-temporal copies out of shared memory of this process.
    SharedMemcpy { threads: usize },
    /// The C library's copies out of shared memory of this process.
    SharedLibc { threads: usize },
}

impl Limit {
    /// The limit's name in reports.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Readv { threads } => format!("process_vm_readv x{threads}"),
            Self::ReadvSlices { threads, .. } => format!("process_vm_readv x{threads} sliced"),
            Self::Sockets(shape) => best_pair(shape),
            Self::DigestedSockets(shape) => format!("{} with digests", best_pair(shape)),
            Self::Memcpy { threads } => format!("memcpy x{threads}"),
            Self::Fused { threads } => format!("copy and digest x{threads}"),
            Self::FusedSlices { threads, .. } => format!("copy and digest x{threads} sliced"),
            Self::SharedMemcpy { threads } => format!("memcpy of shared pages x{threads}"),
            Self::SharedLibc { threads } => format!("libc memcpy of shared pages x{threads}"),
        }
    }
}

fn best_pair(shape: SocketShape) -> String {
    format!("best socket pair ({})", sockets::name(shape))
}

/// What the limits need: contiguous memory in this process and in the source process.
pub(crate) struct LimitProbe {
    peer: Result<Peer, String>,
    export: ExportId,
    source: Region,
    target: Region,
}

impl LimitProbe {
    /// Prepares the memory. The target's own memory is used where it is contiguous.
    pub(crate) fn prepare(bare: &BareExport, targets: &[KnownMemory]) -> Result<Self> {
        let bytes = targets.iter().map(KnownMemory::bytes).sum();
        let target = match targets {
            [one] => contiguous(&one.regions, bytes)?,
            _ => warm(bytes)?,
        };
        let deadline = Instant::now() + SOON;
        let peer = Peer::connect_by(Way::Direct, bare.address, &Auth::default(), deadline);
        let peer = peer.map_err(|error| error.to_string());
        Ok(Self { peer, export: ExportId(bare.export), source: warm(bytes)?, target })
    }

    /// From here on the source is shared memory, for the limits of that.
    pub(crate) fn share(&mut self) -> Result<()> {
        let bytes = self.source.len() as u64;
        // Given up before as much is taken again.
        self.source = warm(0)?;
        self.source = warm_shared(bytes)?;
        Ok(())
    }

    /// Why this process can't read directly from the sources, if it can't.
    pub(crate) fn no_direct(&self) -> Option<&str> {
        self.peer.as_ref().err().map(String::as_str)
    }

    /// Moves the bytes once. Returns the seconds that this took.
    pub(crate) fn take(&self, limit: Limit) -> Result<f64> {
        match limit {
            Limit::Readv { threads } => self.read(threads, Slices::default()),
            Limit::ReadvSlices { threads, slices } => self.read(threads, slices),
            Limit::Sockets(shape) => {
                bench::tcp(&self.source, &self.target, shape).context("raw socket pair")
            }
            Limit::DigestedSockets(shape) => self.digested(shape),
            Limit::Memcpy { threads } | Limit::SharedMemcpy { threads } => {
                Ok(bench::memcpy(&self.source, &self.target, threads))
            }
            Limit::Fused { threads } => Ok(self.fused(threads, Slices::default())),
            Limit::FusedSlices { threads, slices } => Ok(self.fused(threads, slices)),
            Limit::SharedLibc { threads } => {
                Ok(bench::libc_memcpy(&self.source, &self.target, threads))
            }
        }
    }

    fn digested(&self, shape: SocketShape) -> Result<f64> {
        let moved = bench::tcp_digested(&self.source, &self.target, shape);
        let (seconds, [sent, received]) = moved.context("raw socket pair with digests")?;
        ensure!(sent == received, "raw sockets brought other bytes than were sent");
        Ok(seconds)
    }

    fn fused(&self, threads: usize, slices: Slices) -> f64 {
        bench::fused(&self.source, &self.target, threads, slices).0
    }

    fn read(&self, threads: usize, slices: Slices) -> Result<f64> {
        let peer = self.peer.as_ref().map_err(|e| anyhow::anyhow!("{e}"))?;
        let (export, target) = (self.export, &self.target);
        Ok(bench::process_vm_readv(peer, export, BARE_GENERATION, target, threads, slices)?)
    }
}
