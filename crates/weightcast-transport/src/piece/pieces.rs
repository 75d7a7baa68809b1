//! Cuts copies into pieces: small enough to be digested while hot, large enough to be worth a
//! system call.

use crate::base::limits::{MAX_PIECE_EXTENTS, MAX_PIECE_ROWS};
use crate::base::lock::lock;
use crate::piece::copy::StridedCopy;
use crate::piece::extent::Extent;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A part of one copy: `rows` runs of `len` bytes, from byte `from` of row `row` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyPart {
    copy: usize,
    row: u64,
    pub(crate) rows: u64,
    from: u64,
    pub(crate) len: u64,
}

/// One run of bytes: where it lies at the source, at the target and in its logical tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunOffsets {
    pub(crate) source: u64,
    pub(crate) target: u64,
    pub(crate) position: u64,
}

impl CopyPart {
    pub(crate) fn copy<'a>(&self, copies: &'a [StridedCopy]) -> &'a StridedCopy {
        &copies[self.copy]
    }

    /// Run `row` of the part.
    #[inline]
    pub(crate) fn row(&self, copy: &StridedCopy, row: u64) -> RunOffsets {
        let row = self.row + row;
        RunOffsets {
            source: copy.source_offset + row * copy.source_pitch + self.from,
            target: copy.target_offset + row * copy.target_pitch + self.from,
            position: copy.position + row * copy.position_pitch + self.from,
        }
    }

    /// What to ask of the source.
    pub(crate) fn extent(&self, copies: &[StridedCopy]) -> Extent {
        let copy = self.copy(copies);
        Extent {
            region: copy.source_region,
            offset: self.row(copy, 0).source,
            row_bytes: self.len,
            rows: self.rows,
            pitch: copy.source_pitch,
        }
    }

    /// Where it goes.
    pub(crate) fn extent_at_target(&self, copies: &[StridedCopy]) -> Extent {
        let copy = self.copy(copies);
        Extent {
            region: copy.target_region,
            offset: self.row(copy, 0).target,
            row_bytes: self.len,
            rows: self.rows,
            pitch: copy.target_pitch,
        }
    }
}

/// Spans that are moved together.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    number: usize,
    spans: Range<usize>,
    pub(crate) bytes: usize,
}

/// The pieces of one job, drawn by any number of workers.
pub(crate) struct Pieces {
    copies: Vec<StridedCopy>,
    spans: Vec<CopyPart>,
    pieces: Vec<Piece>,
    next: AtomicUsize,
    /// By number, whether a piece is drawn; how many are not.
    drawn: Vec<AtomicBool>,
    left: AtomicUsize,
    /// Numbers of pieces that were drawn in vain.
    returned: Mutex<Vec<usize>>,
    /// How many these are: they are looked at only where there are some.
    returns: AtomicUsize,
    /// Numbers of pieces that the source is known to have, and how many these are. Some may be drawn.
    ready: Mutex<VecDeque<usize>>,
    readies: AtomicUsize,
}

impl Pieces {
    /// Cuts checked copies into pieces of at most so many bytes; empty ones leave nothing.
    pub(crate) fn cut(copies: &[StridedCopy], size: usize) -> Self {
        let copies: Vec<StridedCopy> = copies.iter().map(|copy| copy.flattened()).collect();
        let mut cutter = Cutter { size, ..Cutter::default() };
        for (index, copy) in copies.iter().enumerate() {
            cutter.copy(index, copy);
        }
        cutter.close();
        let Cutter { spans, pieces, .. } = cutter;
        let drawn = pieces.iter().map(|_| AtomicBool::new(false)).collect();
        let left = AtomicUsize::new(pieces.len());
        let (next, returned, returns, ready, readies) = Default::default();
        Self { copies, spans, pieces, next, drawn, left, returned, returns, ready, readies }
    }

