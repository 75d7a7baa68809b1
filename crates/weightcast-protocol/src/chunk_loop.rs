//! One shard's read as a state machine: which chunk next, when to look how far the source is, and
//! what this shard may tell its own readers.
//!
//! Whoever drives it lends it only reads, loads and stores: it takes [`ChunkLoop::next`], does what
//! that says, and reports [`ChunkLoop::arrived`] or [`ChunkLoop::looked`]. Several chunks may be on
//! their way at once.

use std::collections::BTreeSet;

use crate::progress::{Progress, Reading};
use crate::{Generation, Span, Time};

/// The first pause between two looks at a source that has nothing new; doubles up to [`LONGEST`].
const SHORTEST: Span = Span::from_millis(1);

/// The longest such pause.
const LONGEST: Span = Span::from_millis(32);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read this chunk; then report `arrived`.
    Read(u32),
    /// Load the source's progress word; then report `looked`.
    Look,
    /// Nothing before then, unless a chunk arrives.
    Wait(Time),
    /// Nothing before a chunk arrives that was asked for.
    Busy,
    /// All chunks are there.
    Done,
    /// The source answers but has had nothing new for too long: give it up.
    Stalled,
}

/// The source has moved on from the generation that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedOn;

/// A source that is being filled itself.
#[derive(Clone, Debug)]
struct Upstream {
    generation: Generation,
    /// How long it may have nothing new.
    patience: Span,
    moved_at: Time,
    look_at: Time,
    pause: Span,
    /// A progress word of another generation counts as well: the mutant.
    untagged: bool,
}

/// The read of one shard's chunks from one source.
#[derive(Clone, Debug)]
pub struct ChunkLoop {
    chunks: u32,
    /// Chunks that the source has.
    available: u32,
    next: u32,
    /// The first so many chunks are here.
    count: u32,
    /// Chunks that are here beyond them.
    beyond: BTreeSet<u32>,
    upstream: Option<Upstream>,
}

impl ChunkLoop {
    /// Reads all of `chunks` but the first `kept`, which are here already and verified, from a
    /// source that has them all.
    pub fn new(chunks: u32, kept: u32) -> Self {
        let count = kept.min(chunks);
        let beyond = BTreeSet::new();
        Self { chunks, available: chunks, next: count, count, beyond, upstream: None }
    }

    /// The same from a source that is being filled itself and serves at `generation`; it is given
    /// up once it has had nothing new for `patience`.
    pub fn following(
        chunks: u32,
        kept: u32,
        generation: Generation,
        patience: Span,
        now: Time,
    ) -> Self {
        let upstream = Upstream {
            generation,
            patience,
            moved_at: now,
            look_at: now,
            pause: SHORTEST,
            untagged: false,
        };
        let read = Self::new(chunks, kept);
        Self { available: read.count, upstream: Some(upstream), ..read }
    }

    /// Takes progress of any generation for the source's, so that a test rig can show that it
    /// notices.
    #[doc(hidden)]
    pub fn untagged(mut self, untagged: bool) -> Self {
        if let Some(upstream) = &mut self.upstream {
            upstream.untagged = untagged;
        }
        self
    }

    /// What to do next.
    pub fn next(&mut self, now: Time) -> Next {
        if self.count == self.chunks {
            return Next::Done;
        }
        if self.next < self.available {
            self.next += 1;
            return Next::Read(self.next - 1);
        }
        let Some(upstream) = self.upstream.as_ref().filter(|_| self.available < self.chunks) else {
            return Next::Busy;
        };
        if upstream.look_at <= now {
            Next::Look
        } else if now - upstream.moved_at > upstream.patience {
            Next::Stalled
        } else {
            Next::Wait(upstream.look_at)
        }
    }

    /// The source's progress word was loaded. Counts never go down within a generation.
    pub fn looked(&mut self, now: Time, word: Progress) -> Result<(), MovedOn> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        let count = match word.of(upstream.generation) {
            _ if upstream.untagged => word.count(),
            Reading::Count(count) => count,
            Reading::Stale => 0,
            Reading::Gone => return Err(MovedOn),
        };
        let count = count.min(self.chunks);
        if count > self.available {
            self.available = count;
            upstream.moved_at = now;
            upstream.pause = SHORTEST;
        } else {
            upstream.pause = Span(upstream.pause.0 * 2).min(LONGEST);
        }
        upstream.look_at = now + upstream.pause;
        Ok(())
    }

    /// A chunk is here: its bytes are visible, and the source was still the one that was named when
    /// they had been read. If this shard has more to tell its own readers, the new count.
    pub fn arrived(&mut self, chunk: u32) -> Option<u32> {
        if chunk != self.count {
            self.beyond.insert(chunk);
            return None;
        }
        self.count += 1;
        while self.beyond.remove(&self.count) {
            self.count += 1;
        }
        Some(self.count)
    }

    /// The first so many chunks are here: what is kept if another source is to go on.
    pub fn count(&self) -> u32 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation(5);
    const PATIENCE: Span = Span::from_millis(100);

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn a_complete_source_is_read_in_order_without_a_look() {
        let mut read = ChunkLoop::new(3, 1);
        assert_eq!([read.next(at(0)), read.next(at(0))], [Next::Read(1), Next::Read(2)]);
        assert_eq!(read.next(at(0)), Next::Busy);
        assert_eq!(read.arrived(2), None);
        assert_eq!(read.arrived(1), Some(3));
        assert_eq!(read.next(at(0)), Next::Done);
    }

    #[test]
    fn a_source_that_is_being_filled_is_never_overtaken() {
        let mut read = ChunkLoop::following(3, 0, GENERATION, PATIENCE, at(0));
        assert_eq!(read.next(at(0)), Next::Look);
        // The word is still that of the generation before, which was complete.
        assert_eq!(read.looked(at(0), Progress::new(Generation(4), 3)), Ok(()));
        assert_eq!(read.next(at(0)), Next::Wait(at(2)));
        assert_eq!(read.next(at(2)), Next::Look);
        assert_eq!(read.looked(at(2), Progress::new(GENERATION, 2)), Ok(()));
        assert_eq!([read.next(at(2)), read.next(at(2))], [Next::Read(0), Next::Read(1)]);
        assert_eq!([read.arrived(0), read.arrived(1)], [Some(1), Some(2)]);
        // It does not go back within a generation.
        assert_eq!(read.looked(at(3), Progress::new(GENERATION, 1)), Ok(()));
        assert!(matches!(read.next(at(3)), Next::Wait(_)));
        assert_eq!(read.looked(at(9), Progress::new(GENERATION, 3)), Ok(()));
        assert_eq!(read.next(at(9)), Next::Read(2));
    }

    #[test]
    fn a_source_that_moved_on_or_stalls_is_given_up() {
        let mut read = ChunkLoop::following(3, 2, GENERATION, PATIENCE, at(0));
        assert_eq!(read.looked(at(0), Progress::new(Generation(6), 3)), Err(MovedOn));
        for now in 0..=100 {
            if read.next(at(now)) == Next::Look {
                assert_eq!(read.looked(at(now), Progress::new(GENERATION, 2)), Ok(()));
            }
        }
        let mut now = 101;
        while read.next(at(now)) == Next::Look {
            assert_eq!(read.looked(at(now), Progress::new(GENERATION, 2)), Ok(()));
            now += 1;
        }
        assert_eq!(read.next(at(now)), Next::Stalled);
        assert_eq!(read.count(), 2);
    }
}
