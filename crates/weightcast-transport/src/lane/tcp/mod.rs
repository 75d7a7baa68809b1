//! Reads pieces over a stream: requests ahead, bytes straight into the targets.

use super::endpoint::{Endpoint, Lane, OpenLane, WriteEndpoint};
use super::kind::{LaneKind, Meeting};
use super::ready::ReadyPieces;
use super::task::{LaneTask, is_alone};
use crate::base::error::{RequestRefusal, TransportError};
use crate::base::holds::HoldPoint;
use crate::base::id::ExportId;
use crate::base::limits::{PIPELINE_BYTES, RECEIVED_BYTES};
use crate::base::patience::Patience;
use crate::lane::rows::{ArrivingRows, PieceRow};
use crate::lane::way::Way;
use crate::memory::digest::Digest;
use crate::memory::sys::Ranges;
use crate::piece::pieces::Piece;
use crate::wire::description::ExportDescription;
use crate::wire::pool::Pool;
use crate::wire::stream::DataStream;
use crate::wire::{self, FrameKind, HEADER_BYTES, Header, WireCodec};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use window::RequestWindow;

mod window;
mod write;

/// The lane over the data port, which carries everything.
pub(super) struct TcpKind;

impl LaneKind for TcpKind {
    fn way(&self) -> Way {
        Way::Tcp
    }

    fn number(&self) -> u64 {
        1
    }

    fn reach(&self, meeting: &Meeting<'_>) -> Result<Box<dyn Endpoint>, TransportError> {
        Ok(Box::new(Arc::clone(&meeting.port)))
    }
}

impl Endpoint for Arc<Pool> {
    fn way(&self) -> Way {
        Way::Tcp
    }

    fn why(&self) -> &'static str {
        "its data port carries everything"
    }

    fn asks_ahead(&self) -> bool {
        true
    }

    fn carries(&self, _: ExportId, _: &ExportDescription) -> bool {
        true
    }

    /// The process that answers on a connection is the one that shook hands on it.
    fn verify(&self) -> Result<(), TransportError> {
        Ok(())
    }

    fn writer(&self) -> Option<&dyn WriteEndpoint> {
        Some(self)
    }

    /// If the source has no place left, the lanes that have one read everything.
    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        let stream = take(self, &task.patience, || is_alone(task.lanes, task.pieces))?;
        Ok(stream.map(|stream| Box::new(TcpLane::new(self, task, stream)) as OpenLane<'a>))
    }
}

/// A stream for a worker. `None` if the port is full, and others move what there is.
fn take(
    pool: &Pool,
    patience: &Patience<'_>,
    alone: impl Fn() -> bool,
) -> Result<Option<DataStream>, TransportError> {
    match pool.take(patience, &alone) {
        Err(TransportError::Full { .. }) if !alone() => Ok(None),
        taken => taken.map(Some),
    }
}

/// Reads pieces of one job over one stream, several requests under way.
struct TcpLane<'a> {
    pool: &'a Pool,
    task: LaneTask<'a>,
    stream: DataStream,
    /// Pieces asked for and not yet answered, with the sizes of their requests.
    asked: VecDeque<(&'a Piece, usize)>,
    asked_bytes: usize,
    window: RequestWindow,
    ready: ReadyPieces,
    /// Whether the window is being filled up.
    asking: bool,
    /// Requests that are not sent yet.
    request: Vec<u8>,
    /// Rows of the piece that is being received, none longer than one call receives.
    rows: Vec<PieceRow>,
    ranges: Ranges,
    arriving: ArrivingRows,
    /// The next answer's header, if it came with the last answer's end.
    header: Option<Header>,
    /// Whether a piece has come over this stream.
    answered: bool,
}

