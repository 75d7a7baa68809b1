//! One shard's read: which chunk is next, when to ask for the source's progress, and what this
//! shard may tell its own readers.
//!
//! This is a model of the transports. There a reader waits at its source, and progress belongs to
//! the export, so to its generation (`weightcast-transport/src/piece/filling.rs`, and its contract
//! tests). Here a reader polls, and each progress names its generation, so that a checker can see a
//! reader that takes one generation for another (S4).

use std::cmp::Ordering;

use weightcast_protocol::{Generation, Span, Time};

/// What a source tells of its progress: the first `count` chunks of a generation are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) generation: Generation,
    pub(crate) count: u32,
}

/// The first pause between two looks at a source that has nothing new; doubles up to [`LONGEST`].
const SHORTEST: Span = Span::from_millis(1);

/// The longest such pause.
const LONGEST: Span = Span::from_millis(32);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read this chunk from the source; then report `arrived`.
    Read(u32),
    /// Take this chunk from a sibling, which brings it; then report `arrived`.
    Take(u32),
    /// Ask the source for its progress; then report `looked`.
    Look,
    /// Do nothing before this time, unless a chunk arrives.
    Wait(Time),
    /// All chunks are there.
    Done,
    /// The source answers but has had nothing new for too long: give it up.
    Stalled,
}

/// The source has moved on from the generation that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedOn;

/// A source that is being filled itself.
#[derive(Clone, Debug)]
struct Upstream {
    generation: Generation,
    /// How long the source may have nothing new.
    patience: Span,
    moved_at: Time,
    look_at: Time,
    pause: Span,
    /// The mutant: progress of another generation counts too.
    untagged: bool,
}

/// The read of one shard's chunks from one source.
#[derive(Clone, Debug)]
pub(crate) struct ChunkLoop {
    /// Which chunks are here.
    there: Vec<bool>,
    /// How many chunks the source has: the first ones.
    available: u32,
    upstream: Option<Upstream>,
}

impl ChunkLoop {
    /// Reads `chunks` chunks from a source that has them all, except the first `kept`, which are
    /// here already and verified.
    pub(crate) fn new(chunks: u32, kept: u32) -> Self {
        let there = (0..chunks).map(|place| place < kept).collect();
        Self { there, available: chunks, upstream: None }
    }

    /// The same from a source that is being filled itself and serves at `generation`. The source is
    /// given up once it has had nothing new for `patience`.
    pub(crate) fn following(
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
        Self { available: read.count(), upstream: Some(upstream), ..read }
    }

    /// Plants the mutant, so that the checker of S4 can be seen to notice: progress of any
    /// generation counts as the source's.
    pub(crate) fn untagged(mut self, untagged: bool) -> Self {
        if let Some(upstream) = &mut self.upstream {
            upstream.untagged = untagged;
        }
        self
    }

    /// Leaves out what was read before, apart from the first chunks.
    pub(crate) fn keep(&mut self, there: &[bool]) {
        self.there.iter_mut().zip(there).for_each(|(here, kept)| *here |= kept);
    }

    /// What to do next, if all comes from the source.
    #[cfg(test)]
    fn next(&self, now: Time) -> Next {
        self.next_of(now, |_| false)
    }

    /// What to do next. Some chunks are `brought` by siblings, which is no reason not to go on with the others.
    pub(crate) fn next_of(&self, now: Time, brought: impl Fn(u32) -> bool) -> Next {
        let first = |by_sibling: bool| {
            let missing = |place: &u32| !self.there[*place as usize];
            (0..self.there.len() as u32).filter(missing).find(|p| brought(*p) == by_sibling)
        };
        let taken = first(true).map(Next::Take);
        let Some(place) = first(false) else { return taken.unwrap_or(Next::Done) };
        match &self.upstream {
            Some(upstream) if place >= self.available => {
                if upstream.look_at <= now {
                    Next::Look
                } else if now - upstream.moved_at > upstream.patience {
                    Next::Stalled
                } else {
                    taken.unwrap_or(Next::Wait(upstream.look_at))
                }
            }
            _ => Next::Read(place),
        }
    }

