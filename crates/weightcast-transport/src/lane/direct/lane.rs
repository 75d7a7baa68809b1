//! One worker's reads out of another process's memory.
//!
//! The kernel copies to a desk, which stays in the second cache; from there the bytes are copied past the cache into the
//! targets, and digested on the way. So a target's memory is written and not read, and no byte is fetched from memory
//! twice.
//!
//! The fence word is read behind a piece's bytes: the kernel completes remote ranges in the order given. The word moves
//! once, from the export's id to zero, so if it still holds the id, it held it before and while the bytes were read.
//!
//! Rows that lie close together are read as one range of the source, with the gaps between them: pages are looked up
//! once, not once a row. A gap within a region is served memory too. One between regions, as an allocator leaves it
//! between small tensors, is shorter than a page: it lies in pages that have served memory, so it can be read wherever
//! they can, and nobody looks at it on the desk.

use super::addresses::Addresses;
use super::desk::{DESK_BYTES, ReadDesk};
use crate::base::error::TransportError;
use crate::base::holds::HoldPoint;
use crate::base::limits::{MAX_GAP_BETWEEN_REGIONS, MAX_GAP_BYTES};
use crate::lane::endpoint::Lane;
use crate::lane::ready::ReadyPieces;
use crate::lane::rows::{ArrivingRows, PieceRow};
use crate::lane::task::LaneTask;
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::memory::sys::{self, Ranges};
use crate::piece::pieces::Piece;
use crate::wire::local_source::LocalSource;
use std::io;

/// Reads pieces of one job; its buffers are reused from piece to piece.
pub(super) struct DirectLane<'a> {
    process: &'a LocalSource,
    task: LaneTask<'a>,
    addresses: Addresses<'a>,
    /// The piece that was asked for.
    asked: Option<&'a Piece>,
    rows: Vec<SourceRow>,
    local: Ranges,
    remote: Ranges,
    desk: ReadDesk<'a>,
    arriving: ArrivingRows,
    ready: ReadyPieces,
}

/// A row of a piece, or a part that fits on the desk.
struct SourceRow {
    /// Its address at the source.
    address: u64,
    /// Where it is put on the desk.
    place: usize,
    row: PieceRow,
}

impl<'a> Lane<'a> for DirectLane<'a> {
    fn look(&mut self, idle: bool) -> Result<bool, TransportError> {
        self.ready.look(&self.task, idle)
    }

    fn has_room(&mut self) -> bool {
        self.asked.is_none()
    }

    fn submit(&mut self, piece: &'a Piece) {
        self.asked = Some(piece);
    }

    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        let Some(piece) = self.asked.take() else { return Ok(None) };
        self.task.patience.check("reading")?;
        self.task.holds.at(HoldPoint::Asking);
        self.ready.wait(&self.task, piece)?;
        self.task.holds.at(HoldPoint::Taking);
        self.read(piece)?;
        Ok(Some(piece))
    }

    fn digested(&mut self, digests: &mut [Digest]) -> bool {
        self.arriving.add_to(digests);
        self.task.digests
    }
}

impl<'a> DirectLane<'a> {
    pub(super) fn new(
        process: &'a LocalSource,
        desk: ReadDesk<'a>,
        task: LaneTask<'a>,
        addresses: Addresses<'a>,
    ) -> Self {
        let (local, remote) = (Ranges::default(), Ranges::default());
        let (rows, arriving, ready) =
            (Vec::new(), ArrivingRows::default(), ReadyPieces::new(&task));
        Self { process, task, addresses, asked: None, rows, local, remote, desk, arriving, ready }
    }

    /// Reads a piece of checked copies into the targets, a desk at a time.
    ///
    /// # Errors
    /// [`TransportError::Fenced`] or [`TransportError::SourceGone`]; the piece's bytes are then worth nothing.
    fn read(&mut self, piece: &Piece) -> Result<(), TransportError> {
        self.arriving.begin();
        self.find_rows(piece);
        let mut begun = 0;
        while begun < self.rows.len() {
            let end = self.lay_out(begun);
            self.fill(end == self.rows.len())?;
            self.copy_on(begun..end);
            begun = end;
        }
        Region::order_copies();
        Ok(())
    }

