//! The limits of this machine, to set a transfer's time beside: bare copies with no fence and no protocol, and
//! with a digest only where the name says so. Each function moves bytes once and returns the seconds it took.

use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::limits::MAX_RANGES;
use crate::base::patience::Patience;
use crate::engine::peer::Peer;
use crate::lane::direct::addresses::Addresses;
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::memory::sys::{self, Ranges};
use crate::wire::local_source::LocalSource;
use std::io;
use std::thread;
use std::time::Instant;

mod sockets;

pub use self::sockets::{SocketShape, tcp, tcp_digested};

/// Bytes that a bare direct read moves with one system call.
const DIRECT_PIECE: usize = 4 << 20;

/// Copies `source` to `target` with non-temporal stores, split over threads.
///
/// # Panics
/// If the target is shorter than the source or read-only.
pub fn memcpy(source: &Region, target: &Region, threads: usize) -> f64 {
    assert!(target.is_writable() && target.len() >= source.len(), "no room for the source");
    let start = Instant::now();
    each_part(source.len(), threads, |from, len| {
        target.copy_from(from, source, from, len).expect("in range");
    });
    start.elapsed().as_secs_f64()
}

/// The same with the loop that reads of shared memory use: it digests as it copies. The end of it is copied in slices.
///
/// # Panics
/// If the target is shorter than the source or read-only.
pub fn fused(source: &Region, target: &Region, threads: usize, slices: Slices) -> (f64, Digest) {
    assert!(target.is_writable() && target.len() >= source.len(), "no room for the source");
    let copy = |from: usize, to: usize, len: usize, next: usize| {
        let next = source.place(next);
        target.copy_digested(to, source, from, len, from as u64, next).expect("in range")
    };
    let (whole, pairs) = slices.of(source.len());
    let start = Instant::now();
    let mut digests = each_part(whole, threads, |from, len| {
        let digest = copy(from, from, len, from + len);
        Region::order_copies();
        digest
    });
    digests.extend(each_part_of(pairs, threads, 1, |first, rows| {
        let from = whole + first * 2 * slices.row;
        let row = |(at, to)| copy(from + at, from + to, slices.row, from + at + 2 * slices.row);
        let digest = slices.rows(rows).map(row).sum::<Digest>();
        Region::order_copies();
        digest
    }));
    (start.elapsed().as_secs_f64(), digests.into_iter().sum())
}

/// The same in one call of `memcpy` of the C library for each thread.
///
/// # Panics
/// If the target is shorter than the source or read-only.
pub fn libc_memcpy(source: &Region, target: &Region, threads: usize) -> f64 {
    let start = Instant::now();
    each_part(source.len(), threads, |from, len| {
        // SAFETY: a measurement's memory is not used by others meanwhile, and its parts do not overlap.
        let (to, from) = unsafe {
            (target.slice_mut(from, len).expect("room"), source.slice(from, len).expect("in range"))
        };
        to.copy_from_slice(from);
    });
    start.elapsed().as_secs_f64()
}

/// Digests a region on one thread, from wherever it lies.
pub fn digest(region: &Region) -> (f64, Digest) {
    let start = Instant::now();
    let digest = region.digest(0, region.len(), 0).expect("the whole region");
    (start.elapsed().as_secs_f64(), digest)
}

/// Column slices, as two tensor-parallel ranks have them: the even rows lie together at the target,
/// and the odd ones behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Bytes at the end of what is read that are taken in slices, rounded down to whole rows.
    pub bytes: usize,
    /// Bytes of a slice's row.
    pub row: usize,
}

impl Slices {
    /// How many of so many bytes are taken whole, and how many pairs of rows follow.
    fn of(self, len: usize) -> (usize, usize) {
        let pair = 2 * self.row.max(1);
        let pairs = self.bytes.min(len) / pair;
        (len - pairs * pair, pairs)
    }

    /// Where each row of so many pairs lies, from the first, at the source and at the target.
    fn rows(self, pairs: usize) -> impl Iterator<Item = (usize, usize)> {
        let row = move |slice, i| ((2 * i + slice) * self.row, (slice * pairs + i) * self.row);
        (0..2).flat_map(move |slice| (0..pairs).map(move |i| row(slice, i)))
    }
}

/// Reads the first region of an export with bare `process_vm_readv` calls, split over threads; the
/// end of it in slices, each row of which is a range of its own.
///
/// # Errors
/// What connecting may return, and [`TransportError::System`] if a call fails or falls short.
pub fn process_vm_readv(
    peer: &Peer,
    export: ExportId,
    generation: u64,
    target: &Region,
    threads: usize,
    slices: Slices,
) -> Result<f64, TransportError> {
    let failed = |what: String| TransportError::System { call: "process_vm_readv", what };
    let pid = peer.process().map(LocalSource::pid).ok_or(failed("not a direct peer".into()))?;
    let description = peer.describe(export, generation, &Patience::default())?;
    let addresses = Addresses::of(&description).ok_or(failed("not a direct peer".into()))?;
    let first = description.regions.first();
    let (source, len) = first.map_or((0, 0), |region| (addresses.region(0), region.len));
    assert!(target.is_writable() && target.len() as u64 >= len, "no room for the source");
    let read = BareRead { pid, source, target: target.address() };
    let (whole, pairs) = slices.of(len as usize);
    let start = Instant::now();
    let mut moved = each_part(whole, threads, |from, len| read.whole(from, len));
    moved.extend(each_part_of(pairs, threads, 1, |first, rows| {
        read.slices(whole + first * 2 * slices.row, rows, slices)
    }));
    let seconds = start.elapsed().as_secs_f64();
    moved.into_iter().collect::<io::Result<()>>().map_err(|e| failed(e.to_string()))?;
    Ok(seconds)
}

