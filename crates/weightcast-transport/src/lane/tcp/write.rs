//! Writes pieces over a stream: several under way, bytes straight from the memory of this process.

use crate::base::error::TransportError;
use crate::base::holds::HoldPoint;
use crate::base::limits::WRITE_WINDOW;
use crate::lane::endpoint::{Lane, OpenLane, WriteEndpoint};
use crate::lane::task::{WriteTask, is_alone};
use crate::memory::sys::Ranges;
use crate::piece::pieces::Piece;
use crate::wire::FrameKind;
use crate::wire::pool::Pool;
use crate::wire::stream::DataStream;
use crate::wire::write_frame::WriteClaim;
use std::collections::VecDeque;
use std::sync::Arc;

impl WriteEndpoint for Arc<Pool> {
    /// If the target has no place left, the lanes that have one write everything.
    fn open_writer<'a>(
        &'a self,
        task: WriteTask<'a>,
    ) -> Result<Option<OpenLane<'a>>, TransportError> {
        let stream = super::take(self, &task.patience, || is_alone(task.lanes, task.pieces))?;
        Ok(stream.map(|stream| Box::new(TcpWriteLane::new(self, task, stream)) as OpenLane<'a>))
    }
}

/// Writes pieces of one job over one stream.
struct TcpWriteLane<'a> {
    pool: &'a Pool,
    task: WriteTask<'a>,
    stream: DataStream,
    /// Pieces that were not answered yet; of these, so many were sent.
    asked: VecDeque<&'a Piece>,
    sent: usize,
    /// Whether a piece was answered over this stream.
    answered: bool,
    head: Vec<u8>,
    made: Vec<u8>,
    ranges: Ranges,
}

impl<'a> Lane<'a> for TcpWriteLane<'a> {
    fn has_room(&mut self) -> bool {
        self.asked.len() < WRITE_WINDOW
    }

    fn submit(&mut self, piece: &'a Piece) {
        self.task.holds.at(HoldPoint::Asking);
        self.asked.push_back(piece);
    }

    /// A target closes connections between two requests when it needs their places: then a new one goes
    /// on. A piece that was written twice is the same as one that was written once.
    fn poll(&mut self) -> Result<Option<&'a Piece>, TransportError> {
        let Some(&piece) = self.asked.front() else { return Ok(None) };
        let may_be_closed = self.answered || self.stream.is_resting();
        match self.exchange() {
            Err(TransportError::SourceGone { .. }) if may_be_closed => {
                self.stream.open_again(&self.task.patience)?;
                (self.sent, self.answered) = (0, false);
                self.exchange()?;
            }
            answered => answered?,
        }
        self.asked.pop_front();
        self.sent -= 1;
        self.answered = true;
        Ok(Some(piece))
    }

    /// The stream is kept if nothing is under way on it.
    fn close(self: Box<Self>) {
        if self.asked.is_empty() {
            self.pool.give_back(self.stream);
        }
    }
}

impl<'a> TcpWriteLane<'a> {
    fn new(pool: &'a Pool, task: WriteTask<'a>, stream: DataStream) -> Self {
        let (head, made, ranges) = (Vec::new(), Vec::new(), Ranges::default());
        let (asked, sent, answered) = (VecDeque::new(), 0, false);
        Self { pool, task, stream, asked, sent, answered, head, made, ranges }
    }

    /// Sends what was not sent yet, and takes the answer to the piece that was asked for first.
    fn exchange(&mut self) -> Result<(), TransportError> {
        while let Some(&piece) = self.asked.get(self.sent) {
            self.send(piece)?;
            self.sent += 1;
        }
        let header = self.stream.header(&self.task.patience)?;
        self.stream.expect(header, FrameKind::Written)?;
        if header.body != 0 {
            return Err(self.stream.protocol("length of an answer"));
        }
        Ok(())
    }

    fn send(&mut self, piece: &Piece) -> Result<(), TransportError> {
        let WriteTask { grant, key, pieces, .. } = self.task;
        let spans = pieces.spans(piece).iter();
        let extents = spans.map(|span| span.extent_at_target(pieces.copies())).collect();
        let claim = WriteClaim { grant: grant.id, generation: grant.generation, extents };
        self.head.clear();
        self.stream.put_write(&mut self.head, &claim, key);
        self.gather(piece);
        // SAFETY: the ranges are of this lane's buffers, which stay as they are, and of checked copies of
        // source regions, whose owners keep them readable.
        unsafe { self.stream.send_from(&mut self.ranges, &self.task.patience) }
    }

    /// Collects the frame's head and the bytes of a piece. Bytes without an address are made first.
    fn gather(&mut self, piece: &Piece) {
        let WriteTask { pieces, sources, .. } = self.task;
        self.ranges.clear();
        self.ranges.push(self.head.as_ptr().expose_provenance() as u64, self.head.len());
        // As long as the piece, so that the ranges of what is made keep their place.
        self.made.resize(piece.bytes, 0);
        let mut filled = 0;
        pieces.rows(piece, |copy, row, len| {
            let source = &sources[copy.source_region as usize];
            if source.is_computed() {
                let made = &mut self.made[filled..filled + len];
                source.read_at(row.source as usize, made).expect("checked");
                self.ranges.push(made.as_ptr().expose_provenance() as u64, len);
                filled += len;
            } else {
                self.ranges.push(source.address() + row.source, len);
            }
        });
    }
}

#[cfg(test)]
mod tests;