    /// Notes the rows of a piece, in the order of the source's memory: tensors are in the order of their names, which is
    /// seldom that.
    fn find_rows(&mut self, piece: &Piece) {
        self.rows.clear();
        self.task.pieces.rows(piece, |copy, run, len| {
            let region = self.addresses.region(copy.source_region as usize);
            for row in (PieceRow { copy: *copy, run, len }).parts(DESK_BYTES) {
                self.rows.push(SourceRow { address: region + row.run.source, place: 0, row });
            }
        });
        self.rows.sort_by_key(|row| row.address);
    }

    /// Gives rows from here on their places on the desk, with the small gaps between them, until the desk is full. Returns
    /// the first that has no place.
    fn lay_out(&mut self, begun: usize) -> usize {
        self.local.clear();
        self.remote.clear();
        let (mut used, mut last) = (0, (u32::MAX, 0));
        let mut laid = begun;
        for of in &mut self.rows[begun..] {
            let (SourceRow { address, row, .. }, (region, end)) = (&*of, last);
            let own = region == row.copy.source_region;
            let most = if own { MAX_GAP_BYTES } else { MAX_GAP_BETWEEN_REGIONS };
            let gap = address.checked_sub(end).filter(|gap| *gap <= most).unwrap_or(0);
            let place = used + gap as usize;
            if place + row.len > DESK_BYTES {
                break;
            }
            self.remote.push(address - gap, gap as usize + row.len);
            (used, last) = (place + row.len, (row.copy.source_region, address + row.len as u64));
            of.place = place;
            laid += 1;
        }
        self.local.push(self.desk.region().address(), used);
        laid
    }

