//! The pieces that one source gives, or several sources of the same bytes together, each as fast as it can.
//!
//! Whoever is free draws the next piece, so that each source gives in proportion to its speed. What is left at the
//! end is what slow sources were asked for: a source that is much slower than another, or late by its own pace, is
//! recalled then, and the others are asked for those pieces.

use crate::base::limits::{PIECE_BYTES, TICK};
use crate::piece::pieces::{Piece, Pieces};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A source is recalled if another one has given so many times as much.
const MUCH_SLOWER: u64 = 2;

/// Pieces, and what each of their sources has given of them.
pub(super) struct Stock {
    pub(super) pieces: Pieces,
    /// Lanes that are open for it.
    pub(super) lanes: AtomicUsize,
    sources: Vec<SourceShare>,
}

/// One source's part in a stock, in bytes.
#[derive(Default)]
struct SourceShare {
    given: AtomicU64,
    /// Asked for, and not there yet.
    under_way: AtomicU64,
    recalled: AtomicBool,
}

impl Stock {
    /// What so many sources give.
    pub(super) fn new(pieces: Pieces, sources: usize) -> Self {
        let sources = (0..sources).map(|_| SourceShare::default()).collect();
        Self { pieces, lanes: AtomicUsize::new(0), sources }
    }

    /// The next piece, asked of this source; only one that the source is known to have, if that is said.
    pub(super) fn draw(&self, source: usize, ready: bool) -> Option<&Piece> {
        // One byte before the draw, so that nobody takes the stock for over in between.
        let under_way = &self.sources[source].under_way;
        under_way.fetch_add(1, Ordering::AcqRel);
        let piece = if ready { self.pieces.draw_ready() } else { self.pieces.draw() };
        under_way.fetch_add(piece.map_or(0, |piece| piece.bytes as u64), Ordering::AcqRel);
        under_way.fetch_sub(1, Ordering::AcqRel);
        piece
    }

    /// A piece has come from this source.
    pub(super) fn arrived(&self, source: usize, piece: &Piece) {
        let share = &self.sources[source];
        share.given.fetch_add(piece.bytes as u64, Ordering::Relaxed);
        share.under_way.fetch_sub(piece.bytes as u64, Ordering::Release);
    }

    /// This source does not give these pieces after all: others may draw them.
    pub(super) fn give_back<'a>(&self, source: usize, pieces: impl Iterator<Item = &'a Piece>) {
        for piece in pieces {
            self.pieces.give_back(piece);
            self.sources[source].under_way.fetch_sub(piece.bytes as u64, Ordering::Release);
        }
    }

    /// A lane that was opened for it is gone.
    pub(super) fn lane_ended(&self) {
        self.lanes.fetch_sub(1, Ordering::AcqRel);
    }

    /// Raised once others are to give what this source was asked for.
    pub(super) fn recalled(&self, source: usize) -> &AtomicBool {
        &self.sources[source].recalled
    }

    /// Whether a source is recalled. If all are, by workers that did not know of each other, none is any more:
    /// somebody has to give what is left.
    pub(super) fn is_recalled(&self, source: usize) -> bool {
        if self.sources.iter().all(|share| share.recalled.load(Ordering::Acquire)) {
            self.sources.iter().for_each(|share| share.recalled.store(false, Ordering::Release));
        }
        self.recalled(source).load(Ordering::Acquire)
    }

    /// Whether several sources give it.
    pub(super) fn is_shared(&self) -> bool {
        self.sources.len() > 1
    }

    /// Whether every piece has come.
    pub(super) fn is_over(&self) -> bool {
        self.pieces.is_drawn() && self.sources.iter().all(|share| share.bytes().1 == 0)
    }

    /// This source has nothing left to give: recalls those that would take much longer for what they were
    /// asked for. The fastest source never is.
    pub(super) fn recall_slower_than(&self, source: usize) {
        let mine = self.sources[source].bytes().0;
        for other in &self.sources {
            let (given, under_way) = other.bytes();
            if under_way > 0 && is_much_slower(given, mine) {
                other.recalled.store(true, Ordering::Release);
            }
        }
    }

    /// Recalls sources that are late by now, if another one has given all that it was asked for. There was
    /// nothing left to ask for at `drawn`; both since the beginning.
    pub(super) fn recall_late(&self, drawn: Duration, now: Duration) {
        let idle = |share: &SourceShare| share.bytes().0 > 0 && share.bytes().1 == 0;
        if !self.sources.iter().any(idle) {
            return;
        }
        for share in &self.sources {
            let (given, under_way) = share.bytes();
            if under_way > 0 && now > due(given, under_way, drawn) {
                share.recalled.store(true, Ordering::Release);
            }
        }
    }
}

