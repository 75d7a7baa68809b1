//! Reads one piece straight from another process's memory.
//!
//! The fence word is read behind the piece's bytes, in the same system call: the kernel completes
//! remote ranges in the order given. The word moves once, from the export's id to zero, so if it
//! still holds the id, it held it before and while the bytes were read.
//!
//! Rows that lie close together are read as one range of the source, the gaps between them into a
//! bin: pages are looked up once, not once a row. A gap within a region is served memory too. One between
//! regions, as an allocator leaves it between small tensors, is shorter than a page: it lies in pages that
//! have served memory, so it can be read wherever they can, and nobody looks into the bin.

use super::endpoint::{Endpoint, Lane, OpenLane};
use super::kind::{LaneKind, Meeting};
use super::ready::ReadyPieces;
use super::task::LaneTask;
use crate::base::error::TransportError;
use crate::base::holds::HoldPoint;
use crate::base::id::ExportId;
use crate::base::limits::{MAX_GAP_BETWEEN_REGIONS, MAX_GAP_BYTES};
use crate::export::served::Export;
use crate::lane::way::Way;
use crate::memory::sys::{self, Ranges};
use crate::piece::pieces::Piece;
use crate::wire::description::ExportDescription;
use crate::wire::local_source::LocalSource;
use crate::wire::socket::Socket;
use addresses::Addresses;
use std::io;
use std::sync::Arc;

pub(crate) mod addresses;

/// The lane out of another process's memory.
pub(super) struct DirectKind;

impl LaneKind for DirectKind {
    fn way(&self) -> Way {
        Way::Direct
    }

    fn number(&self) -> u64 {
        addresses::LANE
    }

    /// The owner hands out its own addresses, to those of its host and user to whom the kernel says
    /// whose they are; it never takes one from a peer.
    fn offer(&self, export: &Export, reader: &Socket) -> Option<Vec<u8>> {
        reader.is_local().then(|| Addresses::put(export)).flatten()
    }

    fn reach(&self, meeting: &Meeting<'_>) -> Result<Box<dyn Endpoint>, TransportError> {
        Ok(Box::new(Direct::new(meeting.process()?)?))
    }
}

/// A process of this host whose memory we may read.
struct Direct(Arc<LocalSource>);

impl Direct {
    /// # Errors
    /// [`TransportError::NoDirect`] if the kernel does not permit it.
    fn new(process: Arc<LocalSource>) -> Result<Self, TransportError> {
        sys::may_read(process.pid()).map_err(|error| {
            let what = format!("its memory may not be read: {error}");
            TransportError::NoDirect { addr: process.addr(), what }
        })?;
        Ok(Self(process))
    }
}

impl Endpoint for Direct {
    fn way(&self) -> Way {
        Way::Direct
    }

    fn why(&self) -> &'static str {
        "another process of this host and user"
    }

    fn check(&self, description: &ExportDescription) -> Result<(), TransportError> {
        let what = "addresses of an export";
        let fit = description.descriptor(addresses::LANE).is_none()
            || Addresses::of(description).is_some_and(|found| found.fit(description));
        fit.then_some(()).ok_or(TransportError::Protocol { addr: self.0.addr(), what })
    }

    fn carries(&self, _: ExportId, description: &ExportDescription) -> bool {
        Addresses::of(description).is_some()
    }

    fn verify(&self) -> Result<(), TransportError> {
        self.0.verify()
    }

    /// Of an export that it carries.
    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        let addresses = Addresses::of(task.description);
        Ok(addresses
            .map(|addresses| Box::new(DirectLane::new(self, task, addresses)) as OpenLane<'a>))
    }
}

/// Reads pieces of one job; its buffers are reused from piece to piece.
struct DirectLane<'a> {
    direct: &'a Direct,
    task: LaneTask<'a>,
    addresses: Addresses<'a>,
    /// The piece that was asked for.
    asked: Option<&'a Piece>,
    rows: Vec<SourceRow>,
    local: Ranges,
    remote: Ranges,
    /// Where gaps go.
    bin: Vec<u8>,
    ready: ReadyPieces,
}

/// A row of a piece, by addresses.
struct SourceRow {
    source: u64,
    target: u64,
    len: usize,
    source_region: u32,
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
}

impl<'a> DirectLane<'a> {
    fn new(direct: &'a Direct, task: LaneTask<'a>, addresses: Addresses<'a>) -> Self {
        let (local, remote) = (Ranges::default(), Ranges::default());
        let bin = vec![0; MAX_GAP_BYTES as usize];
        let ready = ReadyPieces::new(&task);
        Self { direct, task, addresses, asked: None, rows: Vec::new(), local, remote, bin, ready }
    }

    /// Reads a piece of checked copies into the targets.
    ///
    /// # Errors
    /// [`TransportError::Fenced`], [`TransportError::SourceGone`] or, which is no fault of the
    /// source, [`TransportError::UnwritableTarget`]; the piece's bytes are then worth nothing.
    fn read(&mut self, piece: &Piece) -> Result<(), TransportError> {
        let mut word = 0_u64;
        self.local.clear();
        self.remote.clear();
        self.add_rows(piece);
        self.local.push_apart((&raw mut word).expose_provenance() as u64, 8);
        self.remote.push_apart(self.addresses.word(), 8);
        let wanted = self.local.bytes();
        // SAFETY: the word is ours and the last of the ranges; see `take` for the others.
        match unsafe { self.take() } {
            Ok(count) if count == wanted && word == self.task.export.0 => Ok(()),
            outcome => Err(self.diagnose(outcome)),
        }
    }