    /// Reads what was laid out, and behind the last of a piece the fence word.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn fill(&mut self, last: bool) -> Result<(), TransportError> {
        let mut word = self.task.export.0;
        if last {
            word = 0;
            self.local.push_apart((&raw mut word).expose_provenance() as u64, 8);
            self.remote.push_apart(self.addresses.word(), 8);
        }
        let wanted = self.local.bytes();
        // SAFETY: the word is ours and the last of the ranges, and the other lies on our desk.
        match unsafe { self.take(last) } {
            Ok(count) if count == wanted && word == self.task.export.0 => Ok(()),
            outcome => Err(self.diagnose(outcome)),
        }
    }

    /// Reads all ranges. Where a test may stop before the verdict, the last range, which is the fence
    /// word's, has a call of its own: else the kernel reads it right behind the others.
    ///
    /// # Safety
    /// The local ranges are the caller's.
    unsafe fn take(&mut self, judges: bool) -> io::Result<usize> {
        let pid = self.process.pid();
        if !judges || !self.task.holds.is_set() {
            // SAFETY: the caller's promise.
            return unsafe { sys::read_process(pid, &self.local, &self.remote) };
        }
        let (mut local, mut remote) = (self.local.split_last(), self.remote.split_last());
        // SAFETY: the caller's promise.
        let mut read = unsafe { sys::read_process(pid, &self.local, &self.remote) };
        if let Ok(bytes) = &mut read
            && *bytes == self.local.bytes()
        {
            self.task.holds.at(HoldPoint::Judging);
            // SAFETY: the caller's promise.
            *bytes += unsafe { sys::read_process(pid, &local, &remote) }.unwrap_or(0);
        }
        self.local.append(&mut local);
        self.remote.append(&mut remote);
        read
    }

    /// Copies rows from the desk into their targets.
    fn copy_on(&mut self, rows: std::ops::Range<usize>) {
        let desk = self.desk.region();
        for of in &self.rows[rows] {
            // What is copied next lies in the cache already.
            let next = desk.place(of.place);
            self.arriving.copy(&self.task, &of.row, desk, of.place, next);
        }
    }

    /// Why a piece did not come whole and served.
    fn diagnose(&self, outcome: io::Result<usize>) -> TransportError {
        if let Err(gone) = self.process.verify() {
            return gone;
        }
        match outcome {
            // Its memory goes before its pidfd tells; and one that runs another program may forbid it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM)) => {
                self.process.gone(error)
            }
            Err(error) if error.raw_os_error() != Some(libc::EFAULT) => {
                TransportError::System { call: "process_vm_readv", what: error.to_string() }
            }
            // The process lives but no longer lends the memory, whole or in part: withdrawn.
            _ => TransportError::Fenced { export: self.task.export },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holds::Holds;
    use crate::base::id::ExportId;
    use crate::base::patience::Patience;
    use crate::lane::direct::desk::FreeDesks;
    use crate::lane::way::Way;
    use crate::memory::digest::digest_at;
    use crate::piece::copy::StridedCopy;
    use crate::piece::pieces::Pieces;
    use crate::{Auth, DataServer, Peer};
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    /// A source in this process, and what reads it directly.
    struct Reached {
        server: DataServer,
        peer: Peer,
        process: LocalSource,
        desks: FreeDesks,
    }

    impl Reached {
        fn new() -> Self {
            let loopback = ([127, 0, 0, 1], 0).into();
            let server = DataServer::bind(loopback, Auth::default()).unwrap();
            let soon = Instant::now() + Duration::from_secs(20);
            let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
            let process = LocalSource::reach(peer.port(), true, &Patience::default()).unwrap();
            assert_eq!(process.pid(), std::process::id() as i32);
            Self { server, peer, process, desks: FreeDesks::default() }
        }

        /// Does something with a lane that reads these copies of two regions of 64 KiB.
        fn with<T>(
            &self,
            copies: &[StridedCopy],
            act: impl FnOnce(&mut DirectLane<'_>, &Pieces, &[Region]) -> T,
        ) -> T {
            self.with_regions(vec![counted(1), counted(2)], copies, act)
        }

        /// Does something with a lane that reads these copies of these regions.
        fn with_regions<T>(
            &self,
            regions: Vec<Region>,
            copies: &[StridedCopy],
            act: impl FnOnce(&mut DirectLane<'_>, &Pieces, &[Region]) -> T,
        ) -> T {
            let targets = [Region::allocate(64 << 10).unwrap()];
            self.with_memory(regions, &targets, copies, 1 << 20, |lane, pieces| {
                act(lane, pieces, &targets)
            })
        }

        /// Does something with a lane that reads these copies, in pieces of this size, into these targets.
        fn with_memory<T>(
            &self,
            regions: Vec<Region>,
            targets: &[Region],
            copies: &[StridedCopy],
            size: usize,
            act: impl FnOnce(&mut DirectLane<'_>, &Pieces) -> T,
        ) -> T {
            let export = self.server.exports().expose(1, regions);
            let description = self.process.describe(export, 1, &Patience::default()).unwrap();
            let (pieces, lanes) = (Pieces::cut(copies, size), AtomicUsize::new(0));
            let task = LaneTask {
                port: self.peer.port(),
                export,
                generation: 1,
                description: &description,
                pieces: &pieces,
                targets,
                digests: true,
                lanes: &lanes,
                patience: Patience::default(),
                holds: &Holds::default(),
            };
            let addresses = Addresses::of(&description).unwrap();
            let desk = self.desks.take().unwrap();
            let mut lane = DirectLane::new(&self.process, desk, task, addresses);
            act(&mut lane, &pieces)
        }
    }

    /// 64 KiB, each byte as its number.
    fn counted(start: usize) -> Region {
        let bytes: Vec<u8> = (start..start + (64 << 10)).map(|i| (i % 251) as u8).collect();
        Region::from_bytes(&bytes).unwrap()
    }

    /// Small tensors as an allocator lays them, in another order than that of their names.
    #[test]
    fn regions_less_than_a_page_apart_are_read_in_one_range() {
        let (reached, memory) = (Reached::new(), counted(0));
        let copies =
            [StridedCopy::contiguous(0, 0, 0, 50, 10), StridedCopy::contiguous(1, 0, 0, 0, 10)];
        for (gap, ranges) in [(0, 1), (1, 1), (4_095, 1), (4_096, 2), (8_192, 2)] {
            let regions = vec![memory.part(110 + gap, 10).unwrap(), memory.part(100, 10).unwrap()];
            reached.with_regions(regions, &copies, |lane, pieces, targets| {
                let piece = pieces.draw().unwrap();
                lane.find_rows(piece);
                assert_eq!(lane.lay_out(0), 2);
                let thrown_away = if ranges == 1 { gap } else { 0 };
                assert_eq!(lane.remote.count(), ranges, "{gap}");
                assert_eq!(
                    [lane.remote.bytes(), lane.local.bytes()],
                    [20 + thrown_away; 2],
                    "{gap}"
                );
                lane.read(piece).unwrap();
                let expected =
                    |start: usize| (start..start + 10).map(|i| (i % 251) as u8).collect::<Vec<_>>();
                let found = targets[0].to_vec();
                assert_eq!(
                    (&found[..10], &found[50..60]),
                    (&expected(100)[..], &expected(110 + gap)[..])
                );
                assert!(found[10..50].iter().chain(&found[60..]).all(|byte| *byte == 0), "{gap}");
            });
        }
    }

    /// Whether the second row is read in one range with the first, and what is thrown away.
    #[test]
    fn small_gaps_are_read_along_and_others_are_not() {
        let reached = Reached::new();
        let row = |region, at| StridedCopy::contiguous(region, at, 0, 100 * u64::from(region), 10);
        let most = MAX_GAP_BYTES;
        let table = [
            (row(0, 500), row(0, 510), 1, 0),
            (row(0, 500), row(0, 511), 1, 1),
            (row(0, 500), row(0, 510 + most - 1), 1, most - 1),
            (row(0, 500), row(0, 510 + most), 1, most),
            (row(0, 500), row(0, 510 + most + 1), 2, 0),
            (row(0, 500), row(0, 509), 2, 0),
            (row(0, 500), row(0, 490), 1, 0),
            (row(0, 500), row(0, 0), 1, 490),
            (row(0, 500), row(1, 511), 2, 0),
            (row(1, 0), row(1, 11), 1, 1),
            (row(0, 5), row(0, 16), 1, 1),
        ];
        for (first, second, ranges, gap) in table {
            // Both at places of their own at the target.
            let copies = [first, StridedCopy { target_offset: 40, ..second }];
            reached.with(&copies, |lane, pieces, targets| {
                let piece = pieces.draw().unwrap();
                lane.find_rows(piece);
                assert_eq!(lane.lay_out(0), 2);
                let case = format!("{first:?} {second:?}");
                assert_eq!(lane.remote.count(), ranges, "{case}");
                assert_eq!(
                    [lane.remote.bytes(), lane.local.bytes()],
                    [20 + gap as usize; 2],
                    "{case}"
                );
                lane.read(piece).unwrap();
                let found = targets[0].to_vec();
                for copy in copies {
                    let (from, to) = (copy.source_offset as usize, copy.target_offset as usize);
                    let start = from + 1 + copy.source_region as usize;
                    let expected: Vec<u8> = (start..start + 10).map(|i| (i % 251) as u8).collect();
                    assert_eq!(found[to..to + 10], expected, "{case}");
                }
                assert!(found[150..].iter().all(|byte| *byte == 0), "{case}");
            });
        }
    }

    /// A piece of a source that is being filled may be larger than a desk, and gaps may not fit beside the rows.
    #[test]
    fn a_piece_is_read_a_desk_at_a_time() {
        const LEN: usize = 3 * DESK_BYTES;
        let (reached, desk) = (Reached::new(), DESK_BYTES as u64);
        let memory = Region::allocate(LEN).unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        memory.write_at(0, &bytes).unwrap();
        let row = |from, to, len| StridedCopy::contiguous(0, from, 0, to, len);
        let most = MAX_GAP_BYTES;
        // Copies, and after how many rows or parts of one each desk is full.
        let table: [(&[StridedCopy], &[usize]); 5] = [
            (&[row(0, 0, desk)], &[1]),
            (&[row(3, 0, desk + 1)], &[1, 2]),
            (&[row(5, 1, 2 * desk + 7)], &[1, 2, 3]),
            (&[row(0, 0, desk - most), row(desk, desk, most)], &[1, 2]),
            (&[row(0, 0, desk - most - 9), row(desk - 9, desk, 9)], &[2]),
        ];
        for (copies, full) in table {
            let targets = [Region::allocate(LEN).unwrap()];
            reached.with_memory(vec![memory.clone()], &targets, copies, LEN, |lane, pieces| {
                let piece = pieces.draw().unwrap();
                lane.find_rows(piece);
                let mut found = vec![lane.lay_out(0)];
                while *found.last().unwrap() < lane.rows.len() {
                    found.push(lane.lay_out(*found.last().unwrap()));
                }
                assert_eq!(found, full, "{copies:?}");
                lane.read(piece).unwrap();
                assert_eq!(lane.local.count(), 2, "the word is read behind the last bytes");
                let mut digests = [Digest::ZERO];
                assert!(lane.digested(&mut digests));
                let mut expected = (vec![0; LEN], Digest::ZERO);
                for copy in copies {
                    let (from, to) = (copy.source_offset as usize, copy.target_offset as usize);
                    let row = &bytes[from..from + copy.row_bytes as usize];
                    expected.0[to..to + row.len()].copy_from_slice(row);
                    expected.1 += digest_at(copy.position, row);
                }
                assert!(targets[0].to_vec() == expected.0, "{copies:?}");
                assert_eq!(digests, [expected.1], "{copies:?}");
            });
        }
    }

    /// By what the kernel said, while the process lives and the target can be written.
    #[test]
    fn a_read_that_did_not_end_well_is_somebody_s_fault() {
        let reached = Reached::new();
        reached.with(&[StridedCopy::contiguous(0, 0, 0, 0, 64)], |lane, pieces, _| {
            let piece = pieces.draw().unwrap();
            lane.find_rows(piece);
            assert_eq!(lane.lay_out(0), 1);
            let of = |outcome: Result<usize, i32>| {
                lane.diagnose(outcome.map_err(io::Error::from_raw_os_error))
            };
            let gone = |error: &TransportError| matches!(error, TransportError::SourceGone { .. });
            let fenced = |error: &TransportError| matches!(error, TransportError::Fenced { .. });
            assert!([0, 1, 63, 64].into_iter().all(|count| fenced(&of(Ok(count)))));
            assert!(fenced(&of(Err(libc::EFAULT))));
            assert!(gone(&of(Err(libc::ESRCH))) && gone(&of(Err(libc::EPERM))));
            for number in [libc::ENOMEM, libc::EINVAL, libc::ENOSYS] {
                let error = of(Err(number));
                let own = matches!(error, TransportError::System { call: "process_vm_readv", .. });
                assert!(own, "{error}");
            }
            // What an earlier piece left on the desk is not taken for bytes that did not come.
            lane.remote.clear();
            assert!(fenced(&lane.fill(false).unwrap_err()), "no byte came");
        });
    }

    #[test]
    fn a_lane_reads_what_it_was_asked_for_and_sees_a_fence() {
        let reached = Reached::new();
        reached.with(&[StridedCopy::contiguous(0, 7, 0, 9, 64)], |lane, pieces, targets| {
            let export = lane.task.export;
            assert!(lane.has_room() && matches!(lane.poll(), Ok(None)));
            reached.server.exports().fence(export);
            let piece = pieces.draw().unwrap();
            assert_eq!(lane.read(piece), Err(TransportError::Fenced { export }), "the word moved");
            assert!(lane.has_room() && targets[0].to_vec()[..9] == [0; 9]);
        });
    }

    /// Else every piece of a relay would cost its source a question.
    #[test]
    fn what_was_seen_to_be_final_is_not_asked_for_again() {
        use crate::base::limits::MIN_UNIT_BYTES as UNIT;
        let reached = Reached::new();
        let memory = vec![Region::allocate(3 * UNIT as usize).unwrap()];
        let filling = std::sync::Arc::new(crate::Filling::new(&memory));
        let (export, progress) = (ExportId::random(), std::sync::Arc::clone(&filling));
        reached.server.exports().expose_filling(export, 1, memory, filling);
        let description = reached.process.describe(export, 1, &Patience::default()).unwrap();
        progress.begin(std::iter::empty());
        let pieces = Pieces::cut(&[StridedCopy::contiguous(0, 0, 0, 0, 3 * UNIT)], UNIT as usize);
        let task = LaneTask {
            port: reached.peer.port(),
            export,
            generation: 1,
            description: &description,
            pieces: &pieces,
            targets: &[],
            lanes: &AtomicUsize::new(0),
            digests: true,
            patience: Patience::default(),
            holds: &Holds::default(),
        };
        let addresses = Addresses::of(&description).unwrap();
        let desk = reached.desks.take().unwrap();
        let mut lane = DirectLane::new(&reached.process, desk, task, addresses);
        assert_eq!(lane.ready.wait(&lane.task, pieces.draw().unwrap()), Ok(()));
        // Whoever asked now would be refused.
        reached.server.exports().fence(export);
        assert_eq!(lane.ready.wait(&lane.task, pieces.draw().unwrap()), Ok(()));
        lane.ready.forget();
        assert_eq!(
            lane.ready.wait(&lane.task, pieces.draw().unwrap()),
            Err(TransportError::Fenced { export })
        );
    }
}