    /// The next piece that no worker has drawn, or has drawn in vain: of those that are ready, else of all.
    pub(crate) fn draw(&self) -> Option<&Piece> {
        if let Some(piece) = self.draw_ready() {
            return Some(piece);
        }
        loop {
            let piece = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed))?;
            if self.claim(piece.number) {
                return Some(piece);
            }
        }
    }

    /// The next piece of those that are ready: drawn in vain, or known to be at the source.
    pub(crate) fn draw_ready(&self) -> Option<&Piece> {
        while self.has_ready() {
            if let Some(number) = self.take_returned() {
                return self.pieces.get(number);
            }
            let mut ready = lock(&self.ready);
            let number = ready.pop_front();
            self.readies.store(ready.len(), Ordering::Release);
            if let Some(number) = number.filter(|number| self.claim(*number)) {
                return self.pieces.get(number);
            }
        }
        None
    }

    /// Whether there may be a piece that is ready: of those at the source, some may be drawn.
    pub(crate) fn has_ready(&self) -> bool {
        self.returns.load(Ordering::Acquire) > 0 || self.readies.load(Ordering::Acquire) > 0
    }

    /// The source is known to have the pieces of these numbers: they are drawn before others.
    pub(crate) fn make_ready(&self, numbers: impl Iterator<Item = usize>) {
        let mut ready = lock(&self.ready);
        ready.extend(numbers.filter(|number| !self.drawn[*number].load(Ordering::Acquire)));
        self.readies.store(ready.len(), Ordering::Release);
    }

    /// Whether this call is the one that draws a piece.
    fn claim(&self, number: usize) -> bool {
        let first = !self.drawn[number].swap(true, Ordering::AcqRel);
        self.left.fetch_sub(usize::from(first), Ordering::AcqRel);
        first
    }

    fn take_returned(&self) -> Option<usize> {
        let mut returned = lock(&self.returned);
        let number = returned.pop()?;
        self.returns.store(returned.len(), Ordering::Release);
        Some(number)
    }

    fn last_returned(&self) -> Option<usize> {
        let some = self.returns.load(Ordering::Acquire) > 0;
        some.then(|| lock(&self.returned).last().copied()).flatten()
    }

    /// A worker that has drawn a piece will not move it.
    pub(crate) fn give_back(&self, piece: &Piece) {
        let mut returned = lock(&self.returned);
        returned.push(piece.number);
        self.returns.store(returned.len(), Ordering::Release);
    }

    /// True if nothing is left to draw.
    pub(crate) fn is_drawn(&self) -> bool {
        self.returns.load(Ordering::Acquire) == 0 && self.left.load(Ordering::Acquire) == 0
    }

    /// Where the next piece goes: target region and offset. `None` if nothing is left to draw.
    pub(crate) fn next_target(&self) -> Option<(u32, u64)> {
        let mut next = self.next.load(Ordering::Relaxed)..self.pieces.len();
        let undrawn = || next.find(|number| !self.drawn[*number].load(Ordering::Acquire));
        let piece = self.pieces.get(self.last_returned().or_else(undrawn)?)?;
        let span = self.spans(piece).first()?;
        let copy = span.copy(&self.copies);
        Some((copy.target_region, span.row(copy, 0).target))
    }

    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The piece of a number below their count.
    pub(crate) fn get(&self, number: usize) -> &Piece {
        &self.pieces[number]
    }

    pub(crate) fn copies(&self) -> &[StridedCopy] {
        &self.copies
    }

    pub(crate) fn spans(&self, piece: &Piece) -> &[CopyPart] {
        &self.spans[piece.spans.clone()]
    }

    /// Calls `each` with the copy, place and length of every row of a piece, in order.
    pub(crate) fn rows(
        &self,
        piece: &Piece,
        mut each: impl FnMut(&StridedCopy, RunOffsets, usize),
    ) {
        for span in self.spans(piece) {
            let copy = span.copy(&self.copies);
            for row in 0..span.rows {
                each(copy, span.row(copy, row), span.len as usize);
            }
        }
    }
}

