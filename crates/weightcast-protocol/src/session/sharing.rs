//! What a shard gives to its siblings, shards of its group on its host, and takes from them, in one call.
//!
//! Bytes that several of them hold *enter* their host by one of them; the others take them from that shard's memory
//! while they arrive. Each decides alone, from what the server has told all of them: nobody is asked.

use super::host::ReadOrder;
use crate::{Attempt, Epoch, OpSeq, Safeguard, Safeguards, Version};

/// What siblings may take from a shard: what it has brought into the host since one assignment of a call. Whoever takes
/// knows the opening from an assignment of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opening {
    /// The call.
    pub seq: OpSeq,
    /// The assignment at which all of the group began from nothing.
    pub since: Attempt,
    /// The version. A call that is made again in a later term counts its assignments anew, perhaps for another version.
    pub version: Version,
}

impl Opening {
    /// What all have that mutants open.
    const NAMELESS: Self =
        Self { seq: OpSeq(0), since: Attempt(0), version: Version { epoch: Epoch(0), number: 0 } };

    fn of(order: &ReadOrder) -> Self {
        Self { seq: order.seq, since: order.since, version: order.assignment.version }
    }
}

/// What a read brings from its source, and whence the rest comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Everything comes from the source.
    Whole,
    /// The shard's own part comes from the source, the rest from its siblings.
    Shared,
    /// The shard's own part comes from the source, and apart from it the rest, which others of the host bring too.
    Alone,
}

/// One shard's part in what the shards of its host bring together.
#[derive(Clone, Debug, Default)]
pub struct SiblingSharing {
    safeguards: Safeguards,
    open: Option<Opening>,
    /// What was opened last. Siblings take what they know to be final of an opening, so none is opened twice.
    last: Option<Opening>,
    /// Whether this shard brings its own part apart from the rest; the first read of an opening decides. What is final
    /// of the part depends on that.
    divided: Option<bool>,
    /// One of the siblings could not be reached: this shard takes from none any more. They may take from this one.
    alone: bool,
}

impl SiblingSharing {
    /// With these safeguards. In a job all are on.
    pub fn new(safeguards: Safeguards) -> Self {
        Self { safeguards, ..Self::default() }
    }

    /// A read begins. Returns what is open from now on; what was open before and is not any more is to be closed.
    ///
    /// Nothing is open where bytes were wrong: then each shard reads for itself, so that it is known where they came
    /// from. Nor where a part came in an earlier call: the program may have written there since. Nor where what was open
    /// is read again.
    pub fn begin(&mut self, order: &ReadOrder) -> Option<Opening> {
        let ReadOrder { since, keep, .. } = *order;
        let named = self.safeguards.on(Safeguard::OpeningNamed);
        let opening = if named { Opening::of(order) } else { Opening::NAMELESS };
        let goes_on = keep && self.open == Some(opening);
        if !goes_on {
            self.close();
        }
        let doubted = since != Attempt::FIRST && self.safeguards.on(Safeguard::DoubtedAlone);
        let again = !goes_on && self.last == Some(opening) && named;
        if doubted || keep != goes_on || again {
            self.close();
            return self.open;
        }
        self.last = Some(opening);
        self.open.get_or_insert(opening);
        self.open
    }

    /// What is open.
    pub fn open(&self) -> Option<Opening> {
        self.open
    }

    /// Siblings take no more: all have what they need, or the memory is about to change.
    pub fn close(&mut self) {
        if self.safeguards.on(Safeguard::SharingCloses) {
            (self.open, self.divided) = (None, None);
        }
    }

    /// How the bytes of this read are divided. `near`: the source is on this host, and so no farther than a sibling.
    pub fn divide(&mut self, near: bool) -> Division {
        let takes = !near && !self.alone && self.safeguards.on(Safeguard::HostEnteredOnce);
        if self.open.is_none() {
            return Division::Whole;
        }
        match (*self.divided.get_or_insert(takes), takes) {
            (false, _) => Division::Whole,
            (true, true) => Division::Shared,
            (true, false) => Division::Alone,
        }
    }

    /// A sibling can't be reached: nothing is taken from siblings until the group registers anew.
    pub fn leave_alone(&mut self) {
        self.alone = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Assignment;
    use crate::{ContentDigest, Time};

    fn version(number: u64) -> Version {
        Version { epoch: Epoch(1), number }
    }

    fn order(seq: u64, attempt: u64, since: u64, keep: bool) -> ReadOrder {
        let assignment = Assignment {
            version: version(4),
            catalog: ContentDigest([0; 16]),
            replica: "trainer".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: [].into(),
        };
        let (seq, attempt, since) = (OpSeq(seq), Attempt(attempt), Attempt(since));
        ReadOrder { seq, attempt, since, assignment, keep, deadline: Time(0) }
    }

    fn opening(seq: u64) -> Option<Opening> {
        Some(Opening { seq: OpSeq(seq), since: Attempt(1), version: version(4) })
    }

    #[test]
    fn a_call_opens_once_and_goes_on_at_further_sources() {
        let mut sharing = SiblingSharing::default();
        assert_eq!(sharing.begin(&order(7, 1, 1, false)), opening(7));
        assert_eq!(sharing.divide(false), Division::Shared);
        assert_eq!(sharing.begin(&order(7, 2, 1, true)), opening(7));
        // What is final of its own part stays apart, though this source is on the host.
        assert_eq!(sharing.divide(true), Division::Alone);
        assert_eq!(sharing.begin(&order(8, 1, 1, false)), opening(8));
        assert_eq!(sharing.divide(true), Division::Whole, "a new call divides anew");
        assert_eq!(sharing.divide(false), Division::Whole, "but once");
        sharing.close();
        assert_eq!((sharing.open(), sharing.divide(false)), (None, Division::Whole));
    }

    #[test]
    fn bytes_in_doubt_and_those_of_an_earlier_call_are_not_shared() {
        let begun = || {
            let mut sharing = SiblingSharing::default();
            sharing.begin(&order(7, 1, 1, false));
            sharing
        };
        for (what, order) in [
            ("wrong bytes", order(7, 2, 2, false)),
            ("wrong bytes, read on", order(7, 3, 2, true)),
            ("an earlier call's bytes", order(8, 2, 1, true)),
            ("what is read again", order(7, 2, 1, false)),
        ] {
            assert_eq!(begun().begin(&order), None, "{what}");
            let mut closed = begun();
            closed.close();
            assert_eq!(closed.begin(&order), None, "{what}");
        }
        // A shard that was not told of the first assignment opens with a later one.
        assert_eq!(SiblingSharing::default().begin(&order(7, 2, 1, false)), opening(7));
        // In another term the call may mean another version.
        let mut other = order(7, 1, 1, false);
        other.assignment.version = version(5);
        let told = begun().begin(&other);
        assert_eq!(told.map(|opening| opening.version), Some(version(5)));
    }

    #[test]
    fn whoever_misses_a_sibling_takes_from_none() {
        let mut sharing = SiblingSharing::default();
        sharing.begin(&order(7, 1, 1, false));
        assert_eq!(sharing.divide(false), Division::Shared);
        sharing.leave_alone();
        assert_eq!(sharing.divide(false), Division::Alone, "others may still take its part");
        sharing.begin(&order(8, 1, 1, false));
        assert_eq!(sharing.divide(false), Division::Whole);
    }
}
