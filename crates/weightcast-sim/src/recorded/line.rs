//! Two rollouts shared one source. Each waited for most of its deadline, read for the rest, was cut
//! off, and began at zero with its next call, for ever. Both have one shard here, so that each read
//! takes most of a deadline; in the world that was found one of them had two.

use weightcast_protocol::Span;

use super::{Recorded, StrikeRow};
use crate::settings::fault_kinds::FaultKind::*;
use crate::settings::options::WorldOptions;

pub(super) const LINE: Recorded = Recorded {
    name: "line",
    about: "reads that are cut at the deadline begin at zero with the next call",
    options,
    groups: &[(2, 0), (2, 0), (1, 1), (1, 1)],
    crossing_cost: 8,
    strikes: STRIKES,
};

fn options() -> WorldOptions {
    WorldOptions {
        trainers: 2,
        rollouts: 2,
        max_shards: 2,
        chunks: 23,
        fanout: 2,
        stripes: 2,
        depth_limit: 1,
        datacentres: 2,
        staged: 965,
        servers: 3,
        reconnect: Span::from_millis(33_474),
        lease: Span::from_millis(1_256),
        drain_deadline: Span::from_millis(1_684),
        retain: 0,
        offload_trouble: 152,
        offload_deadline: Span::from_millis(1_616),
        offload_seeding: 700,
        seed_deadline: Span::from_millis(4_487),
        chunk_time: Span::from_millis(24),
        late: 53,
        drift: 37,
        think_time: Span::from_millis(240),
        fault_time: Span::from_millis(7_029),
        quiet_time: Span::from_millis(20_048),
        ..WorldOptions::default()
    }
}

const STRIKES: &[StrikeRow] = &[
    (53, Pause, 1, 1949),
    (204, Lie, 5, 461),
    (646, Lie, 1, 995),
    (921, Lie, 5, 3347),
    (1108, Lie, 2, 2859),
    (1154, Lie, 2, 2323),
    (1554, Lie, 0, 1976),
    (1905, Pause, 2, 2953),
    (2282, Lie, 5, 3297),
    (2295, Crash, 5, 4794),
    (2547, Crash, 3, 4405),
    (2738, Lie, 5, 5035),
    (2944, Pause, 1, 3103),
    (2991, Slow, 2, 4935),
    (3103, Lie, 3, 3404),
    (3340, Lie, 3, 5478),
    (3761, Lie, 1, 5785),
    (4342, Pause, 0, 6148),
    (4438, Pause, 0, 6921),
    (4922, Crash, 4, 5472),
    (5734, Flip, 3, 7621),
    (7006, Pause, 4, 7866),
];