impl<'a> Lane<'a> for TcpLane<'a> {
    /// Answers come in order: behind a piece that is not there yet, all others would wait.
    fn look(&mut self, idle: bool) -> Result<bool, TransportError> {
        self.ready.look(&self.task, idle)
    }

    /// As many as the source surely takes. Several at a time: what arrives together is answered with
    /// fewer system calls.
    fn has_room(&mut self) -> bool {
        let window = self.window.requests();
        self.asking |= self.asked.len() <= window / 2;
        let first = self.asked.is_empty();
        let fits = self.asked.len() < window && self.asked_bytes < PIPELINE_BYTES;
        self.asking && (first || fits)
    }

    fn submit(&mut self, piece: &'a Piece) {
        self.task.holds.at(HoldPoint::Asking);
        let start = self.request.len();
        put_request(&mut self.request, &self.task, piece);
        self.asked.push_back((piece, self.request.len() - start));
        self.asked_bytes += self.request.len() - start;
    }

    /// A source closes connections between two requests when it needs their places: then a new one
    /// goes on.
    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        self.asking = false;
        let Some(&(piece, request)) = self.asked.front() else { return Ok(None) };
        match self.answer(piece) {
            Err(TransportError::SourceGone { .. }) if self.answered => {
                self.go_on()?;
                self.answer(piece)?;
            }
            answered => answered?,
        }
        self.request.clear();
        self.asked.pop_front();
        self.asked_bytes -= request;
        self.answered = true;
        self.window.answered(Instant::now());
        Ok(Some(piece))
    }

    fn digested(&mut self, digests: &mut [Digest]) -> bool {
        self.arriving.add_to(digests);
        self.task.digests
    }

    /// The stream is kept if nothing is under way on it.
    fn close(self: Box<Self>) {
        if self.asked.is_empty() && self.header.is_none() {
            self.pool.give_back(self.stream);
        }
    }
}

impl<'a> TcpLane<'a> {
    fn new(pool: &'a Pool, task: LaneTask<'a>, stream: DataStream) -> Self {
        let window = RequestWindow::new(stream.round_trip(), Instant::now());
        let ready = ReadyPieces::new(&task);
        Self {
            pool,
            task,
            window,
            ready,
            stream,
            asked: VecDeque::new(),
            asked_bytes: 0,
            asking: false,
            request: Vec::new(),
            rows: Vec::new(),
            ranges: Ranges::default(),
            arriving: ArrivingRows::default(),
            header: None,
            answered: false,
        }
    }

    /// Asks on a new stream for all that was not answered on the last one.
    fn go_on(&mut self) -> Result<(), TransportError> {
        self.stream.open_again(&self.task.patience)?;
        (self.header, self.answered) = (None, false);
        self.request.clear();
        for (piece, _) in &self.asked {
            put_request(&mut self.request, &self.task, piece);
        }
        Ok(())
    }

    /// Receives the answer for the piece that was asked for first.
    fn answer(&mut self, piece: &'a Piece) -> Result<(), TransportError> {
        let header = match self.header.take() {
            Some(header) => {
                self.stream.send(&self.request, &self.task.patience)?;
                header
            }
            // Nothing else is under way.
            None => self.stream.begin(&self.request, &self.task.patience)?,
        };
        self.stream
            .expect(header, FrameKind::Data)
            .map_err(|error| error.while_reading(self.task.export))?;
        if let Err(RequestRefusal::UnknownCodec { codec }) = WireCodec::of(header) {
            return Err(TransportError::UnknownCodec { addr: self.pool.addr(), codec });
        }
        if header.body != piece.bytes {
            return Err(self.stream.protocol("length of an answer"));
        }
        self.receive(piece)
    }

    /// Receives a piece's bytes, their end, and the next header if one will come.
    fn receive(&mut self, piece: &Piece) -> Result<(), TransportError> {
        let mut behind = [0_u8; 2 * HEADER_BYTES];
        // A source that is being filled may be long in coming to the next answer.
        let more = self.asked.len() > 1 && !self.task.description.filling;
        let behind_bytes = if more { 2 * HEADER_BYTES } else { HEADER_BYTES };
        self.arriving.begin();
        self.find_rows(piece);
        let mut begun = 0;
        while begun < self.rows.len() {
            let end = self.lay_out(begun);
            if end == self.rows.len() {
                let behind = behind.as_mut_ptr().expose_provenance();
                self.ranges.push_apart(behind as u64, behind_bytes);
            }
            // SAFETY: the last range is ours; the others lie in writable target regions (checked
            // before the transfer), which their owners keep mapped.
            unsafe { self.stream.receive_into(&mut self.ranges, &self.task.patience) }?;
            for row in &self.rows[begun..end] {
                self.arriving.digest(&self.task, row);
            }
            begun = end;
        }
        let (end, next) = behind.split_first_chunk().expect("two headers");
        let end = self.stream.decoded(Header::decode(end))?;
        self.stream.expect(end, FrameKind::End)?;
        if more {
            let next = next.first_chunk().expect("two headers");
            self.header = Some(self.stream.decoded(Header::decode(next))?);
        }
        if end.status != 0 {
            return Err(TransportError::Fenced { export: self.task.export });
        }
        Ok(())
    }

