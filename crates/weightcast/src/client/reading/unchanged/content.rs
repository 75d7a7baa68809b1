//! What a handle remembers of the version that it has brought into its memory.
//!
//! Nothing here is believed of the memory: it says what is worth a look.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weightcast_plan::EntryDigests;
use weightcast_protocol::ContentDigest;
use weightcast_transport::Digest;

use crate::limits::{KNOWN_DIGESTS, NOTE_PATIENCE};

/// Digests of the entries of source shards, by the digests of their manifests.
pub(super) type SourceDigests = BTreeMap<ContentDigest, EntryDigests<Digest>>;

/// Digests of one version: of the cells of the registered memory, and of the entries of the source
/// shards that gave them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownContent {
    pub(super) cells: Vec<Digest>,
    pub(super) entries: SourceDigests,
    pub(super) experience: Experience,
}

impl KnownContent {
    /// Of memory of which nothing but the digests of its cells is known: others have written it.
    pub(in crate::client) fn of_cells(cells: Vec<Digest>) -> Self {
        Self { cells, ..Self::default() }
    }

    /// Entries beyond [`KNOWN_DIGESTS`] are not remembered.
    pub(super) fn new(
        cells: Vec<Digest>,
        mut entries: SourceDigests,
        experience: Experience,
    ) -> Self {
        if entries.values().map(EntryDigests::len).sum::<usize>() > KNOWN_DIGESTS {
            entries.clear();
        }
        Self { cells, entries, experience }
    }
}

/// What earlier reads have cost and saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Experience {
    /// Bytes of the last read, moved or not.
    pub(in crate::client) bytes: u64,
    /// Of those, bytes that were unchanged by the digests of the two versions.
    pub(in crate::client) unchanged: u64,
    /// How long it takes to move all bytes.
    pub(in crate::client) whole: Duration,
}

impl Experience {
    /// Of a read that moved so many bytes in this time; `bytes` is what it would have moved at most.
    pub(in crate::client) fn of(bytes: u64, moved: u64, took: Duration) -> Self {
        let share = if moved == 0 { 0.0 } else { bytes as f64 / moved as f64 };
        let whole =
            Duration::try_from_secs_f64(took.as_secs_f64() * share).unwrap_or(Duration::MAX);
        Self { bytes, unchanged: 0, whole }
    }

    /// With that of the last read, of which so many bytes were unchanged; `None` if nobody could tell.
    pub(super) fn after(self, last: Self, unchanged: Option<u64>) -> Self {
        let whole = if last.whole.is_zero() { self.whole } else { last.whole };
        Self { bytes: last.bytes, unchanged: unchanged.unwrap_or(self.unchanged), whole }
    }

    /// How long to wait for the digests of a source that has none yet. Not at all where less than half
    /// was unchanged before. Else no longer than it takes to move everything, so that a wait in vain
    /// at most doubles the time of the read; and no longer than half of what is left.
    pub(super) fn patience(&self, deadline: Instant) -> Duration {
        if self.unchanged < self.bytes.div_ceil(2).max(1) {
            return Duration::ZERO;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.whole.min(NOTE_PATIENCE).min(left / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_wait_is_as_long_as_what_it_may_save() {
        let of = |bytes, unchanged, whole| Experience { bytes, unchanged, whole };
        let far = Instant::now() + Duration::from_secs(3_600);
        assert_eq!(Experience::default().patience(far), Duration::ZERO);
        for (unchanged, waits) in [(0, false), (49, false), (50, true), (100, true)] {
            let expected = if waits { SECOND } else { Duration::ZERO };
            assert_eq!(of(100, unchanged, SECOND).patience(far), expected, "{unchanged}");
        }
        assert_eq!(of(1, 0, SECOND).patience(far), Duration::ZERO);
        assert_eq!(of(1, 1, NOTE_PATIENCE + SECOND).patience(far), NOTE_PATIENCE);
        let soon = Instant::now() + SECOND;
        assert!(of(1, 1, SECOND).patience(soon) <= SECOND / 2);
        assert_eq!(of(1, 1, SECOND).patience(Instant::now()), Duration::ZERO);
    }

    #[test]
    fn what_moving_everything_takes_follows_from_what_has_moved() {
        let whole = |bytes, moved, took| Experience::of(bytes, moved, took).whole;
        assert_eq!(whole(100, 100, SECOND), SECOND);
        assert_eq!(whole(100, 25, SECOND), 4 * SECOND);
        assert_eq!(whole(100, 0, SECOND), Duration::ZERO, "nothing is known of it");
        assert_eq!(whole(u64::MAX, 1, Duration::MAX), Duration::MAX);
    }

    #[test]
    fn what_a_read_could_not_tell_is_as_it_was() {
        let before = Experience { bytes: 100, unchanged: 90, whole: 3 * SECOND };
        let last = Experience { bytes: 200, unchanged: 0, whole: SECOND };
        let after = Experience { bytes: 200, unchanged: 90, whole: SECOND };
        assert_eq!(before.after(last, None), after);
        assert_eq!(before.after(last, Some(7)), Experience { unchanged: 7, ..after });
        let nothing_moved = Experience { whole: Duration::ZERO, ..last };
        assert_eq!(before.after(nothing_moved, Some(200)).whole, 3 * SECOND);
    }

    #[test]
    fn so_many_digests_are_remembered_and_no_more() {
        let of = |count: usize| {
            let digests = (0..count as u32).map(|entry| (entry, Digest::ZERO)).collect();
            let entries = SourceDigests::from([(ContentDigest([1; 16]), digests)]);
            KnownContent::new(vec![Digest::ZERO], entries, Experience::default())
        };
        let known = of(KNOWN_DIGESTS);
        assert_eq!((known.cells.len(), known.entries.len()), (1, 1));
        let beyond = of(KNOWN_DIGESTS + 1);
        assert_eq!((beyond.cells.len(), beyond.entries.len()), (1, 0));
    }
}
