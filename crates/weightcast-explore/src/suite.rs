//! The worlds that are looked at as a matter of course, and what must be found in broken ones.

use crate::bounds::{Bounds, without};

/// A world, and the invariant that breaks in it: none if the protocol is whole.
#[derive(Clone, Copy, Debug)]
pub struct SuiteCase<W> {
    /// What is explored.
    pub bounds: W,
    /// What must be found.
    pub found: Option<&'static str>,
    /// The safeguards that are off, joined by `+`.
    pub off: &'static str,
}

/// All that must hold, about a minute on two cores; then what each safeguard is there for, seconds.
pub fn suite() -> Vec<SuiteCase<Bounds>> {
    let three = Bounds::three_workers();
    let quiet = Bounds { expiries: 0, ..three };
    let pair = Bounds { rollouts: 1, ..quiet };
    let group = Bounds { expiries: 0, reads: 1, ..Bounds::group_of_two() };
    let restarted = Bounds { restarts: 1, ..pair };
    let parted = Bounds { partings: 1, reads: 1, ..pair };
    let whole = [
        quiet,
        three,
        Bounds { cuts: 1, ..quiet },
        Bounds::group_of_two(),
        Bounds { restarts: 1, reads: 1, ..quiet },
        Bounds { expiries: 1, ..restarted },
        Bounds { restarts: 1, ..group },
        Bounds { death: true, ..pair },
        parted,
    ];
    let broken = [
        ("no_drain", "S9", quiet),
        ("no_source_fence", "S3", three),
        ("naive_source_choice", "D2", three),
        ("no_source_fence+no_commit_fence+no_digest_check", "S1", three),
        ("no_source_fence+no_digest_check", "S1", three),
        ("no_recovery_window", "A5", restarted),
        ("no_recovery_window+no_source_fence+no_commit_fence+no_digest_check", "S1", parted),
        ("unequal_recovery", "L1", Bounds { restarts: 1, ..group }),
        ("stale_term_accepted", "T2", parted),
        ("stale_term_accepted", "T3", parted),
    ];
    let broken = broken.map(|(off, found, bounds)| {
        let safeguards = without(off).expect("the names are right");
        // Another invariant breaks as well, perhaps earlier: this is about one.
        let bounds = Bounds { safeguards, only: Some(found), ..bounds };
        SuiteCase { bounds, found: Some(found), off }
    });
    let whole = whole.map(|bounds| SuiteCase { bounds, found: None, off: "" });
    whole.into_iter().chain(broken).collect()
}