/// A source process's memory, and this one's, of the same size.
struct BareRead {
    pid: i32,
    source: u64,
    target: u64,
}

impl BareRead {
    fn whole(&self, from: usize, len: usize) -> io::Result<()> {
        let mut ranges = (Ranges::default(), Ranges::default());
        for at in (from..from + len).step_by(DIRECT_PIECE) {
            let piece = DIRECT_PIECE.min(from + len - at);
            self.add(&mut ranges, at, at, piece);
            self.take(&mut ranges)?;
        }
        Ok(())
    }

    /// So many pairs of rows, that begin `from` bytes into both memories.
    fn slices(&self, from: usize, pairs: usize, slices: Slices) -> io::Result<()> {
        let mut ranges = (Ranges::default(), Ranges::default());
        for (at, to) in slices.rows(pairs) {
            self.add(&mut ranges, from + at, from + to, slices.row);
            if ranges.1.count() == MAX_RANGES {
                self.take(&mut ranges)?;
            }
        }
        self.take(&mut ranges)
    }

    fn add(&self, (local, remote): &mut (Ranges, Ranges), at: usize, to: usize, len: usize) {
        local.push(self.target + to as u64, len);
        remote.push_apart(self.source + at as u64, len);
    }

    /// Reads the ranges, and forgets them.
    fn take(&self, (local, remote): &mut (Ranges, Ranges)) -> io::Result<()> {
        // SAFETY: the local ranges lie in the writable target.
        let read = unsafe { sys::read_process(self.pid, local, remote) }?;
        if read != remote.bytes() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        local.clear();
        remote.clear();
        Ok(())
    }
}

/// Runs `part(from, len)` on `threads` threads, over page-aligned parts of `len` bytes.
fn each_part<T: Send>(
    len: usize,
    threads: usize,
    part: impl Fn(usize, usize) -> T + Sync,
) -> Vec<T> {
    each_part_of(len, threads, 4096, part)
}

/// The same over parts that are a multiple of `unit` long.
fn each_part_of<T: Send>(
    len: usize,
    threads: usize,
    unit: usize,
    part: impl Fn(usize, usize) -> T + Sync,
) -> Vec<T> {
    let size = len.div_ceil(threads.max(1)).next_multiple_of(unit);
    let starts = (0..threads.max(1)).map(|i| (i * size).min(len));
    thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> =
            starts.map(|from| scope.spawn(move || part(from, size.min(len - from)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Auth, DataServer, Way};
    use std::time::Duration;

    fn some(len: usize) -> Region {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
        Region::from_bytes(&bytes).unwrap()
    }

    #[test]
    fn parts_are_of_whole_units_and_leave_nothing_out() {
        for (len, threads, unit) in [(0, 3, 10), (1, 3, 10), (29, 3, 10), (31, 3, 10), (7, 0, 1)] {
            let parts = each_part_of(len, threads, unit, |from, len| (from, len));
            assert_eq!(parts.len(), threads.max(1));
            let mut end = 0;
            for (from, part) in parts {
                assert_eq!(from, end, "{len} over {threads}");
                assert!(from % unit == 0 || part == 0, "{len} over {threads}");
                end += part;
            }
            assert_eq!(end, len);
        }
    }

    #[test]
    fn every_byte_of_a_bare_copy_arrives() {
        for len in [1, 4_097, 3_000_005] {
            let (source, target) = (some(len), Region::allocate(len).unwrap());
            memcpy(&source, &target, 3);
            assert!(target.to_vec() == source.to_vec());
            let target = Region::allocate(len).unwrap();
            let digest = fused(&source, &target, 3, Slices::default()).1;
            assert!(target.to_vec() == source.to_vec());
            assert_eq!(digest, crate::digest_at(0, &source.to_vec()));
            let target = Region::allocate(len).unwrap();
            libc_memcpy(&source, &target, 3);
            assert!(target.to_vec() == source.to_vec());
        }
    }

    /// Against the rows by hand; more of them than one call takes.
    #[test]
    fn bare_slices_are_the_even_rows_and_behind_them_the_odd_ones() {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let soon = Instant::now() + Duration::from_secs(20);
        let peer = Peer::connect_by(Way::Direct, server.addr(), &Auth::default(), soon).unwrap();
        for (bytes, row) in
            [(0, 0), (30, 3), (31, 3), (6 * (MAX_RANGES + 5), 3), (6 * MAX_RANGES, 3)]
        {
            let len = 10_007;
            let source = some(len);
            let export = server.exports().expose(1, vec![source.clone()]);
            let target = Region::allocate(len).unwrap();
            process_vm_readv(&peer, export, 1, &target, 1, Slices { bytes, row }).unwrap();
            let mut expected = source.to_vec();
            if row > 0 {
                let sliced = bytes / (2 * row) * 2 * row;
                let slices = expected.split_off(len - sliced);
                for first in [0, 1] {
                    let rows = slices.chunks(row).skip(first).step_by(2);
                    expected.extend(rows.flatten());
                }
            }
            assert!(target.to_vec() == expected, "{bytes} in rows of {row}");
            let target = Region::allocate(len).unwrap();
            let digest = fused(&source, &target, 1, Slices { bytes, row }).1;
            assert!(target.to_vec() == expected, "{bytes} in rows of {row}, digested");
            assert_eq!(digest, crate::digest_at(0, &source.to_vec()));
        }
    }
}
