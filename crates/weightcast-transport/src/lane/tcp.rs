//! Reads pieces over a stream: requests ahead, bytes straight into the targets.

use super::window::Window;
use super::{Abilities, Endpoint, Lane, LaneTask, OpenLane};
use crate::connect::Way;
use crate::error::TransportError;
use crate::exports::ExportId;
use crate::holds::HoldPoint;
use crate::limits::PIPELINE_BYTES;
use crate::patience::Patience;
use crate::pieces::Piece;
use crate::pool::Pool;
use crate::stream::Stream;
use crate::sys::Ranges;
use crate::wire::{self, Description, HEADER_BYTES, Header, Kind};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Endpoint for Pool {
    fn way(&self) -> Way {
        Way::Tcp
    }

    fn abilities(&self) -> Abilities {
        Abilities { computed: true, ahead: true }
    }

    fn describe(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<Description, TransportError> {
        let request = wire::named(Kind::Describe, export, generation);
        let description =
            self.ask(&request, Kind::Description, patience, wire::decode_description)?;
        Ok(description.without_addresses())
    }

    /// Whoever answers on a connection is who shook hands on it.
    fn verify(&self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Where the source has no place left, whoever has one reads all there is.
    fn open<'a>(&'a self, task: LaneTask<'a>) -> Result<Option<OpenLane<'a>>, TransportError> {
        let alone = || task.lanes.load(Ordering::Acquire) == 0 && !task.pieces.is_drawn();
        let stream = match self.take(&task.patience, alone) {
            Err(TransportError::Full { .. }) if !alone() => return Ok(None),
            taken => taken?,
        };
        Ok(Some(Box::new(TcpLane::new(self, task, stream))))
    }
}

/// Reads pieces of one job over one stream, several requests under way.
struct TcpLane<'a> {
    pool: &'a Pool,
    task: LaneTask<'a>,
    stream: Stream,
    /// Pieces asked for and not yet answered, with the sizes of their requests.
    asked: VecDeque<(&'a Piece, usize)>,
    asked_bytes: usize,
    window: Window,
    /// Whether the window is being filled up.
    asking: bool,
    /// Requests that are not sent yet.
    request: Vec<u8>,
    ranges: Ranges,
    /// The next answer's header, if it came with the last answer's end.
    header: Option<Header>,
    /// Whether a piece has come over this stream.
    answered: bool,
}

impl<'a> Lane<'a> for TcpLane<'a> {
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

    /// The stream is kept if nothing is under way on it.
    fn close(self: Box<Self>) {
        if self.asked.is_empty() && self.header.is_none() {
            self.pool.give_back(self.stream);
        }
    }
}

impl<'a> TcpLane<'a> {
    fn new(pool: &'a Pool, task: LaneTask<'a>, stream: Stream) -> Self {
        let window = Window::new(stream.round_trip(), Instant::now());
        Self {
            pool,
            task,
            window,
            stream,
            asked: VecDeque::new(),
            asked_bytes: 0,
            asking: false,
            request: Vec::new(),
            ranges: Ranges::default(),
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
            .expect(header, Kind::Data)
            .map_err(|error| error.while_reading(self.task.export))?;
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
        self.ranges.clear();
        self.task.pieces.rows(piece, |copy, row, len| {
            let target = self.task.targets[copy.target_region as usize].address();
            self.ranges.push(target + row.target, len);
        });
        self.ranges.push_apart(behind.as_mut_ptr().expose_provenance() as u64, behind_bytes);
        // SAFETY: the last range is ours; the others lie in writable target regions (checked
        // before the transfer), which their owners keep mapped.
        unsafe { self.stream.receive_into(&mut self.ranges, &self.task.patience) }?;
        let (end, next) = behind.split_first_chunk().expect("two headers");
        let end = self.stream.decoded(Header::decode(end))?;
        self.stream.expect(end, Kind::End)?;
        if more {
            let next = next.first_chunk().expect("two headers");
            self.header = Some(self.stream.decoded(Header::decode(next))?);
        }
        if end.status != 0 {
            return Err(TransportError::Fenced { export: self.task.export });
        }
        Ok(())
    }
}

fn put_request(request: &mut Vec<u8>, task: &LaneTask<'_>, piece: &Piece) {
    let start = wire::begin(request, Kind::Read);
    wire::put(request, &[task.export.0, task.generation]);
    for span in task.pieces.spans(piece) {
        wire::put_extent(request, &span.extent(task.pieces.copies()));
    }
    wire::finish(request, start);
}