    /// Takes the source's progress. Counts never go down within a generation.
    pub(crate) fn looked(&mut self, now: Time, told: Progress) -> Result<(), MovedOn> {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        let count = match told.generation.cmp(&upstream.generation) {
            _ if upstream.untagged => told.count,
            Ordering::Equal => told.count,
            // The source still tells the progress of its generation before.
            Ordering::Less => 0,
            Ordering::Greater => return Err(MovedOn),
        };
        let count = count.min(self.there.len() as u32);
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

    /// A chunk has arrived. Returns how many chunks are here, the first ones.
    pub(crate) fn arrived(&mut self, place: u32) -> u32 {
        self.there[place as usize] = true;
        self.count()
    }

    /// How many chunks are here, the first ones: these are kept if the read goes on at another source.
    pub(crate) fn count(&self) -> u32 {
        self.there.iter().take_while(|there| **there).count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation(5);
    const PATIENCE: Span = Span::from_millis(100);

    fn told(generation: Generation, count: u32) -> Progress {
        Progress { generation, count }
    }

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn a_complete_source_is_read_in_order_without_a_look() {
        let mut read = ChunkLoop::new(3, 1);
        assert_eq!(read.next(at(0)), Next::Read(1));
        assert_eq!(read.arrived(1), 2);
        assert_eq!(read.next(at(0)), Next::Read(2));
        assert_eq!(read.arrived(2), 3);
        assert_eq!(read.next(at(0)), Next::Done);
    }

    #[test]
    fn a_source_that_is_being_filled_is_never_overtaken() {
        let mut read = ChunkLoop::following(3, 0, GENERATION, PATIENCE, at(0));
        assert_eq!(read.next(at(0)), Next::Look);
        // The progress is still of the generation before, which was complete.
        assert_eq!(read.looked(at(0), told(Generation(4), 3)), Ok(()));
        assert_eq!(read.next(at(0)), Next::Wait(at(2)));
        assert_eq!(read.next(at(2)), Next::Look);
        assert_eq!(read.looked(at(2), told(GENERATION, 2)), Ok(()));
        for chunk in 0..2 {
            assert_eq!(read.next(at(2)), Next::Read(chunk));
            assert_eq!(read.arrived(chunk), chunk + 1);
        }
        // Progress does not go back within a generation.
        assert_eq!(read.looked(at(3), told(GENERATION, 1)), Ok(()));
        assert!(matches!(read.next(at(3)), Next::Wait(_)));
        assert_eq!(read.looked(at(9), told(GENERATION, 3)), Ok(()));
        assert_eq!(read.next(at(9)), Next::Read(2));
    }

    #[test]
    fn what_siblings_bring_is_taken_while_the_source_has_nothing_new() {
        let mut read = ChunkLoop::following(5, 0, GENERATION, PATIENCE, at(0));
        let odd = |place: u32| place % 2 == 1;
        assert_eq!(read.next_of(at(0), odd), Next::Look);
        assert_eq!(read.looked(at(0), told(GENERATION, 1)), Ok(()));
        assert_eq!(read.next_of(at(0), odd), Next::Read(0));
        assert_eq!(read.arrived(0), 1);
        assert_eq!(read.next_of(at(0), odd), Next::Take(1));
        assert_eq!(read.looked(at(1), told(GENERATION, 5)), Ok(()));
        // Whoever waits for siblings brings its own part first.
        for place in [2, 4] {
            assert_eq!(read.next_of(at(1), odd), Next::Read(place));
            assert_eq!(read.arrived(place), 1);
        }
        assert_eq!(read.next_of(at(1), odd), Next::Take(1));
        assert_eq!(read.next_of(at(1), |_| false), Next::Read(1), "a sibling is lost");
        assert_eq!(read.arrived(1), 3);
        assert_eq!(read.next_of(at(1), odd), Next::Take(3));
        assert_eq!(read.arrived(3), 5);
        assert_eq!(read.next_of(at(1), odd), Next::Done);
        let mut again = ChunkLoop::new(5, 1);
        again.keep(&[false, false, true, false, true]);
        assert_eq!((again.count(), again.next_of(at(1), odd)), (1, Next::Take(1)));
    }

    #[test]
    fn a_source_that_moved_on_or_stalls_is_given_up() {
        let mut read = ChunkLoop::following(3, 2, GENERATION, PATIENCE, at(0));
        assert_eq!(read.looked(at(0), told(Generation(6), 3)), Err(MovedOn));
        for now in 0..=100 {
            if read.next(at(now)) == Next::Look {
                assert_eq!(read.looked(at(now), told(GENERATION, 2)), Ok(()));
            }
        }
        let mut now = 101;
        while read.next(at(now)) == Next::Look {
            assert_eq!(read.looked(at(now), told(GENERATION, 2)), Ok(()));
            now += 1;
        }
        assert_eq!(read.next(at(now)), Next::Stalled);
        assert_eq!(read.count(), 2);
    }
}