#[derive(Default)]
struct Cutter {
    /// Most bytes of a piece.
    size: usize,
    spans: Vec<CopyPart>,
    pieces: Vec<Piece>,
    /// First span, bytes and rows of the piece being filled.
    first: usize,
    bytes: usize,
    rows: usize,
}

impl Cutter {
    fn copy(&mut self, index: usize, copy: &StridedCopy) {
        if copy.row_bytes == 0 {
            return;
        }
        if copy.row_bytes >= self.size as u64 {
            return self.long_rows(index, copy);
        }
        let mut row = 0;
        while row < copy.rows {
            if self.is_full(copy.row_bytes as usize) {
                self.close();
            }
            let room = (self.size - self.bytes) as u64 / copy.row_bytes;
            let rows = room.min((MAX_PIECE_ROWS - self.rows) as u64).min(copy.rows - row);
            self.push(CopyPart { copy: index, row, rows, from: 0, len: copy.row_bytes });
            row += rows;
        }
    }

    /// Rows of a piece or more are cut inside. Full pieces keep the digest's blocks whole.
    fn long_rows(&mut self, index: usize, copy: &StridedCopy) {
        for row in 0..copy.rows {
            let mut from = 0;
            while from < copy.row_bytes {
                self.close();
                let len = (copy.row_bytes - from).min(self.size as u64);
                self.push(CopyPart { copy: index, row, rows: 1, from, len });
                from += len;
            }
        }
    }

    fn is_full(&self, more: usize) -> bool {
        self.bytes + more > self.size
            || self.rows >= MAX_PIECE_ROWS
            || self.spans.len() - self.first >= MAX_PIECE_EXTENTS
    }

    fn push(&mut self, span: CopyPart) {
        self.bytes += (span.rows * span.len) as usize;
        self.rows += span.rows as usize;
        self.spans.push(span);
    }