    /// Notes the rows of a piece, none longer than what is received at once.
    fn find_rows(&mut self, piece: &Piece) {
        self.rows.clear();
        self.task.pieces.rows(piece, |copy, run, len| {
            self.rows.extend((PieceRow { copy: *copy, run, len }).parts(RECEIVED_BYTES));
        });
    }

    /// Lists where rows from here on go, as many as are received at once. Returns the first that is left.
    fn lay_out(&mut self, begun: usize) -> usize {
        self.ranges.clear();
        let mut end = begun;
        for PieceRow { copy, run, len } in &self.rows[begun..] {
            if self.ranges.bytes() + len > RECEIVED_BYTES {
                break;
            }
            let target = self.task.targets[copy.target_region as usize].address();
            self.ranges.push(target + run.target, *len);
            end += 1;
        }
        end
    }
}

fn put_request(request: &mut Vec<u8>, task: &LaneTask<'_>, piece: &Piece) {
    let start = wire::begin(request, FrameKind::Read);
    wire::put(request, &[task.export.0, task.generation]);
    for span in task.pieces.spans(piece) {
        wire::put_extent(request, &span.extent(task.pieces.copies()));
    }
    wire::finish(request, start);
}

#[cfg(test)]
mod liars;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holds::Holds;
    use crate::base::id::ExportId;
    use crate::base::limits::MIN_WINDOW;
    use crate::memory::digest::digest_at;
    use crate::memory::region::Region;
    use crate::piece::copy::StridedCopy;
    use crate::piece::pieces::Pieces;
    use crate::{Auth, DataServer, Filling, Peer};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// A source of some bytes, and what it takes to read pieces of them.
    struct TcpRig {
        server: DataServer,
        peer: Peer,
        export: ExportId,
        description: Arc<ExportDescription>,
        pieces: Pieces,
        targets: [Region; 1],
        lanes: AtomicUsize,
    }

    impl TcpRig {
        /// Every other byte of a region, so many to a piece.
        fn new(places: usize, pieces: usize, bytes: usize) -> Self {
            let at = |n| StridedCopy::contiguous(0, 2 * n as u64, 0, 2 * n as u64, 1);
            let copies: Vec<StridedCopy> = (0..pieces * bytes).map(at).collect();
            Self::of(places, 2 * pieces * bytes, &copies, bytes)
        }

        /// These copies of a region of so many bytes, cut into pieces.
        fn of(places: usize, len: usize, copies: &[StridedCopy], bytes: usize) -> Self {
            let loopback = ([127, 0, 0, 1], 0).into();
            let server = DataServer::bind_for(loopback, Auth::default(), places).unwrap();
            let memory: Vec<u8> = (0..len).map(|i| (i % 253) as u8 + 1).collect();
            let export = server.exports().expose(1, vec![Region::from_bytes(&memory).unwrap()]);
            let soon = Instant::now() + Duration::from_secs(20);
            let peer = Peer::connect_by(Way::Tcp, server.addr(), &Auth::default(), soon).unwrap();
            let description = peer.describe(export, 1, &Patience::default()).unwrap();
            let targets = [Region::allocate(memory.len()).unwrap()];
            let (pieces, lanes) = (Pieces::cut(copies, bytes), AtomicUsize::new(0));
            Self { server, peer, export, description, pieces, targets, lanes }
        }

        fn task<'a>(&'a self, patience: Patience<'a>, holds: &'a Holds) -> LaneTask<'a> {
            LaneTask {
                port: self.peer.port(),
                export: self.export,
                generation: 1,
                description: &self.description,
                pieces: &self.pieces,
                targets: &self.targets,
                digests: true,
                lanes: &self.lanes,
                patience,
                holds,
            }
        }

        fn lane<'a>(&'a self, holds: &'a Holds) -> TcpLane<'a> {
            let task = self.task(Patience::default(), holds);
            let stream = self.peer.port().take(&task.patience, || true).unwrap();
            TcpLane::new(self.peer.port(), task, stream)
        }

        /// A request that keeps its connection busy.
        fn wait_for_ever(&self) -> Vec<u8> {
            let (memory, export) = (vec![Region::allocate(1).unwrap()], ExportId::random());
            let filling = Arc::new(Filling::new(&memory));
            self.server.exports().expose_filling(export, 1, memory, filling);
            let mut request = Vec::new();
            let start = wire::begin(&mut request, FrameKind::Await);
            wire::put(&mut request, &[export.0, 1, 0, 0, 1, 1, 1]);
            wire::finish(&mut request, start);
            request
        }

        /// What the source holds.
        fn memory(&self) -> Vec<u8> {
            (0..self.targets[0].len()).map(|i| (i % 253) as u8 + 1).collect()
        }

        /// Whether the bytes that were asked for are there, so many, and nothing beside.
        fn has(&self, bytes: usize) -> bool {
            let found = self.targets[0].to_vec();
            let expected = (0..found.len())
                .map(|i| if i % 2 == 0 && i < 2 * bytes { (i % 253) as u8 + 1 } else { 0 });
            found.into_iter().eq(expected)
        }
    }

    /// One whose path is known to take 64 requests, and to be too long for another measurement.
    fn wide() -> RequestWindow {
        let (trip, now) = (Duration::from_secs(3600), Instant::now());
        let mut window = RequestWindow::new(trip, now);
        (1..31).for_each(|_| window.answered(now));
        window.answered(now + trip);
        assert_eq!(window.requests(), 64);
        window
    }

    /// Asks for as many pieces as there is room for.
    fn fill_up<'a>(lane: &mut TcpLane<'a>, reading: &'a TcpRig) -> usize {
        let mut count = 0;
        while lane.has_room() {
            lane.submit(reading.pieces.draw().expect("more"));
            count += 1;
        }
        count
    }

    #[test]
    fn a_window_is_filled_up_again_once_half_of_it_has_come() {
        let (reading, holds) = (TcpRig::new(9, 200, 1), Holds::default());
        let mut lane = reading.lane(&holds);
        assert_eq!(fill_up(&mut lane, &reading), MIN_WINDOW);
        lane.window = wide();
        assert_eq!(fill_up(&mut lane, &reading), 64 - MIN_WINDOW);
        for _ in 0..31 {
            assert!(lane.poll().unwrap().is_some() && !lane.has_room());
        }
        assert!(lane.poll().unwrap().is_some());
        assert_eq!(fill_up(&mut lane, &reading), 32);
        (0..64).for_each(|_| assert!(lane.poll().unwrap().is_some()));
        assert!(lane.poll().unwrap().is_none(), "nothing is under way");
        assert_eq!((lane.asked_bytes, lane.header.is_none()), (0, true));
        assert!(reading.has(96));
    }

    /// Each byte comes once, however the rows lie to what is received at once, and is digested by its place in the tensor.
    #[test]
    fn a_piece_is_received_and_digested_in_parts() {
        const LEN: usize = 5 * RECEIVED_BYTES;
        let most = RECEIVED_BYTES as u64;
        let row = |from, to, len| StridedCopy::contiguous(0, from, 0, to, len);
        // Copies, and how many rows or parts of one have come after each call.
        let table: [(&[StridedCopy], &[usize]); 5] = [
            (&[row(0, 0, most)], &[1]),
            (&[row(3, 1, most + 1)], &[1, 2]),
            (&[row(5, 2, 3 * most - 1)], &[1, 2, 3]),
            (&[row(0, 0, most - 9), row(most, most, 9)], &[2]),
            (
                &[row(0, 0, most - 9), row(most, most, 10), row(2 * most, 2 * most, most)],
                &[1, 2, 3],
            ),
        ];
        for (copies, come) in table {
            let (reading, holds) = (TcpRig::of(9, LEN, copies, LEN), Holds::default());
            let mut lane = reading.lane(&holds);
            let piece = reading.pieces.draw().unwrap();
            lane.find_rows(piece);
            let mut found = vec![lane.lay_out(0)];
            while *found.last().unwrap() < lane.rows.len() {
                found.push(lane.lay_out(*found.last().unwrap()));
            }
            assert_eq!(found, come, "{copies:?}");
            let (memory, mut expected) = (reading.memory(), (vec![0; LEN], Digest::ZERO));
            for copy in copies {
                let (from, to) = (copy.source_offset as usize, copy.target_offset as usize);
                let row = &memory[from..from + copy.row_bytes as usize];
                expected.0[to..to + row.len()].copy_from_slice(row);
                expected.1 += digest_at(copy.position, row);
            }
            // What an answer digested to that nobody took does not count for the next.
            for taken in [false, true] {
                lane.submit(piece);
                assert!(lane.poll().unwrap().is_some());
                let mut digests = [Digest::ZERO];
                assert!(!taken || lane.digested(&mut digests) && digests == [expected.1]);
            }
            assert!(reading.targets[0].to_vec() == expected.0, "{copies:?}");
        }
    }

    /// To the byte: four requests of 8 KiB fill it.
    #[test]
    fn requests_under_way_fit_into_a_pipe() {
        let request = |extents: usize| HEADER_BYTES + 16 + 40 * extents;
        assert_eq!(4 * request(204), PIPELINE_BYTES);
        for (extents, expected) in [(203, 5), (204, 4), (205, 4)] {
            let (reading, holds) = (TcpRig::new(9, 8, extents), Holds::default());
            let mut lane = reading.lane(&holds);
            lane.window = wide();
            assert_eq!(fill_up(&mut lane, &reading), expected, "{extents}");
            assert_eq!(lane.asked_bytes, expected * request(extents));
            for _ in 0..expected {
                assert!(lane.poll().unwrap().is_some());
            }
            assert!(reading.has(expected * extents));
        }
    }

    /// What came over it is right whichever connection it is.
    #[test]
    fn a_stream_is_kept_if_nothing_is_under_way_on_it() {
        for left in [0, 1, 2] {
            let (reading, holds) = (TcpRig::new(9, 2, 1), Holds::default());
            let mut lane = reading.lane(&holds);
            assert_eq!(fill_up(&mut lane, &reading), 2);
            (left..2).for_each(|_| assert!(lane.poll().unwrap().is_some()));
            Box::new(lane).close();
            let kept = reading.peer.port().count();
            assert_eq!(kept, if left == 0 { 1 } else { 0 });
        }
    }

    /// Who finds the port full waits for a place only if nobody else reads, and there is anything
    /// to read.
    #[test]
    fn a_full_port_is_waited_for_by_who_is_alone() {
        for (lanes, drawn, waits) in [(0, false, true), (1, false, false), (0, true, false)] {
            let (reading, holds) = (TcpRig::new(1, 1, 1), Holds::default());
            // The only place is another's, who waits for what never comes.
            let (addr, forever) = (reading.server.addr(), Patience::default());
            drop(reading.peer.port().take(&forever, || true).unwrap());
            let key = Auth::default().mac_key();
            let mut other = DataStream::open(addr, &key, &forever, || true).unwrap();
            other.send(&reading.wait_for_ever(), &forever).unwrap();
            reading.lanes.store(lanes, Ordering::Release);
            if drawn {
                reading.pieces.draw().unwrap();
            }
            let deadline = Some(Instant::now() + Duration::from_millis(1_500));
            let task = reading.task(Patience { deadline, ..Patience::default() }, &holds);
            let opened = reading
                .peer
                .endpoint(reading.export, &reading.description)
                .open(task)
                .map(|lane| lane.is_some());
            let expected = if waits { Err(TransportError::Full { addr }) } else { Ok(false) };
            assert_eq!(opened, expected, "{lanes} lanes, drawn: {drawn}");
        }
    }

    #[test]
    fn a_lane_tells_its_window_of_each_answer() {
        let (reading, holds) = (TcpRig::new(9, 9, 1), Holds::default());
        let mut lane = reading.lane(&holds);
        let trip = Duration::from_secs(60);
        lane.window = RequestWindow::new(trip, Instant::now() - trip);
        fill_up(&mut lane, &reading);
        assert!(lane.poll().unwrap().is_some());
        assert_ne!(lane.window.requests(), MIN_WINDOW, "one in a trip, and it would be two");
    }
}
