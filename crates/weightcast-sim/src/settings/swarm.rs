//! Swarm testing: each seed draws a world of its own kind, small or large, calm or wild. Some kinds
//! of faults are left out, so that the others show alone.

use weightcast_protocol::Span;
use weightcast_protocol::limits::Limits;
use weightcast_testkit::mix;

use crate::base::rng::Rng;
use crate::settings::fault_kinds::{FaultCounts, FaultKind};
use crate::settings::options::WorldOptions;

impl WorldOptions {
    /// The world that a seed stands for.
    pub fn drawn(seed: u64) -> Self {
        let rng = &mut Rng::new(mix(&[seed, 0x0053_7761_726d]));
        let millis = |rng: &mut Rng, low, high| Span::from_millis(rng.between(low, high));
        let lease = millis(rng, 500, 3_000);
        let drawn = Self {
            trainers: rng.between(1, 3) as u32,
            rollouts: rng.between(1, 7) as u32,
            max_shards: rng.between(1, 4) as u32,
            chunks: rng.between(4, 24) as u32,
            fanout: if rng.chance(600) { 1 } else { rng.between(2, 3) as u32 },
            depth_limit: if rng.chance(750) { 64 } else { rng.between(1, 3) as u32 },
            datacentres: if rng.chance(500) { 1 } else { rng.between(2, 3) as u32 },
            spot: if rng.chance(500) { 0 } else { 500 },
            servers: rng.between(1, 3) as u32,
            reconnect: if rng.chance(150) { Span(0) } else { millis(rng, 4_000, 40_000) },
            lease,
            drain_deadline: millis(rng, 200, 2_000),
            retain: if rng.chance(400) { 0 } else { rng.between(1, 3) as u32 },
            offload_trouble: if rng.chance(600) { 0 } else { rng.below(500) },
            offload_deadline: millis(rng, 400, 2_500),
            chunk_time: millis(rng, 2, 25),
            late: if rng.chance(300) { 0 } else { rng.below(80) },
            drift: rng.below(41),
            think_time: millis(rng, 20, 300),
            fault_time: millis(rng, 5_000, 15_000),
            // A suspended or dead process is back after two leases at most. Then sessions find a
            // server within two, and its recovery window lasts two more. Then all rollouts read.
            quiet_time: Span(lease.0 * 8 + 10_000_000_000),
            faults: faults(rng),
            ..WorldOptions::default()
        };
        Self {
            offload_seeding: if rng.chance(500) { 0 } else { 700 },
            seed_deadline: millis(rng, 1_000, 5_000),
            // Drawn after all others, so that the other settings of a seed stay as they were.
            staged: if rng.chance(500) { 0 } else { rng.between(200, 1_000) },
            stripes: if rng.chance(300) { 1 } else { rng.between(2, 4) as u32 },
            limits: limits(rng, &drawn.limits),
            hosts: [1, 2, 4, 64][rng.below(4) as usize],
            replicated: if rng.chance(500) { 0 } else { 500 },
            host_fanout: [1, 2, 8][rng.below(3) as usize],
            ..drawn
        }
    }
}

/// The usual bounds in most worlds; in the others, bounds so small that they are reached.
fn limits(rng: &mut Rng, usual: &Limits) -> Limits {
    let mut limits = usual.clone();
    if rng.chance(250) {
        limits.versions = rng.between(1, 4) as usize;
    }
    if rng.chance(150) {
        limits.source_shards = rng.between(1, 4) as u32;
        limits.sources = rng.between(1, 3) as u32;
    }
    if rng.chance(150) {
        limits.calls_ahead = rng.between(1, 2) as usize;
    }
    limits
}

/// About half of the kinds, some of them four times as often as usual.
fn faults(rng: &mut Rng) -> FaultCounts {
    FaultKind::ALL.iter().fold(FaultCounts::none(), |counts, kind| {
        let usual = FaultCounts::usual().most(*kind);
        match rng.below(8) {
            0..4 => counts,
            4..7 => counts.with(*kind, usual),
            _ => counts.with(*kind, usual * 4),
        }
    })
}