impl SourceShare {
    /// Given, and under way.
    fn bytes(&self) -> (u64, u64) {
        (self.given.load(Ordering::Relaxed), self.under_way.load(Ordering::Acquire))
    }
}

/// When a source that has given so much until `drawn` should have given what is under way, with patience for twice as
/// long.
fn due(given: u64, under_way: u64, drawn: Duration) -> Duration {
    let share = under_way as f64 / given.max(under_way) as f64;
    drawn + TICK + drawn.mul_f64(2.0 * share)
}

/// Whether a source that has given so much is much slower than another, even if its next piece is all but there.
fn is_much_slower(given: u64, than: u64) -> bool {
    than > MUCH_SLOWER * (given + PIECE_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StridedCopy;

    /// Ten pieces of a byte each.
    fn stock(sources: usize) -> Stock {
        let copies: Vec<_> = (0..10).map(|at| StridedCopy::contiguous(0, at, 0, at, 1)).collect();
        Stock::new(Pieces::cut(&copies, 1), sources)
    }

    #[test]
    fn what_is_given_back_is_drawn_again_before_the_rest() {
        let stock = stock(2);
        let drawn: Vec<_> = (0..3).map_while(|_| stock.draw(1, false)).collect();
        let first = stock.pieces.spans(drawn[0]).to_vec();
        stock.arrived(1, drawn[1]);
        stock.give_back(1, [drawn[0], drawn[2]].into_iter());
        let again: Vec<_> = (0..2).map_while(|_| stock.draw(0, false)).collect();
        assert!(again.iter().any(|piece| stock.pieces.spans(piece) == first));
        assert!(!again.iter().any(|piece| std::ptr::eq(*piece, drawn[1])), "it has come");
        let rest = std::iter::from_fn(|| stock.draw(0, false)).count();
        assert_eq!((rest, stock.pieces.is_drawn()), (7, true));
        stock.give_back(0, again.into_iter());
        assert!(!stock.pieces.is_drawn());
        assert_eq!(std::iter::from_fn(|| stock.draw(0, false)).count(), 2);
    }

    #[test]
    fn a_source_is_late_by_its_own_pace() {
        let second = Duration::from_secs(1);
        assert_eq!(due(100, 50, second), 2 * second + TICK);
        assert_eq!(due(100, 1, second), second + TICK + second / 50);
        assert_eq!(due(0, 7, second), 3 * second + TICK, "nothing is known of it");
        assert_eq!(due(5, 50, second), 3 * second + TICK);
        let stock = stock(3);
        let [first, second_piece] = [0, 1].map(|source| stock.draw(source, false).unwrap());
        let recalled = || [0, 1, 2].map(|source| stock.is_recalled(source));
        let long = 100 * second;
        stock.recall_late(second, long);
        assert_eq!(recalled(), [false; 3], "nobody has shown to be faster");
        stock.arrived(1, second_piece);
        stock.recall_late(second, second);
        assert_eq!(recalled(), [false; 3], "it is not late");
        assert!(!stock.is_over());
        stock.recall_late(second, long);
        assert_eq!(recalled(), [true, false, false]);
        stock.give_back(0, std::iter::once(first));
        assert!(!stock.is_over(), "a piece is there to draw");
        for _ in 1..10 {
            let piece = stock.draw(2, false).unwrap();
            assert!(!stock.is_over());
            stock.arrived(2, piece);
        }
        assert!(stock.is_over());
        stock.sources.iter().for_each(|share| share.recalled.store(true, Ordering::Release));
        assert_eq!(recalled(), [false; 3]);
    }

    #[test]
    fn who_is_recalled() {
        const PIECE: u64 = PIECE_BYTES as u64;
        for (given, than, slower) in [
            (0, 0, false),
            (0, 2 * PIECE, false),
            (0, 2 * PIECE + 1, true),
            (9 * PIECE, 20 * PIECE, false),
            (9 * PIECE, 20 * PIECE + 1, true),
            (9 * PIECE, 8 * PIECE, false),
        ] {
            assert_eq!(is_much_slower(given, than), slower, "{given} beside {than}");
            for waited_for in [true, false] {
                let stock = stock(3);
                let drawn = stock.draw(0, false).expect("there are pieces");
                if !waited_for {
                    stock.give_back(0, std::iter::once(drawn));
                }
                stock.sources[0].given.store(given, Ordering::Relaxed);
                stock.sources[2].given.store(than, Ordering::Relaxed);
                stock.recall_slower_than(2);
                let recalled = [0, 1, 2].map(|source| stock.is_recalled(source));
                assert_eq!(recalled, [slower && waited_for, false, false], "{given} beside {than}");
            }
        }
    }
}
