//! Worlds in which something went wrong once, as they were written down.

use weightcast_protocol::Safeguards;
use weightcast_sim::RECORDED;

const SEEDS: std::ops::Range<u64> = 0..10;

#[test]
fn nothing_goes_wrong_in_them_any_more() {
    for world in RECORDED {
        for seed in SEEDS {
            let report = world.play(seed, Safeguards::default());
            assert_eq!(report.violations, [], "{}, seed {seed}", world.name);
        }
    }
}
