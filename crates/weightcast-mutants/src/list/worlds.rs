//! Worlds in which mutants of several kinds can show.

use weightcast_sim::{FaultCounts, FaultKind, Options};

/// Many replicas of one size, in one place: long chains.
pub(super) fn crowd(options: Options) -> Options {
    Options { rollouts: 6, max_shards: 1, datacentres: 1, depth_limit: 64, ..options }
}

pub(super) fn as_drawn(options: Options) -> Options {
    options
}

pub(super) fn flipping(options: Options) -> Options {
    Options { faults: options.faults.with(FaultKind::Flip, 8), ..options }
}

/// Sources go while their readers' reports are on their way.
pub(super) fn busy(options: Options) -> Options {
    let faults = FaultCounts::none()
        .with(FaultKind::Break, 60)
        .with(FaultKind::Partition, 12)
        .with(FaultKind::Crash, 8)
        .with(FaultKind::Pause, 24);
    Options { faults, ..options }
}