    /// Reads all ranges. Where a test may stop before the verdict, the last range, which is the fence
    /// word's, has a call of its own: else the kernel reads it right behind the others.
    ///
    /// # Safety
    /// The last local range is the caller's. The bin is ours, and the others lie in writable target
    /// regions (checked before the transfer), which their owners keep mapped.
    unsafe fn take(&mut self) -> io::Result<usize> {
        let pid = self.direct.0.pid();
        if !self.task.holds.is_set() {
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

    /// The rows of a piece as they lie at the source, and the small gaps between them.
    fn add_rows(&mut self, piece: &Piece) {
        self.find_rows(piece);
        let bin = self.bin.as_mut_ptr().expose_provenance() as u64;
        let mut last = (u32::MAX, 0);
        for row in &self.rows {
            let (region, end) = last;
            let most =
                if region == row.source_region { MAX_GAP_BYTES } else { MAX_GAP_BETWEEN_REGIONS };
            if let Some(gap) = row.source.checked_sub(end).filter(|gap| (1..=most).contains(gap)) {
                self.local.push(bin, gap as usize);
                self.remote.push(end, gap as usize);
            }
            self.local.push(row.target, row.len);
            self.remote.push(row.source, row.len);
            last = (row.source_region, row.source + row.len as u64);
        }
    }

    /// Notes the rows of a piece. Tensors are in the order of their names, which is seldom that of their memory.
    fn find_rows(&mut self, piece: &Piece) {
        let LaneTask { pieces, targets, .. } = self.task;
        self.rows.clear();
        pieces.rows(piece, |copy, row, len| {
            let target = targets[copy.target_region as usize].address();
            let source = self.addresses.region(copy.source_region as usize);
            let (source, target) = (source + row.source, target + row.target);
            self.rows.push(SourceRow { source, target, len, source_region: copy.source_region });
        });
        self.rows.sort_by_key(|row| row.source);
    }

    /// Why a piece did not come whole and served.
    fn diagnose(&mut self, outcome: io::Result<usize>) -> TransportError {
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
        let fenced = TransportError::Fenced { export: self.task.export };
        if let Err(gone) = self.direct.0.verify() {
            return gone;
        }
        match outcome {
            // Its memory goes before its pidfd tells; and one that runs another program may forbid it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EPERM)) => {
                self.direct.0.gone(error)
            }
            Err(error) if arrived.is_none() => {
                TransportError::System { call: "process_vm_readv", what: error.to_string() }
            }
            // The process lives but no longer lends the memory, whole or in part: withdrawn.
            _ => fenced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holds::Holds;
    use crate::base::patience::Patience;
    use crate::memory::region::Region;
    use crate::piece::copy::StridedCopy;
    use crate::piece::pieces::Pieces;
    use crate::{Auth, DataServer, Peer};
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    /// A source in this process, and what reads it directly.
    struct Reached {
        server: DataServer,
        peer: Peer,
        direct: Direct,
    }

    impl Reached {
        fn new() -> Self {
            let loopback = ([127, 0, 0, 1], 0).into();
            let server = DataServer::bind(loopback, Auth::default()).unwrap();
            let soon = Instant::now() + Duration::from_secs(20);
            let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
            let process = LocalSource::reach(peer.port(), true, &Patience::default()).unwrap();
            let direct = Direct::new(Arc::new(process)).unwrap();
            assert_eq!(direct.0.pid(), std::process::id() as i32);
            Self { server, peer, direct }
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
            let export = self.server.exports().expose(1, regions);
            let description = self.direct.0.describe(export, 1, &Patience::default()).unwrap();
            let targets = [Region::allocate(64 << 10).unwrap()];
            let (pieces, lanes) = (Pieces::cut(copies, 1 << 20), AtomicUsize::new(0));
            let task = LaneTask {
                port: self.peer.port(),
                export,
                generation: 1,
                description: &description,
                pieces: &pieces,
                targets: &targets,
                digests: true,
                lanes: &lanes,
                patience: Patience::default(),
                holds: &Holds::default(),
            };
            let addresses = Addresses::of(&description).unwrap();
            let mut lane = DirectLane::new(&self.direct, task, addresses);
            let done = act(&mut lane, &pieces, &targets);
            assert_eq!(lane.bin.len() as u64, MAX_GAP_BYTES);
            done
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
                lane.add_rows(piece);
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
                lane.add_rows(piece);
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

    /// By what the kernel said, while the process lives and the target can be written.
    #[test]
    fn a_read_that_did_not_end_well_is_somebody_s_fault() {
        let reached = Reached::new();
        reached.with(&[StridedCopy::contiguous(0, 0, 0, 0, 64)], |lane, pieces, _| {
            let piece = pieces.draw().unwrap();
            let mut of = |outcome: Result<usize, i32>| {
                lane.local.clear();
                lane.remote.clear();
                lane.add_rows(piece);
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
        let description = reached.direct.0.describe(export, 1, &Patience::default()).unwrap();
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
        let mut lane = DirectLane::new(&reached.direct, task, addresses);
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
