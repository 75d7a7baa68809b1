//! Reads pieces over a stream: requests ahead, bytes straight into the targets.

use crate::copy::SourceJob;
use crate::error::TransportError;
use crate::limits::PIPELINE_BYTES;
use crate::patience::Patience;
use crate::pieces::{Piece, Pieces};
use crate::region::Region;
use crate::stream::Stream;
use crate::sys::Ranges;
use crate::window::Window;
use crate::wire::{self, HEADER_BYTES, Header, Kind};
use std::collections::VecDeque;
use std::time::Instant;

/// Reads pieces of one job over one stream, several requests under way.
pub(crate) struct TcpReader<'a> {
    job: &'a SourceJob<'a>,
    pieces: &'a Pieces,
    targets: &'a [Region],
    stream: Stream,
    patience: Patience<'a>,
    /// The source is being filled itself.
    filling: bool,
    /// Pieces asked for and not yet answered, with the sizes of their requests.
    asked: VecDeque<(&'a Piece, usize)>,
    asked_bytes: usize,
    window: Window,
    request: Vec<u8>,
    ranges: Ranges,
    /// The next answer's header, if it came with the last answer's end.
    header: Option<Header>,
    /// Whether a piece has come over this stream.
    answered: bool,
}

impl<'a> TcpReader<'a> {
    pub(crate) fn new(
        job: &'a SourceJob<'a>,
        pieces: &'a Pieces,
        targets: &'a [Region],
        stream: Stream,
        patience: Patience<'a>,
        filling: bool,
    ) -> Self {
        let window = Window::new(stream.round_trip(), Instant::now());
        Self {
            job,
            pieces,
            targets,
            window,
            stream,
            patience,
            filling,
            asked: VecDeque::new(),
            asked_bytes: 0,
            request: Vec::new(),
            ranges: Ranges::default(),
            header: None,
            answered: false,
        }
    }

    /// The stream, to be kept: nothing is under way on it.
    pub(crate) fn into_stream(self) -> Option<Stream> {
        (self.asked.is_empty() && self.header.is_none()).then_some(self.stream)
    }

    /// Asks for pieces ahead and receives one. `None` when there are no more. A source closes
    /// connections between two requests when it needs their places: then a new one goes on.
    ///
    /// # Errors
    /// Any; the stream must then be dropped.
    pub(crate) fn next(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        self.draw_ahead();
        let Some(&(piece, request)) = self.asked.front() else { return Ok(None) };
        match self.answer(piece) {
            Err(TransportError::SourceGone { .. }) if self.answered => {
                self.go_on()?;
                self.answer(piece)?;
            }
            answered => answered?,
        }
        self.asked.pop_front();
        self.asked_bytes -= request;
        self.answered = true;
        self.window.answered(Instant::now());
        Ok(Some(piece))
    }

    /// Asks on a new stream for all that was not answered on the last one.
    fn go_on(&mut self) -> Result<(), TransportError> {
        self.stream.open_again(&self.patience)?;
        (self.header, self.answered) = (None, false);
        self.request.clear();
        for (piece, _) in &self.asked {
            put_request(&mut self.request, self.job, self.pieces, piece);
        }
        Ok(())
    }

    /// Receives the answer for the piece that was asked for first.
    fn answer(&mut self, piece: &'a Piece) -> Result<(), TransportError> {
        let header = match self.header.take() {
            Some(header) => {
                self.stream.send(&self.request, &self.patience)?;
                header
            }
            // Nothing else is under way.
            None => self.stream.begin(&self.request, &self.patience)?,
        };
        self.stream
            .expect(header, Kind::Data)
            .map_err(|error| error.while_reading(self.job.export))?;
        if header.body != piece.bytes {
            return Err(self.stream.protocol("length of an answer"));
        }
        self.receive(piece)
    }

    /// Draws pieces and writes requests for them, as many as the source surely takes. Several at
    /// a time: what arrives together is answered with fewer system calls.
    fn draw_ahead(&mut self) {
        self.request.clear();
        let window = self.window.requests();
        if self.asked.len() > window / 2 {
            return;
        }
        while self.asked.len() < window
            && (self.asked.is_empty() || self.asked_bytes < PIPELINE_BYTES)
        {
            let Some(piece) = self.pieces.draw() else { break };
            let start = self.request.len();
            put_request(&mut self.request, self.job, self.pieces, piece);
            self.asked.push_back((piece, self.request.len() - start));
            self.asked_bytes += self.request.len() - start;
        }
    }

    /// Receives a piece's bytes, their end, and the next header if one will come.
    fn receive(&mut self, piece: &Piece) -> Result<(), TransportError> {
        let mut behind = [0_u8; 2 * HEADER_BYTES];
        // A source that is being filled may be long in coming to the next answer.
        let more = self.asked.len() > 1 && !self.filling;
        let behind_bytes = if more { 2 * HEADER_BYTES } else { HEADER_BYTES };
        self.ranges.clear();
        self.pieces.rows(piece, |copy, row, len| {
            let target = self.targets[copy.target_region as usize].address();
            self.ranges.push(target + row.target, len);
        });
        self.ranges.push_apart(behind.as_mut_ptr().expose_provenance() as u64, behind_bytes);
        // SAFETY: the last range is ours; the others lie in writable target regions (checked
        // before the transfer), which their owners keep mapped.
        unsafe { self.stream.receive_into(&mut self.ranges, &self.patience) }?;
        let (end, next) = behind.split_first_chunk().expect("two headers");
        let end = self.stream.decoded(Header::decode(end))?;
        self.stream.expect(end, Kind::End)?;
        if more {
            let next = next.first_chunk().expect("two headers");
            self.header = Some(self.stream.decoded(Header::decode(next))?);
        }
        if end.status != 0 {
            return Err(TransportError::Fenced { export: self.job.export });
        }
        Ok(())
    }
}

fn put_request(request: &mut Vec<u8>, job: &SourceJob<'_>, pieces: &Pieces, piece: &Piece) {
    let start = wire::begin(request, Kind::Read);
    wire::put(request, &[job.export.0, job.generation]);
    for span in pieces.spans(piece) {
        wire::put_extent(request, &span.extent(pieces.copies()));
    }
    wire::finish(request, start);
}
