//! Worlds in which mutants of several kinds can show.

use weightcast_sim::{FaultCounts, FaultKind, WorldOptions};

/// Many replicas of one size, in one place: long chains.
pub(super) fn crowd(options: WorldOptions) -> WorldOptions {
    let (rollouts, max_shards, datacentres, depth_limit) = (6, 1, 1, 64);
    WorldOptions { rollouts, max_shards, datacentres, depth_limit, hosts: 64, ..options }
}

pub(super) fn as_drawn(options: WorldOptions) -> WorldOptions {
    options
}

pub(super) fn flipping(options: WorldOptions) -> WorldOptions {
    WorldOptions { faults: options.faults.with(FaultKind::Flip, 8), ..options }
}

/// Sources go while their readers' reports are on their way.
pub(super) fn busy(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none()
        .with(FaultKind::Break, 60)
        .with(FaultKind::Partition, 12)
        .with(FaultKind::Crash, 8)
        .with(FaultKind::Pause, 24);
    WorldOptions { faults, ..options }
}