    fn close(&mut self) {
        if self.spans.len() > self.first {
            let (number, spans) = (self.pieces.len(), self.first..self.spans.len());
            self.pieces.push(Piece { number, spans, bytes: self.bytes });
        }
        (self.first, self.bytes, self.rows) = (self.spans.len(), 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::PIECE_BYTES;
    use proptest::prelude::*;

    fn copies() -> impl Strategy<Value = Vec<StridedCopy>> {
        let row_bytes = prop_oneof![0_u64..100, 1_000_u64..9_000, 200_000_u64..900_000];
        prop::collection::vec((row_bytes, 0_u64..40, 0_u64..50, any::<bool>()), 0..400).prop_map(
            |shapes| {
                let copy = |(row_bytes, rows, gap, dense): (u64, u64, u64, bool)| StridedCopy {
                    source_region: 0,
                    source_offset: 3,
                    source_pitch: if dense { row_bytes } else { row_bytes + gap },
                    target_region: 0,
                    target_offset: 7,
                    target_pitch: row_bytes,
                    row_bytes,
                    rows,
                    slot: 0,
                    position: 11,
                    position_pitch: row_bytes,
                };
                shapes.into_iter().map(copy).collect()
            },
        )
    }

    #[test]
    fn what_is_ready_is_drawn_first_and_everything_once() {
        let copies: Vec<_> = (0..9).map(|at| StridedCopy::contiguous(0, at, 0, at, 1)).collect();
        let pieces = Pieces::cut(&copies, 1);
        let drawn = |piece: Option<&Piece>| piece.map(|piece| piece.number);
        assert_eq!((drawn(pieces.draw_ready()), drawn(pieces.draw())), (None, Some(0)));
        pieces.make_ready([0, 2, 5, 6].into_iter());
        assert!(pieces.has_ready());
        assert_eq!(drawn(pieces.draw_ready()), Some(2));
        pieces.make_ready([5, 8].into_iter());
        assert_eq!([(); 3].map(|()| drawn(pieces.draw())), [5, 6, 8].map(Some), "not 5 again");
        assert_eq!((pieces.has_ready(), drawn(pieces.draw_ready())), (false, None));
        assert_eq!([(); 2].map(|()| drawn(pieces.draw())), [1, 3].map(Some));
        assert_eq!((pieces.next_target(), pieces.is_drawn()), (Some((0, 4)), false));
        assert_eq!([(); 2].map(|()| drawn(pieces.draw())), [4, 7].map(Some));
        assert_eq!((pieces.next_target(), pieces.is_drawn()), (None, true));
        pieces.give_back(pieces.get(5));
        assert_eq!((pieces.next_target(), pieces.is_drawn()), (Some((0, 5)), false));
        assert!(pieces.has_ready());
        assert_eq!([(); 2].map(|()| drawn(pieces.draw_ready())), [Some(5), None]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn pieces_cover_every_byte_once_in_order_and_within_limits(
            copies in copies(),
            size in prop_oneof![Just(PIECE_BYTES), Just(64 << 10)],
        ) {
            let pieces = Pieces::cut(&copies, size);
            let mut next = copies.iter().flat_map(|copy| {
                (0..copy.rows).map(move |row| (row * copy.source_pitch + 3, row * copy.row_bytes))
                    .flat_map(move |(source, at)| [source, at, copy.row_bytes].into_iter())
            });
            let (mut source, mut at, mut left) = (0, 0, 0);
            while let Some(piece) = pieces.draw() {
                let (mut bytes, mut rows) = (0, 0);
                let mut wrong = false;
                pieces.rows(piece, |_, mut row, mut len| {
                    (bytes, rows) = (bytes + len, rows + 1);
                    while len > 0 {
                        while left == 0 {
                            source = next.next().unwrap();
                            (at, left) = (next.next().unwrap(), next.next().unwrap());
                        }
                        let step = left.min(len as u64);
                        wrong |= row != RunOffsets { source, target: at + 7, position: at + 11 };
                        (source, at, left) = (source + step, at + step, left - step);
                        row = RunOffsets { source, target: at + 7, position: at + 11 };
                        len -= step as usize;
                    }
                });
                prop_assert!(!wrong);
                prop_assert_eq!(bytes, piece.bytes);
                prop_assert!(bytes <= size && rows <= MAX_PIECE_ROWS);
                prop_assert!(pieces.spans(piece).len() <= MAX_PIECE_EXTENTS);
            }
            prop_assert_eq!(left, 0);
            let rest: Vec<u64> = next.collect();
            prop_assert!(rest.chunks(3).all(|row| row[2] == 0));
        }
    }

    /// Bytes, rows and spans of each piece, by a walk over rows: as much of a copy as there is room
    /// for, and of a long row each cut alone but for what follows the last.
    fn filled_up(copies: &[StridedCopy], size: u64) -> Vec<(u64, usize, usize)> {
        let mut pieces: Vec<(u64, usize, usize)> = Vec::new();
        for copy in copies.iter().map(|copy| copy.flattened()).filter(|copy| copy.row_bytes > 0) {
            let mut last_of_copy = None;
            for _ in 0..copy.rows {
                if copy.row_bytes >= size {
                    let cuts = copy.row_bytes.div_ceil(size);
                    let whole = (1..cuts).map(|_| (size, 1, 1));
                    pieces.extend(whole.chain([(copy.row_bytes - (cuts - 1) * size, 1, 1)]));
                    continue;
                }
                let goes_on = last_of_copy.is_some_and(|at| at + 1 == pieces.len());
                match pieces.last_mut() {
                    Some((bytes, rows, spans))
                        if *bytes + copy.row_bytes <= size
                            && *rows < MAX_PIECE_ROWS
                            && (goes_on || *spans < MAX_PIECE_EXTENTS) =>
                    {
                        *bytes += copy.row_bytes;
                        *rows += 1;
                        *spans += usize::from(!goes_on);
                    }
                    _ => pieces.push((copy.row_bytes, 1, 1)),
                }
                last_of_copy = Some(pieces.len() - 1);
            }
        }
        pieces
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn pieces_are_filled_up(
            copies in copies(),
            size in prop_oneof![Just(PIECE_BYTES), Just(64 << 10), Just(50_000)],
        ) {
            let pieces = Pieces::cut(&copies, size);
            let expected = filled_up(&copies, size as u64);
            prop_assert_eq!(pieces.count(), expected.len());
            for (number, expected) in expected.into_iter().enumerate() {
                let next = pieces.next_target();
                prop_assert!(!pieces.is_drawn());
                let piece = pieces.draw().unwrap();
                let (mut rows, mut first) = (0, None);
                pieces.rows(piece, |copy, row, _| {
                    first.get_or_insert((copy.target_region, row.target));
                    rows += 1;
                });
                let spans = pieces.spans(piece);
                let found = (piece.bytes as u64, rows, spans.len());
                prop_assert_eq!(found, expected, "piece {}", number);
                prop_assert_eq!(next, first);
                // What is asked of the source is what is expected of it.
                let asked = spans.iter().map(|span| span.extent(pieces.copies()));
                let asked: Vec<_> = asked
                    .flat_map(|e| e.runs().map(move |at| (e.region, at, e.row_bytes)))
                    .collect();
                let mut taken = Vec::new();
                pieces.rows(piece, |copy, row, len| {
                    taken.push((copy.source_region, row.source, len as u64));
                });
                prop_assert_eq!(asked, taken);
            }
            prop_assert!(pieces.is_drawn() && pieces.draw().is_none());
            prop_assert_eq!(pieces.next_target(), None);
            prop_assert!(pieces.is_drawn());
        }
    }

    #[test]
    fn each_bound_of_a_piece_is_kept_to_the_last() {
        let tiny = |at: u64, bytes: u64| StridedCopy::contiguous(0, at, 0, at, bytes);
        let cut = |copies: &[StridedCopy], size: usize| {
            let pieces = Pieces::cut(copies, size);
            let of = |piece: &Piece| (piece.bytes, pieces.spans(piece).len());
            std::iter::from_fn(|| pieces.draw().map(of)).collect::<Vec<_>>()
        };
        let many = |count: usize| (0..count as u64).map(|n| tiny(9 * n, 1)).collect::<Vec<_>>();
        let most = MAX_PIECE_EXTENTS;
        assert_eq!(cut(&many(most), 1 << 20), [(most, most)]);
        assert_eq!(cut(&many(most + 1), 1 << 20), [(most, most), (1, 1)]);
        let rows = |rows| StridedCopy { rows, source_pitch: 5, ..tiny(0, 2) };
        let most = MAX_PIECE_ROWS;
        assert_eq!(cut(&[rows(most as u64)], 1 << 20), [(2 * most, 1)]);
        assert_eq!(cut(&[rows(most as u64 + 1)], 1 << 20), [(2 * most, 1), (2, 1)]);
        assert_eq!(cut(&[rows(most as u64 - 1), rows(2)], 1 << 20), [(2 * most, 2), (2, 1)]);
        assert_eq!(cut(&[rows(3), tiny(0, 4)], 10), [(10, 2)]);
        assert_eq!(cut(&[rows(3), tiny(0, 5)], 10), [(6, 1), (5, 1)]);
        assert_eq!(cut(&[tiny(0, 9), tiny(0, 1), tiny(0, 1)], 10), [(10, 2), (1, 1)]);
        assert_eq!(cut(&[tiny(0, 10), tiny(0, 11), tiny(0, 9)], 10), [(10, 1), (10, 1), (10, 2)]);
        assert_eq!(cut(&[tiny(0, 0), StridedCopy { rows: 0, ..tiny(0, 7) }], 10), []);
    }
}
