//! What the server counts.

use serde::{Deserialize, Serialize};

/// Defines the counters, each with what it counts. [`Counters::each`] tells both to people.
macro_rules! counters {
    ($(#[doc = $meaning:literal] $name:ident,)*) => {
        /// How often things happened since the server started.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub struct Counters {
            $(#[doc = $meaning] pub $name: u64,)*
        }

        impl Counters {
            /// The name, the meaning and the number of each.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + use<> {
                [$((stringify!($name), $meaning.trim_ascii(), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Versions published, counting each replica.
    publishes,
    /// Published replicas whose digests came in and were right.
    seals,
    /// Published replicas whose digests were wrong.
    fenced,
    /// Assignments of sources to groups.
    assignments,
    /// Replicas committed.
    commits,
    /// Staged updates whose bytes were verified before the old copy was given up.
    staged,
    /// Reads that failed because of the source.
    read_failures,
    /// Assignments of a source that is being filled itself.
    relays,
    /// Assignments of several sources at once.
    striped,
    /// Readers that went on with one of several sources, because another reader needed a source.
    unstriped,
    /// Readers that went on with further sources, which had the version a moment later.
    joined,
    /// Readers that went on elsewhere, because a source was slow.
    moved_on,
    /// Assignments with which a transfer continued, keeping the bytes that it had.
    resumes,
    /// Assignments of a source in another datacentre.
    crossings,
    /// Updates answered as unchanged while a first copy was on its way to their datacentre.
    skips,
    /// Reports of readers that a source's content is wrong.
    accusations,
    /// Sources fenced because two replicas accused them.
    accused_fenced,
    /// Transfers whose digests were not the publisher's.
    digest_mismatches,
    /// Readers cut off because a drain deadline passed.
    drains_cut,
    /// Readers that a source did not wait for when it gave its copy up: nothing had been heard of them for a while.
    left_behind,
    /// Sessions whose lease ran out.
    evictions,
    /// Offload replicas that came to hold a version.
    offloads,
    /// Offload replicas that were told to go.
    offloads_released,
    /// Retained versions whose last copy was given up, since it could not be offloaded.
    retention_lost,
    /// Pairs of copies whose shards were asked to show the bytes.
    challenges,
    /// Pairs of these that showed equal bytes.
    proofs,
    /// Copies that a proved copy showed to have other bytes.
    refuted,
    /// Seed replicas that groups were asked for.
    seeds_asked,
    /// Seed replicas that came to hold a version.
    seeds,
    /// Seed replicas that were asked for and failed.
    seeds_failed,
    /// Seed replicas that held a version and were told to go.
    seeds_released,
    /// Groups whose shards made different calls.
    divergences,
    /// Calls that ended at their deadline.
    timeouts,
    /// Sessions refused.
    refusals,
    /// Terms taken.
    terms,
    /// Groups that came over from an earlier term.
    recoveries,
    /// Copies not given up before all clients of an earlier term could have come over (A5).
    held_back,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_told_with_its_meaning_and_its_own_number() {
        let counted = Counters { publishes: 1, held_back: 2, ..Counters::default() };
        let each: Vec<_> = counted.each().collect();
        assert_eq!(each[0], ("publishes", "Versions published, counting each replica.", 1));
        assert_eq!(each.last().map(|(name, _, count)| (*name, *count)), Some(("held_back", 2)));
        assert!(each.iter().all(|(_, meaning, _)| meaning.ends_with('.')));
    }
}
