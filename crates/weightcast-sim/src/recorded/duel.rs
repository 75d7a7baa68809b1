//! Three servers took over from each other 25 times after the last fault. All shards of the
//! trainers were refused until the clients of the server before had come over. They kept on asking,
//! and each passive server that they asked became active.

use weightcast_protocol::Span;

use super::{Recorded, StrikeRow};
use crate::settings::fault_kinds::FaultKind::*;
use crate::settings::options::WorldOptions;

pub(super) const DUEL: Recorded = Recorded {
    name: "duel",
    about: "servers take over from each other for ever",
    options,
    groups: &[(4, 0), (4, 0), (4, 0), (4, 1)],
    crossing_cost: 1,
    strikes: STRIKES,
};

fn options() -> WorldOptions {
    WorldOptions {
        trainers: 3,
        rollouts: 1,
        max_shards: 4,
        chunks: 4,
        fanout: 1,
        stripes: 2,
        datacentres: 3,
        staged: 268,
        servers: 3,
        reconnect: Span::from_millis(23_714),
        lease: Span::from_millis(809),
        drain_deadline: Span::from_millis(514),
        retain: 1,
        offload_trouble: 0,
        offload_deadline: Span::from_millis(2_398),
        offload_seeding: 0,
        chunk_time: Span::from_millis(13),
        late: 0,
        drift: 13,
        think_time: Span::from_millis(126),
        fault_time: Span::from_millis(9_775),
        quiet_time: Span::from_millis(16_472),
        ..WorldOptions::default()
    }
}

const STRIKES: &[StrikeRow] = &[
    (286, Pause, 8, 585),
    (534, Pause, 6, 1725),
    (563, Pause, 3, 1661),
    (687, Dawdle, 6, 1455),
    (784, Rift, 0, 931),
    (836, Freeze, 12, 1970),
    (989, Slow, 10, 1243),
    (1483, Slow, 6, 2715),
    (1558, Pause, 9, 2820),
    (1807, Pause, 0, 3399),
    (1976, Pause, 15, 2368),
    (2316, Pause, 2, 2828),
    (2424, Pause, 12, 3180),
    (2469, Freeze, 7, 3558),
    (2861, Freeze, 14, 4069),
    (2914, Stall, 10, 4508),
    (3058, Stall, 13, 3852),
    (3136, Rift, 2, 3270),
    (3474, Slow, 7, 3542),
    (3657, Stall, 5, 5186),
    (3692, Freeze, 6, 4100),
    (3927, Freeze, 14, 5531),
    (4013, Rift, 0, 4632),
    (4053, Rift, 2, 5441),
    (4717, Rift, 1, 6014),
    (4798, Slow, 1, 6385),
    (4960, Rift, 0, 5446),
    (5007, Rift, 1, 5202),
    (5098, Stall, 8, 5845),
    (5255, Pause, 5, 6346),
    (5370, Pause, 14, 6329),
    (5416, Freeze, 12, 6563),
    (5624, Pause, 11, 5817),
    (5652, Pause, 7, 6102),
    (5942, Pause, 11, 7054),
    (5978, Slow, 2, 6542),
    (6081, Pause, 4, 7148),
    (6411, Slow, 4, 7636),
    (6699, Storm, 11, 7795),
    (6749, Stall, 13, 7296),
    (7239, Dawdle, 1, 8796),
    (7672, Pause, 8, 8980),
    (7719, Pause, 13, 8109),
    (7915, Freeze, 4, 8313),
    (7949, Rift, 2, 8327),
    (7957, Dawdle, 5, 8165),
    (7993, Pause, 12, 8968),
    (8329, Rift, 0, 9673),
    (8334, Rift, 1, 8737),
    (8487, Pause, 4, 9227),
    (8596, Pause, 11, 9880),
    (9036, Rift, 1, 10172),
    (9657, Freeze, 0, 10570),
];
